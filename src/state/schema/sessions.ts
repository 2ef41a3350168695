/** Sessions, for a service that is started again. */
export const SESSIONS_SCHEMA = `
  CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    created_ms REAL NOT NULL,
    used_ms REAL NOT NULL,
    used_at REAL NOT NULL,
    session TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
`;
