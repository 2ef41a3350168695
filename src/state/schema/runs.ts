/**
 * Runs with their steps, messages and events. `position` is the order of their
 * creation; `unsettled` marks those that a service which starts has to look
 * after. Records are JSON of core's types.
 */
export const RUNS_SCHEMA = `
  CREATE TABLE runs (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    state TEXT NOT NULL,
    unsettled INTEGER NOT NULL,
    record TEXT NOT NULL
  ) STRICT;
  CREATE INDEX runs_by_owner ON runs (owner, position);
  CREATE INDEX runs_unsettled ON runs (position) WHERE unsettled = 1;
  CREATE TABLE run_steps (
    run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    step INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (run_id, step)
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE run_messages (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    role TEXT NOT NULL,
    content TEXT NOT NULL
  ) STRICT;
  CREATE INDEX run_messages_by_run ON run_messages (run_id, position);
  CREATE TABLE run_events (
    run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    sequence INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (run_id, sequence)
  ) STRICT, WITHOUT ROWID;
`;
