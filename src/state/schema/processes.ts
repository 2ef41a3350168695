/**
 * Processes, those that ended in the last day too, oldest first. What a process
 * is and how it ended is the process layer's own: Berth's store looks for
 * nothing in it. `ended_at` is service time.
 */
export const PROCESSES_SCHEMA = `
  CREATE TABLE processes (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    process_id TEXT NOT NULL UNIQUE,
    ended_at REAL,
    facts TEXT NOT NULL,
    transcript BLOB NOT NULL
  ) STRICT;
`;
