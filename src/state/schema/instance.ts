/** Whose data this is: one row, the id in the labels of all that this service makes. */
export const INSTANCE_SCHEMA = `
  CREATE TABLE instance (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    instance_id TEXT NOT NULL
  ) STRICT;
`;
