/** What requests with an id began and were answered, oldest first. `expires_at` is service time. */
export const REQUESTS_SCHEMA = `
  CREATE TABLE requests (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    method TEXT NOT NULL,
    request_id TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    subject TEXT,
    answer BLOB,
    expires_at REAL NOT NULL,
    UNIQUE (owner, method, request_id)
  ) STRICT;
  CREATE INDEX requests_by_expiry ON requests (expires_at);
`;
