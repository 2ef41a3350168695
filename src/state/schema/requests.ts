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

/**
 * What each answer takes: 0 without one, -1 where it was dropped. What those of an owner take together is kept up by
 * triggers, so that no transaction that is rolled back leaves it wrong.
 */
export const ANSWER_BYTES_SCHEMA = `
  ALTER TABLE requests ADD COLUMN answer_bytes INTEGER NOT NULL DEFAULT 0;
  UPDATE requests SET answer_bytes = coalesce(length(answer), 0);
  CREATE INDEX requests_with_answer ON requests (owner, place) WHERE answer_bytes > 0;
  CREATE TABLE answer_totals (
    owner TEXT PRIMARY KEY,
    bytes INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  INSERT INTO answer_totals SELECT owner, sum(answer_bytes) FROM requests GROUP BY owner;
  CREATE TRIGGER answer_added AFTER INSERT ON requests WHEN NEW.answer_bytes > 0 BEGIN
    INSERT INTO answer_totals VALUES (NEW.owner, NEW.answer_bytes)
      ON CONFLICT (owner) DO UPDATE SET bytes = bytes + excluded.bytes;
  END;
  CREATE TRIGGER answer_changed AFTER UPDATE OF answer_bytes ON requests BEGIN
    INSERT INTO answer_totals VALUES (NEW.owner, max(NEW.answer_bytes, 0) - max(OLD.answer_bytes, 0))
      ON CONFLICT (owner) DO UPDATE SET bytes = bytes + excluded.bytes;
  END;
  CREATE TRIGGER answer_removed AFTER DELETE ON requests WHEN OLD.answer_bytes > 0 BEGIN
    UPDATE answer_totals SET bytes = bytes - OLD.answer_bytes WHERE owner = OLD.owner;
  END;
`;
