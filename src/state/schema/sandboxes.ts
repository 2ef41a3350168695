/**
 * Sandboxes, the ended ones of the last day too, in the order in which their
 * lives began; what happened to them; and the time by which they expire.
 * `…_time_ms` is wall time, `…_at` service time; both in milliseconds.
 */
export const SANDBOXES_SCHEMA = `
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
