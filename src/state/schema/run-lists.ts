/**
 * What lists of runs go along, and how many runs of each owner may be forgotten
 * beyond the newest: counted by triggers, since SQLite counts rows by reading them.
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
