import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import { Database } from "../../../src/state/database.ts";
import {
  APPLICATION_ID,
  EVENT_BODY_SCHEMA,
  MIGRATIONS,
  PROCESS_SUMMARIES_SCHEMA,
} from "../../../src/state/schema.ts";
import { Store } from "../../../src/store.ts";
import { eventually } from "../../support/eventually.ts";
import { newDataDir } from "../../support/settings.ts";

/** A data directory that a service has used, with some pages of data. */
function usedDataDir(): { dataDir: string; file: string } {
  const dataDir = newDataDir();
  Store.open(dataDir, { instance: "first" }).close();
  const file = path.join(dataDir, "berth.db");
  const database = Database.open(file);
  database.exec("CREATE TABLE filler (text TEXT)");
  const insert = database.prepare("INSERT INTO filler VALUES (?)");
  database.transaction(() => {
    for (let i = 0; i < 100; i++) insert.run("x".repeat(1000));
  });
  database.close();
  return { dataDir, file };
}

function change(file: string, sql: string): void {
  const database = new DatabaseSync(file);
  database.exec(sql);
  database.close();
}

test("a missing data directory is created, closed to others, and keeps one instance", () => {
  const dataDir = path.join(newDataDir(), "a", "b");
  const first = Store.open(dataDir);
  const { instance } = first;
  first.close();
  expect(statSync(dataDir).mode & 0o777).toBe(0o700);
  const again = Store.open(dataDir);
  expect(again.instance).toBe(instance);
  again.close();
  expect(instance).toMatch(/^[a-z2-7]{12}$/);
});

test("the named instance stays, and another name is refused", () => {
  const { dataDir } = usedDataDir();
  expect(() => Store.open(dataDir, { instance: "second" })).toThrow(/--instance: .* instance first\./);
  const same = Store.open(dataDir, { instance: "first" });
  expect(same.instance).toBe("first");
  same.close();
});

describe("is refused with its reason, and stays as it was,", () => {
  const refusal = (dataDir: string, file: string, message: RegExp): void => {
    const before = readFileSync(file);
    expect(() => Store.open(dataDir)).toThrow(
      expect.objectContaining({ reason: "INVALID_ARGUMENT", message: expect.stringMatching(message) }),
    );
    expect(readFileSync(file).equals(before)).toBe(true);
    // A refused directory is not held.
    expect(() => Store.open(dataDir)).toThrow(message);
  };

  test("a directory that another service holds", () => {
    const { dataDir, file } = usedDataDir();
    const holder = Store.open(dataDir);
    refusal(dataDir, file, /in use by another service\. Stop that one/);
    holder.close();
    Store.open(dataDir).close();
  });

  test("a newer version's database", () => {
    const { dataDir, file } = usedDataDir();
    change(file, `PRAGMA user_version = ${MIGRATIONS.length + 1}`);
    refusal(dataDir, file, /written by a newer version of Berth/);
  });

  test("a newer version's database, whose service was killed before SQLite wrote its log back", () => {
    const { dataDir, file } = usedDataDir();
    const program = `
      import { DatabaseSync } from "node:sqlite";
      new DatabaseSync(${JSON.stringify(file)}).exec("PRAGMA user_version = ${MIGRATIONS.length + 1}");
      process.kill(process.pid, "SIGKILL");
    `;
    const { signal } = spawnSync(process.execPath, ["--input-type=module", "-e", program]);
    expect(signal).toBe("SIGKILL");
    refusal(dataDir, file, /written by a newer version of Berth/);
  });

  test("another program's database", () => {
    const { dataDir, file } = usedDataDir();
    change(file, "PRAGMA application_id = 1");
    refusal(dataDir, file, /the database of another program/);
  });

  test("a file that is not a database", () => {
    const { dataDir, file } = usedDataDir();
    writeFileSync(file, "not a database at all\n".repeat(20));
    refusal(dataDir, file, /not a database/);
  });

  test.each([50, 4096, 20_000, 100_000])("a database cut off at %i bytes", (size) => {
    const { dataDir, file } = usedDataDir();
    truncateSync(file, size);
    refusal(dataDir, file, size < 100 ? /not a database, or a broken one/ : /is damaged/);
  });

  test("a database with pages overwritten", () => {
    const { dataDir, file } = usedDataDir();
    const bytes = readFileSync(file);
    bytes.fill(0x5a, 8192, 40_000);
    writeFileSync(file, bytes);
    refusal(dataDir, file, /is damaged/);
  });

  test("a directory below a file", () => {
    const { file } = usedDataDir();
    refusal(path.join(file, "below"), file, /cannot be used \(ENOTDIR: /);
  });
});

test("an empty file, as a crash before the first write leaves it, is created again", () => {
  const dataDir = newDataDir();
  writeFileSync(path.join(dataDir, "berth.db"), "");
  Store.open(dataDir).close();
});

test("events of a database that names their body `happening` are read with their bodies", () => {
  const dataDir = newDataDir();
  const termination = { cause: "DELETED", message: 'It\'s "gone": ü, {}, 100%.', timeMs: 4.5 } as const;
  const step = {
    step: 1,
    status: "CONTINUE",
    result: "[]",
    tools: [{ name: "a", calls: 2 }],
    retried: false,
  };
  const runEvent = { timeMs: 7, state: "RUNNING", currentStep: 1, sandboxId: "" };
  const before = MIGRATIONS.slice(0, MIGRATIONS.indexOf(EVENT_BODY_SCHEMA));
  const old = new DatabaseSync(path.join(dataDir, "berth.db"));
  for (const migration of before) old.exec(migration);
  old.exec(`PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${before.length}`);
  old
    .prepare(
      "INSERT INTO events (time_ms, owner, sandbox_id, generation, happening) VALUES (5, 'me', 'sbx_1', 2, ?)",
    )
    .run(JSON.stringify({ type: "TERMINATED", termination }));
  old.exec(
    "INSERT INTO runs (run_id, owner, state, unsettled, record) VALUES ('run_1', 'me', 'RUNNING', 0, '{}')",
  );
  old
    .prepare("INSERT INTO run_events (run_id, sequence, record) VALUES ('run_1', 3, ?)")
    .run(JSON.stringify({ ...runEvent, happening: { type: "STEP_REPORTED", step } }));
  old.close();

  const store = Store.open(dataDir);
  expect(store.events.load()).toEqual([
    {
      sequence: 1,
      timeMs: 5,
      owner: "me",
      sandboxId: "sbx_1",
      generation: 2,
      body: { type: "TERMINATED", termination },
    },
  ]);
  expect(store.runs.events("run_1", 0, 10)).toEqual([
    { ...runEvent, sequence: 3, body: { type: "STEP_REPORTED", step } },
  ]);
  store.close();
});

test("a database without summaries still has all its processes", () => {
  const dataDir = newDataDir();
  const before = MIGRATIONS.slice(0, MIGRATIONS.indexOf(PROCESS_SUMMARIES_SCHEMA));
  const old = new DatabaseSync(path.join(dataDir, "berth.db"));
  for (const migration of before) old.exec(migration);
  old.exec(`PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${before.length}`);
  const insert = old.prepare(
    "INSERT INTO processes (process_id, ended_at, facts, transcript) VALUES (?, ?, ?, ?)",
  );
  insert.run("prc_runs", null, "{}", Buffer.from("one"));
  insert.run("prc_ended", 7.5, "{}", Buffer.from("two"));
  old.close();

  const store = Store.open(dataDir);
  const stored = { summary: undefined, facts: "{}" };
  expect(store.processes.unsummarized()).toMatchObject([
    { ...stored, processId: "prc_ended", endedAt: 7.5 },
    { ...stored, processId: "prc_runs", endedAt: undefined },
  ]);
  expect(Buffer.from(store.processes.get("prc_ended")?.transcript ?? []).toString()).toBe("two");
  expect(store.processes.ended()).toEqual([]);
  store.close();
});

test("sandboxes and processes that ended under another key are refused when they are listed", () => {
  const dataDir = newDataDir();
  const store = Store.open(dataDir);
  const name = { owner: "me", sandboxId: "box", generation: 1 };
  store.sandboxes.put({
    ...{ ...name, place: 1, spec: {} as never, createTimeMs: 1, createdAt: 1, usedTimeMs: 1, usedAt: 1 },
    phase: { state: "TERMINATED", termination: { cause: "DELETED", message: "", timeMs: 1 }, endedAt: 1 },
  });
  store.processes.put({
    ...{ processId: "prc_1", endedAt: 1, facts: "{}", transcript: new Uint8Array() },
    summary: { sandbox: name, startTimeMs: 1, commandBytes: 0, heldBytes: 0, files: [] },
  });
  expect(store.sandboxes.load()).toHaveLength(1);
  expect(store.processes.ended()).toHaveLength(1);
  store.close();

  writeFileSync(path.join(dataDir, "key"), randomBytes(32));
  const other = Store.open(dataDir);
  expect(() => other.sandboxes.load()).toThrow(/a key other than/);
  expect(() => other.processes.ended()).toThrow(/a key other than/);
  other.close();
});

test("committed data survives a kill of the process, and the next one opens the directory", () => {
  const dataDir = newDataDir();
  const store = new URL("../../../src/store.ts", import.meta.url).href;
  const program = `
    import { Store } from ${JSON.stringify(store)};
    Store.open(${JSON.stringify(dataDir)}, { instance: "killed" });
    process.kill(process.pid, "SIGKILL");
  `;
  const { signal, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program]);
  expect([signal, stderr.toString()]).toEqual(["SIGKILL", ""]);
  expect(existsSync(path.join(dataDir, "berth.db-wal"))).toBe(true);
  const next = Store.open(dataDir);
  expect(next.instance).toBe("killed");
  next.close();
  expect(readdirSync(dataDir).sort()).toEqual(["berth.db", "key", "lock"]);
});

test("no commit waits until a long log is in the file: a thread copies it", async () => {
  const dataDir = newDataDir();
  const size = (): number => statSync(path.join(dataDir, "berth.db")).size;
  const store = Store.open(dataDir);
  const image = "x".repeat(20_000_000);
  const progress = { currentBytes: 0, totalBytes: 0, layersDone: 0, layersTotal: 0 };
  const body = { type: "IMAGE_PULL", image, progress } as const;
  store.transaction(() =>
    store.events.append({ sequence: 1, timeMs: 1, owner: "", sandboxId: "s", generation: 1, body }),
  );
  expect(size()).toBeLessThan(image.length);
  await eventually(() => size() > image.length);
  expect(store.events.load()).toMatchObject([{ body }]);
  store.close();
});

describe("a transaction", () => {
  const open = (): Database => {
    const database = Database.open(path.join(newDataDir(), "t.db"));
    database.exec("CREATE TABLE t (n INTEGER)");
    return database;
  };
  const count = (database: Database): unknown => database.prepare("SELECT count(*) AS n FROM t").get()?.n;

  test("is undone as a whole if it fails, with those inside it", () => {
    const database = open();
    const insert = (): unknown => database.prepare("INSERT INTO t VALUES (1)").run();
    expect(() =>
      database.transaction(() => {
        insert();
        database.transaction(insert);
        throw new Error("no");
      }),
    ).toThrow("no");
    expect(count(database)).toBe(0);
    expect(database.transaction(() => [insert(), database.transaction(insert)].length)).toBe(2);
    expect(count(database)).toBe(2);
    database.close();
  });

  test("that the disk has no room for changes nothing and says so", () => {
    const database = open();
    database.exec("CREATE TABLE big (b BLOB); PRAGMA max_page_count = 20");
    expect(() =>
      database.transaction(() => {
        database.prepare("INSERT INTO t VALUES (1)").run();
        database.prepare("INSERT INTO big VALUES (zeroblob(1000000))").run();
      }),
    ).toThrow(expect.objectContaining({ reason: "NO_SPACE" }));
    expect(count(database)).toBe(0);
    database.transaction(() => database.prepare("INSERT INTO t VALUES (1)").run());
    expect(count(database)).toBe(1);
    database.close();
  });
});
