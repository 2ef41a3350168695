import type { Database } from "./database.ts";

/** The instance that owns the data, in one row: the id in the labels of everything that this service creates. */
const INSTANCE_SCHEMA = `
  CREATE TABLE instance (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    instance_id TEXT NOT NULL
  ) STRICT;
`;

/**
 * Sandboxes, including those that ended in the last day, in the order of their creation; their events; and the service
 * time, which decides when they expire. `…_time_ms` is wall time, `…_at` service time; both in milliseconds.
 */
const SANDBOXES_SCHEMA = `
  CREATE TABLE sandboxes (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    state TEXT NOT NULL,
    phase TEXT NOT NULL,
    spec TEXT NOT NULL,
    create_time_ms REAL NOT NULL,
    created_at REAL NOT NULL,
    used_time_ms REAL NOT NULL,
    used_at REAL NOT NULL,
    UNIQUE (owner, sandbox_id)
  ) STRICT;

  CREATE TABLE events (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ms REAL NOT NULL,
    owner TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    happening TEXT NOT NULL
  ) STRICT;

  CREATE TABLE service_time (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    service_ms REAL NOT NULL,
    monotonic_ms REAL NOT NULL,
    boot_id TEXT NOT NULL,
    wall_ms REAL NOT NULL
  ) STRICT;
`;

/**
 * Runs with their steps, messages and events. `position` is the order of their creation; `unsettled` marks those that
 * need attention when the service starts. Records are JSON of the types in `runs/`.
 */
const RUNS_SCHEMA = `
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

/** Requests with an id, what they started to create, and their answers, oldest first. `expires_at` is service time. */
const REQUESTS_SCHEMA = `
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
 * The size of each answer: 0 without one, -1 if it was dropped. Triggers maintain each owner's sum, so that it stays
 * correct when a transaction is rolled back.
 */
const ANSWER_BYTES_SCHEMA = `
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

/**
 * Processes, including those that ended in the last day, oldest first. Only the process layer interprets the facts of a
 * process and how it ended; no query uses them. `ended_at` is service time.
 */
const PROCESSES_SCHEMA = `
  CREATE TABLE processes (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    process_id TEXT NOT NULL UNIQUE,
    ended_at REAL,
    facts TEXT NOT NULL,
    transcript BLOB NOT NULL
  ) STRICT;
`;

/** Workspaces, the traces that refer to them, and deletions that a retry may repeat. Text compares by its bytes. */
const WORKSPACES_SCHEMA = `
CREATE TABLE workspaces (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  owner TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  state TEXT NOT NULL,
  sandbox_id TEXT NOT NULL DEFAULT '',
  size_bytes INTEGER,
  create_time_ms INTEGER NOT NULL,
  update_time_ms INTEGER NOT NULL,
  UNIQUE (owner, workspace_id)
) STRICT;
CREATE TABLE workspace_refs (
  owner TEXT NOT NULL,
  trace_id TEXT NOT NULL,
  workspace_number INTEGER NOT NULL REFERENCES workspaces (number) ON DELETE CASCADE,
  PRIMARY KEY (owner, trace_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX workspace_refs_by_workspace ON workspace_refs (workspace_number, trace_id);
CREATE TABLE workspace_deletions (
  owner TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  cleared_refs INTEGER NOT NULL,
  request_id TEXT NOT NULL,
  answered INTEGER NOT NULL,
  time_ms INTEGER NOT NULL,
  PRIMARY KEY (owner, workspace_id)
) STRICT, WITHOUT ROWID;
`;

/** Sessions, for the next start of the service. */
const SESSIONS_SCHEMA = `
  CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    created_ms REAL NOT NULL,
    used_ms REAL NOT NULL,
    used_at REAL NOT NULL,
    session TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
`;

/**
 * The indexes for lists of runs, and the number of settled runs of each owner. Triggers count them, because SQLite
 * counts rows by reading them.
 */
export const RUN_LISTS_SCHEMA = `
  CREATE INDEX runs_by_state ON runs (owner, state, position);
  CREATE INDEX runs_settled ON runs (owner, position) WHERE unsettled = 0;
  CREATE TABLE run_counts (
    owner TEXT PRIMARY KEY,
    settled INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  INSERT INTO run_counts (owner, settled) SELECT owner, sum(unsettled = 0) FROM runs GROUP BY owner;
  CREATE TRIGGER count_added_run AFTER INSERT ON runs BEGIN
    INSERT INTO run_counts (owner, settled) VALUES (new.owner, new.unsettled = 0)
      ON CONFLICT (owner) DO UPDATE SET settled = settled + excluded.settled;
  END;
  CREATE TRIGGER count_changed_run AFTER UPDATE OF unsettled ON runs WHEN old.unsettled <> new.unsettled BEGIN
    UPDATE run_counts SET settled = settled + old.unsettled - new.unsettled WHERE owner = new.owner;
  END;
  CREATE TRIGGER count_removed_run AFTER DELETE ON runs WHEN old.unsettled = 0 BEGIN
    UPDATE run_counts SET settled = settled - 1 WHERE owner = old.owner;
  END;
`;

/**
 * Events that are gone: those of an owner up to a sequence number, which were trimmed for newer ones, and those of all
 * owners in a range, which were published and then lost. `event_run` has a row while a service stores events.
 */
const EVENT_GAPS_SCHEMA = `
  CREATE INDEX events_by_owner ON events (owner, sequence);
  CREATE TABLE event_trims (
    owner TEXT PRIMARY KEY,
    last_sequence INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE event_losses (
    first_sequence INTEGER PRIMARY KEY,
    last_sequence INTEGER NOT NULL
  ) STRICT;
  CREATE TABLE event_run (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    boot_id TEXT NOT NULL
  ) STRICT;
  INSERT INTO event_losses (first_sequence, last_sequence)
    SELECT previous + 1, sequence - 1
    FROM (SELECT sequence, lag(sequence, 1, 0) OVER (ORDER BY sequence) AS previous FROM events)
    WHERE sequence > previous + 1;
`;

/** Renames the column for the body of events to `body`, as in the code. */
export const EVENT_BODY_SCHEMA = `
  ALTER TABLE events RENAME COLUMN happening TO body;
  UPDATE run_events SET record = json_remove(json_set(record, '$.body', json_extract(record, '$.happening')), '$.happening');
`;

/** The directory of a workspace within its volume, if workspaces are volumes. */
const WORKSPACE_TREES_SCHEMA = `
  ALTER TABLE workspaces ADD COLUMN tree INTEGER NOT NULL DEFAULT 0;
`;

/**
 * What lists and limits need to know about an ended process, in plain text and in columns before the long ones. The
 * rest is read when the process is requested. Null: the process has not ended, or an earlier version stored it.
 */
export const PROCESS_SUMMARIES_SCHEMA = `
  CREATE TABLE summarized_processes (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    process_id TEXT NOT NULL UNIQUE,
    ended_at REAL,
    summary TEXT,
    facts TEXT NOT NULL,
    transcript BLOB NOT NULL
  ) STRICT;
  INSERT INTO summarized_processes (place, process_id, ended_at, facts, transcript)
    SELECT place, process_id, ended_at, facts, transcript FROM processes;
  DROP TABLE processes;
  ALTER TABLE summarized_processes RENAME TO processes;
`;

/** Stored bytes of each run, with its steps, messages and events, and of all runs of an owner, counted by triggers. */
export const RUN_BYTES_SCHEMA = `
  CREATE TABLE run_sizes (
    run_id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    bytes INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  INSERT INTO run_sizes (run_id, owner, bytes) SELECT run_id, owner,
    octet_length(record)
    + (SELECT coalesce(sum(octet_length(record)), 0) FROM run_steps WHERE run_steps.run_id = runs.run_id)
    + (SELECT coalesce(sum(octet_length(content)), 0) FROM run_messages WHERE run_messages.run_id = runs.run_id)
    + (SELECT coalesce(sum(octet_length(record)), 0) FROM run_events WHERE run_events.run_id = runs.run_id)
    FROM runs;
  ALTER TABLE run_counts ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
  UPDATE run_counts SET bytes =
    (SELECT coalesce(sum(bytes), 0) FROM run_sizes WHERE run_sizes.owner = run_counts.owner);
  CREATE TRIGGER size_of_owner AFTER UPDATE OF bytes ON run_sizes BEGIN
    UPDATE run_counts SET bytes = bytes + new.bytes - old.bytes WHERE owner = new.owner;
  END;
  CREATE TRIGGER size_of_added_run AFTER INSERT ON runs BEGIN
    INSERT INTO run_sizes (run_id, owner, bytes) VALUES (new.run_id, new.owner, octet_length(new.record));
    INSERT INTO run_counts (owner, settled, bytes) VALUES (new.owner, 0, octet_length(new.record))
      ON CONFLICT (owner) DO UPDATE SET bytes = bytes + excluded.bytes;
  END;
  CREATE TRIGGER size_of_changed_run AFTER UPDATE OF record ON runs BEGIN
    UPDATE run_sizes SET bytes = bytes + octet_length(new.record) - octet_length(old.record) WHERE run_id = new.run_id;
  END;
  CREATE TRIGGER size_of_removed_run BEFORE DELETE ON runs BEGIN
    UPDATE run_sizes SET bytes = 0 WHERE run_id = old.run_id;
    DELETE FROM run_sizes WHERE run_id = old.run_id;
  END;
  ${["run_steps.record", "run_messages.content", "run_events.record"].map(countedInSize).join("")}
`;

function countedInSize(part: string): string {
  const [table, column] = part.split(".");
  return `
  CREATE TRIGGER size_of_added_${table} AFTER INSERT ON ${table} BEGIN
    UPDATE run_sizes SET bytes = bytes + octet_length(new.${column}) WHERE run_id = new.run_id;
  END;
  CREATE TRIGGER size_of_removed_${table} AFTER DELETE ON ${table} BEGIN
    UPDATE run_sizes SET bytes = bytes - octet_length(old.${column}) WHERE run_id = old.run_id;
  END;`;
}

/**
 * From here on the output of processes is stored in the format of `storeBlocks`, which older versions of Berth cannot
 * read. Rows from before stay as they are.
 */
const STORED_BLOCKS_SCHEMA = "";

/** Count each owner's answered requests, and the bytes of their answers. */
const ANSWER_TRIGGERS = `
  CREATE TRIGGER answer_added AFTER INSERT ON requests WHEN NEW.answer_bytes <> 0 BEGIN
    INSERT INTO answer_totals VALUES (NEW.owner, max(NEW.answer_bytes, 0), 1)
      ON CONFLICT (owner) DO UPDATE SET bytes = bytes + excluded.bytes, requests = requests + 1;
  END;
  CREATE TRIGGER answer_changed AFTER UPDATE OF answer_bytes ON requests BEGIN
    INSERT INTO answer_totals VALUES (
      NEW.owner,
      max(NEW.answer_bytes, 0) - max(OLD.answer_bytes, 0),
      (NEW.answer_bytes <> 0) - (OLD.answer_bytes <> 0)
    ) ON CONFLICT (owner) DO UPDATE SET bytes = bytes + excluded.bytes, requests = requests + excluded.requests;
  END;
  CREATE TRIGGER answer_removed AFTER DELETE ON requests WHEN OLD.answer_bytes <> 0 BEGIN
    UPDATE answer_totals SET bytes = bytes - max(OLD.answer_bytes, 0), requests = requests - 1
      WHERE owner = OLD.owner;
  END;
`;

/**
 * The number of each owner's answered requests, counted by the triggers that sum their answers, and an index by which
 * its oldest are found. Requests in progress do not count, because they must not be forgotten.
 */
export const REQUEST_COUNTS_SCHEMA = `
  CREATE INDEX requests_by_owner ON requests (owner, place);
  ALTER TABLE answer_totals ADD COLUMN requests INTEGER NOT NULL DEFAULT 0;
  UPDATE answer_totals SET requests =
    (SELECT count(*) FROM requests WHERE requests.owner = answer_totals.owner AND answer_bytes <> 0);
  DROP TRIGGER answer_added;
  DROP TRIGGER answer_changed;
  DROP TRIGGER answer_removed;
  ${ANSWER_TRIGGERS}
`;

/**
 * A digest of each message of the assistant, sealed, in a column before the long one: a report compares it with those of
 * all others. Null: the message is of somebody else, or an earlier version stored it.
 */
const MESSAGE_DIGESTS_SCHEMA = `
  CREATE TABLE digested_messages (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    role TEXT NOT NULL,
    digest TEXT,
    content TEXT NOT NULL
  ) STRICT;
  INSERT INTO digested_messages (position, run_id, role, content)
    SELECT position, run_id, role, content FROM run_messages;
  DROP TABLE run_messages;
  ALTER TABLE digested_messages RENAME TO run_messages;
  CREATE INDEX run_messages_by_run ON run_messages (run_id, position);
  ${countedInSize("run_messages.content")}
`;

/** The answers of requests after the short columns: SQLite reads all of a long column to get at those after it. */
export const ANSWERS_LAST_SCHEMA = `
  CREATE TABLE requests_answer_last (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    method TEXT NOT NULL,
    request_id TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    subject TEXT,
    answer_bytes INTEGER NOT NULL,
    expires_at REAL NOT NULL,
    answer BLOB,
    UNIQUE (owner, method, request_id)
  ) STRICT;
  INSERT INTO requests_answer_last
    SELECT place, owner, method, request_id, fingerprint, subject, answer_bytes, expires_at, answer FROM requests;
  DROP TABLE requests;
  ALTER TABLE requests_answer_last RENAME TO requests;
  CREATE INDEX requests_by_expiry ON requests (expires_at);
  CREATE INDEX requests_by_owner ON requests (owner, place);
  CREATE INDEX requests_with_answer ON requests (owner, place) WHERE answer_bytes > 0;
  ${ANSWER_TRIGGERS}
`;

/** All migrations of the schema, oldest first. A database of version n has had the first n. */
export const MIGRATIONS: readonly string[] = [
  INSTANCE_SCHEMA,
  SANDBOXES_SCHEMA,
  RUNS_SCHEMA,
  REQUESTS_SCHEMA,
  PROCESSES_SCHEMA,
  WORKSPACES_SCHEMA,
  SESSIONS_SCHEMA,
  ANSWER_BYTES_SCHEMA,
  RUN_LISTS_SCHEMA,
  EVENT_GAPS_SCHEMA,
  EVENT_BODY_SCHEMA,
  WORKSPACE_TREES_SCHEMA,
  PROCESS_SUMMARIES_SCHEMA,
  RUN_BYTES_SCHEMA,
  STORED_BLOCKS_SCHEMA,
  REQUEST_COUNTS_SCHEMA,
  MESSAGE_DIGESTS_SCHEMA,
  ANSWERS_LAST_SCHEMA,
];

/** Marks a file as Berth's: "Brth". */
export const APPLICATION_ID = 0x42727468;

/** Migrates a database to the newest version. */
export function migrate(database: Database): void {
  for (let version = versionOf(database); version < MIGRATIONS.length; version++) {
    database.transaction(() => {
      database.exec(MIGRATIONS[version] ?? "");
      database.exec(`PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${version + 1};`);
    });
  }
}

/** The number of migrations that a database has had. */
function versionOf(database: Database): number {
  const row = database.prepare("PRAGMA user_version").get();
  return Number(row?.user_version);
}
