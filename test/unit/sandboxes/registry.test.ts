import { expect, test } from "vitest";
import { WHOLE } from "../../../src/base/ordered-index.ts";
import { SandboxRecord } from "../../../src/sandboxes/record.ts";
import { SandboxRegistry } from "../../../src/sandboxes/registry.ts";
import { SANDBOX_DEFAULTS } from "../../../src/sandboxes/spec.ts";
import { ManualClock } from "../../support/manual-clock.ts";

/** A registry that keeps this many ended sandboxes, and functions that add and end sandboxes. */
function newRegistry(keepEnded?: number) {
  const clock = new ManualClock();
  const forgotten: string[] = [];
  const registry = new SandboxRegistry(clock, ({ sandboxId }) => forgotten.push(sandboxId), keepEnded);
  let place = 0;
  const begin = (sandboxId: string, owner = "me"): SandboxRecord => {
    const record = new SandboxRecord(
      {
        ...{ sandboxId, owner, generation: 1, place: ++place },
        spec: { ...SANDBOX_DEFAULTS, env: {}, labels: {} } as never,
        phase: { state: "CREATING", abort: new AbortController(), warmRef: undefined },
        reservation: { leave() {}, stay() {}, release() {} },
      },
      { clock, onUse() {}, onIdle() {} },
    );
    registry.add(record);
    return record;
  };
  const end = (record: SandboxRecord): void => {
    const termination = { cause: "DELETED", message: "", timeMs: 0 } as const;
    record.phase = { state: "TERMINATED", termination, endedAt: clock.monotonicMs() };
    registry.retire(record);
  };
  const ids = (owner: string, ended: boolean): string[] =>
    registry.list(owner, ended, WHOLE, () => true).items.map(({ sandboxId }) => sandboxId);
  return { registry, begin, end, ids, forgotten };
}

test("an owner's flood of ended sandboxes does not push out another's", () => {
  const { begin, end, ids, forgotten, registry } = newRegistry(10);
  for (const id of ["theirs-1", "theirs-2"]) end(begin(id, "another"));
  for (let i = 0; i < 50; i++) end(begin(`mine-${i}`));
  expect(ids("another", true)).toEqual(["theirs-2", "theirs-1"]);
  expect(ids("me", true)).toEqual([49, 48, 47, 46, 45, 44, 43, 42].map((i) => `mine-${i}`));
  expect(forgotten).toHaveLength(42);
  expect(registry.get("me", "mine-41")).toBeUndefined();
  expect(registry.get("another", "theirs-1")?.sandboxId).toBe("theirs-1");
});

test("a list of live sandboxes reads no ended ones, and no more than its page", () => {
  const { registry, begin, end } = newRegistry();
  for (let i = 0; i < 5; i++) begin(`live-${i}`);
  for (let i = 0; i < 10_000; i++) end(begin(`ended-${i}`));
  begin("newest");
  let looked = 0;
  const page = (ended: boolean, limit: number): number => {
    looked = 0;
    registry.list("me", ended, { limit }, () => ++looked > 0);
    return looked;
  };
  expect(page(false, 50)).toBe(6);
  expect(page(false, 2)).toBe(3);
  expect(page(true, 50)).toBe(51);
});

test("a sandbox with the id of an ended one is the newest in the list", () => {
  const { begin, end, ids } = newRegistry();
  end(begin("again"));
  begin("other");
  begin("again");
  expect(ids("me", true)).toEqual(["again", "other"]);
  expect(ids("me", false)).toEqual(["again", "other"]);
});
