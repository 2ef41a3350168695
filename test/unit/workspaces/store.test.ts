import { expect, onTestFinished, test, vi } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { WorkspaceStore } from "../../../src/workspaces/store.ts";
import { memoryDatabase } from "../../support/memory-database.ts";

test("the total size of an owner's workspaces follows each change", () => {
  const database = memoryDatabase();
  const store = new WorkspaceStore(database);
  const named = (workspaceId: string) => ({ owner: "me", workspaceId });
  const seen: number[] = [];
  const look = () => seen.push(store.ownerBytes("me"));
  look();
  store.insert(named("a"), "ACTIVE", 0);
  look();
  store.setSize(named("a"), 5);
  look();
  store.insertFork(named("b"), 7, 0, () => {});
  look();
  const failing = () => {
    throw new Error("not stored");
  };
  expect(() => store.insertFork(named("c"), 100, 0, failing)).toThrow("not stored");
  look();
  store.setSize({ owner: "other", workspaceId: "a" }, 3);
  look();
  store.setSize(named("a"), 6);
  look();
  store.remove(named("b"));
  look();
  expect(seen).toEqual([0, 0, 5, 12, 12, 12, 13, 6]);
  database.close();
});

test("a change of one size does not add up all others again", () => {
  const database = memoryDatabase();
  onTestFinished(() => database.close());
  const store = new WorkspaceStore(database);
  const named = (workspaceId: string) => ({ owner: "me", workspaceId });
  for (const workspaceId of ["a", "b", "c"]) store.insert(named(workspaceId), "ACTIVE", 0);
  expect(store.ownerBytes("me")).toBe(0);
  const prepare = vi.spyOn(database, "prepare");
  store.setSize(named("a"), 5);
  expect(store.ownerBytes("me")).toBe(5);
  store.setSize(named("b"), 7);
  expect(store.ownerBytes("me")).toBe(12);
  store.remove(named("a"));
  expect(store.ownerBytes("me")).toBe(7);
  expect(prepare.mock.calls.filter(([sql]) => sql.includes("total(size_bytes)"))).toEqual([]);
});

test("a size that is measured while the disk is full counts until the next one is stored", () => {
  const database = memoryDatabase();
  const store = new WorkspaceStore(database);
  const name = { owner: "me", workspaceId: "a" };
  store.insert(name, "ACTIVE", 0);
  store.setSize(name, 5);
  const { transaction } = database;
  database.transaction = () => {
    throw new BerthError("NO_SPACE", "The disk is full.");
  };
  const sizes = () => [
    store.find(name)?.sizeBytes,
    store.ofOwner("me").next().value?.sizeBytes,
    store.ownerBytes("me"),
  ];
  expect(() => store.setSize(name, 700)).not.toThrow();
  expect(sizes()).toEqual([700, 700, 700]);
  database.transaction = transaction;
  store.setSize(name, 6);
  expect(sizes()).toEqual([6, 6, 6]);
  database.close();
});

test("a page of workspaces ends before their references take more than 2 MiB, and has at least one", () => {
  const database = memoryDatabase();
  const store = new WorkspaceStore(database);
  const refs = { a: 3_000, b: 3_000, c: 3_000, d: 10_000, e: 1, f: 0 };
  for (const [workspaceId, count] of Object.entries(refs)) {
    const name = { owner: "me", workspaceId };
    store.insert(name, "ACTIVE", 0);
    for (let index = 0; index < count; index++)
      store.addRef(name, `${workspaceId}-${index}`.padEnd(256, "x"), 0);
  }
  const pages: string[][] = [];
  for (let after: string | undefined = ""; after !== undefined; ) {
    const { records, more } = store.page("me", after, 50);
    pages.push(records.map(({ workspaceId }) => workspaceId));
    after = more ? records.at(-1)?.workspaceId : undefined;
  }
  expect(pages).toEqual([["a", "b"], ["c"], ["d"], ["e", "f"]]);
  expect(store.page("me", "", 1)).toMatchObject({ records: [{ workspaceId: "a" }], more: true });
  expect(store.page("me", "e", 1)).toMatchObject({ records: [{ workspaceId: "f" }], more: false });
  database.close();
});

test("the ids of an owner's many workspaces are all read, some at a time", () => {
  const database = memoryDatabase();
  const store = new WorkspaceStore(database);
  const ids = Array.from({ length: 2_500 }, (_, index) => `w${String(index).padStart(4, "0")}`);
  database.transaction(() => {
    for (const workspaceId of ids) store.insert({ owner: "me", workspaceId }, "ACTIVE", 0);
  });
  store.insert({ owner: "me", workspaceId: "" }, "ACTIVE", 0);
  store.insert({ owner: "other", workspaceId: "w" }, "ACTIVE", 0);
  const reading = store.ids("me");
  expect(reading.next().value).toBe(ids[0]);
  store.remove({ owner: "me", workspaceId: ids.at(-1) ?? "" });
  expect([...reading]).toEqual(ids.slice(1, -1));
  database.close();
});

test.each([
  ["an owner", (store: WorkspaceStore) => store.ofOwner("me"), []],
  ["all owners", (store: WorkspaceStore) => store.all(), ["w"]],
] as const)("the records of %s are all read, some at a time", (_, read, others) => {
  const database = memoryDatabase();
  onTestFinished(() => database.close());
  const store = new WorkspaceStore(database);
  const ids = ["", ...Array.from({ length: 2_500 }, (_, index) => `w${String(index).padStart(4, "0")}`)];
  database.transaction(() => {
    for (const workspaceId of ids) store.insert({ owner: "me", workspaceId }, "ACTIVE", 0);
  });
  store.insert({ owner: "other", workspaceId: "w" }, "ACTIVE", 0);
  const reading = read(store);
  expect([reading.next(), reading.next()].map(({ value }) => value?.workspaceId)).toEqual(ids.slice(0, 2));
  store.remove({ owner: "me", workspaceId: ids.at(-1) ?? "" });
  expect([...reading].map(({ workspaceId }) => workspaceId)).toEqual([...ids.slice(2, -1), ...others]);
});
