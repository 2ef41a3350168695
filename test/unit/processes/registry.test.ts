import { expect, test } from "vitest";
import { WHOLE } from "../../../src/base/ordered-index.ts";
import { ProcessControl } from "../../../src/processes/control.ts";
import { Process, type ProcessParts } from "../../../src/processes/process.ts";
import type { Command } from "../../../src/processes/record.ts";
import { ProcessRegistry } from "../../../src/processes/registry.ts";
import { TranscriptBudget } from "../../../src/processes/transcript-budget.ts";
import type { LeasedSandbox } from "../../../src/sandboxes/lease.ts";
import { TenantQuotas } from "../../../src/sandboxes/tenant-quotas.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { MemoryLog } from "../../support/memory-log.ts";

const DAY_MS = 24 * 3600 * 1000;
const OWNER = "somebody";
const nobody = () => Promise.reject(new Error("nothing is run here"));

/** A registry, and a function that adds ended processes. */
function newRegistry() {
  const clock = new ManualClock();
  const forgotten: string[] = [];
  const registry = new ProcessRegistry(clock, new TenantQuotas(clock), {
    read: () => {
      throw new Error("nothing is stored here");
    },
    forget: ({ id }) => forgotten.push(id),
  });
  const parts: ProcessParts = {
    runner: { start: nobody },
    control: new ProcessControl({
      shells: { ask: nobody },
      engine: { outside: async () => undefined },
      giveUp: () => false,
    }),
    clock,
    logger: new MemoryLog(),
    transcript: { windowBytes: 1_000_000, headBytes: 1_000_000, memoryBytes: 1_000_000 },
    transcripts: new TranscriptBudget({ bytes: 1e9, ownerBytes: 1e9, memoryBytes: 1e9 }),
    openSpill: undefined,
    killGraceMs: 0,
  };
  const add = async (
    id: string,
    command: Command = { kind: "shell", line: "true" },
    owner = OWNER,
  ): Promise<void> => {
    const sandbox = { owner, sandboxId: "box", generation: 1 } as LeasedSandbox;
    const options = {
      command,
      timeoutMs: 1000,
      keepStdinOpen: false,
      onDisconnect: "KILL",
      disconnectGraceMs: 0,
      outputLimitBytes: undefined,
      runId: "",
    } as const;
    const init = {
      id,
      options,
      user: "",
      hasTerminal: false,
      startTimeMs: 0,
      startedAt: clock.monotonicMs(),
    };
    const status = {
      cause: "EXITED",
      exitCode: 0,
      signal: 0,
      durationMs: 0,
      stdoutBytes: 0,
      stderrBytes: 0,
      message: "",
    } as const;
    const process = Process.ended(init, sandbox, parts, status);
    registry.add(process);
    await process.ended;
  };
  return { registry, clock, add, forgotten };
}

test("ended processes are readable for a day, and then removed", async () => {
  const { registry, clock, add, forgotten } = newRegistry();
  await add("first");
  await clock.advance(DAY_MS / 2);
  await add("second");
  await clock.advance(DAY_MS / 2 - 1);
  expect(registry.get(OWNER, "first")?.id).toBe("first");
  await clock.advance(1);
  expect(registry.get(OWNER, "first")).toBeUndefined();
  const { items } = await registry.list(OWNER, "box", true, WHOLE);
  expect(items.map(({ id }) => id)).toEqual(["second"]);
  expect(forgotten).toEqual(["first"]);
  expect(registry.get("somebody else", "second")).toBeUndefined();
});

test("beyond 10,000 ended processes the oldest is removed", async () => {
  const { add, forgotten } = newRegistry();
  for (let i = 0; i < 10_003; i++) await add(`${i}`);
  expect(forgotten).toEqual(["0", "1", "2"]);
});

test.each([
  ["long lines", (): Command => ({ kind: "shell", line: "x".repeat(1024 * 1024) })],
  ["many arguments", (): Command => ({ kind: "argv", args: new Array<string>(32 * 1024).fill("") })],
])("of commands that are %s, those that fit into 32 MiB are kept", async (_, command) => {
  const { registry, add, forgotten } = newRegistry();
  for (let i = 0; i < 40; i++) await add(`${i}`, command());
  expect(forgotten).toEqual(["0", "1", "2", "3", "4", "5", "6", "7"]);
  expect((await registry.list(OWNER, "box", true, WHOLE)).items).toHaveLength(32);
});

test("an owner's flood of ended processes does not evict another's", async () => {
  const { registry, add, forgotten } = newRegistry();
  await add("theirs", undefined, "another");
  for (let i = 0; i < 10_003; i++) await add(`${i}`);
  expect(forgotten).toEqual(["0", "1", "2", "3"]);
  expect(registry.get("another", "theirs")?.id).toBe("theirs");
});

test("an owner's flood of long commands does not evict another's", async () => {
  const { registry, add, forgotten } = newRegistry();
  const long: Command = { kind: "shell", line: "x".repeat(1024 * 1024) };
  await add("theirs", long, "another");
  for (let i = 0; i < 40; i++) await add(`${i}`, long);
  expect(forgotten).toEqual(Array.from({ length: 9 }, (_, i) => `${i}`));
  expect(registry.get("another", "theirs")?.id).toBe("theirs");
});
