/**
 * Which events are gone: those of an owner up to a sequence, which gave way to
 * newer ones, and those of everybody in a range, which were told and not kept.
 * `event_run` has a row while a service stores events.
 */
export const EVENT_GAPS_SCHEMA = `
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
