import { expect, test } from "vitest";
import { Database } from "../../../src/state/database.ts";
import { MIGRATIONS, migrate } from "../../../src/state/schema.ts";
import { memoryDatabase } from "../../support/memory-database.ts";

test("a test's database has what the migrations result in", () => {
  const migrated = Database.open(":memory:");
  migrate(migrated);
  const copied = memoryDatabase();

  const expected = contentOf(migrated);
  expect(expected.objects.length).toBeGreaterThan(MIGRATIONS.length);
  expect(contentOf(copied)).toEqual(expected);
  // It is not migrated again.
  migrate(copied);
  expect(contentOf(copied)).toEqual(expected);
});

function contentOf(database: Database) {
  const objects = database.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name").all();
  const tables = objects.filter(({ type, name }) => type === "table" && name !== "sqlite_sequence");
  return {
    objects,
    rows: tables.map(({ name }) => [name, database.prepare(`SELECT * FROM "${name}"`).all()]),
    application: database.prepare("PRAGMA application_id").get(),
    version: database.prepare("PRAGMA user_version").get(),
  };
}
