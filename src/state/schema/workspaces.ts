/** Workspaces, the traces that refer to them, and deletions that a retry may ask for. Text compares by its bytes. */
export const WORKSPACES_SCHEMA = `
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
