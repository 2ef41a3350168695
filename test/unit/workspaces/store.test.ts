import { expect, test } from "vitest";
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
