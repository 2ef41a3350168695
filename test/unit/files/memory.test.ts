import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { MemoryBudget } from "../../../src/base/memory-budget.ts";
import { FileManager } from "../../../src/files/manager.ts";
import { TemporaryNames } from "../../../src/files/temporary-names.ts";
import type { ProcessControl } from "../../../src/processes/control.ts";
import { settled } from "../../support/manual-clock.ts";
import { makeTar } from "../../support/tar-builder.ts";
import { type FakeJob, FakeRunner } from "../processes/fake-jobs.ts";
import { newManager, OWNER } from "../sandboxes/support.ts";

const MIB = 1024 * 1024;
const ROOM_BYTES = 8 * MIB;
/** As many as take more memory than there is. */
const CALLS = 8;

/** Its scripts end when their stdin does. */
class EndingRunner extends FakeRunner {
  override async start(...args: Parameters<FakeRunner["start"]>) {
    const job = await super.start(...args);
    job.closeStdin = () => this.jobs.find(({ pid }) => pid === job.pid)?.exit(1);
    return job;
  }
}

/** The files of a sandbox whose scripts the test controls. */
async function filesOf(roomBytes = ROOM_BYTES) {
  const { manager: sandboxes, clock, log: logger } = await newManager();
  const { sandboxId } = await sandboxes.create(OWNER, {}, { signal: new AbortController().signal });
  const runner = new EndingRunner();
  const control = {
    outside: async () => undefined,
    killTree: async (_: unknown, __: unknown, job: FakeJob) => job.exit(137),
    causeOf: async (error: unknown) => error,
  } as unknown as ProcessControl;
  const memory = new MemoryBudget(roomBytes);
  const ahead = new MemoryBudget(ROOM_BYTES);
  const names = new TemporaryNames("instance");
  const files = new FileManager(
    { maxOperationsPerSandbox: 100 },
    { sandboxes, runner, control, names, memory, ahead, clock, logger },
  );
  const request = {
    ...{ sandbox: { owner: OWNER, sandboxId }, user: undefined },
    path: { field: "path", bytes: "/a" },
  };
  return { files, runner, memory, ahead, request };
}

const STAT = "81a4 2000000 0 0 1 2026-11-26 08:00:00.000000000 +0000\n";
const NAMES = Array.from({ length: 40_000 }, (_, index) => `./${String(index).padStart(20, "n")}\0`).join("");
const reasonOf = (error: unknown): string => (error instanceof BerthError ? error.reason : String(error));

test.each([
  [
    "reads",
    STAT + "x".repeat(2 * MIB),
    ({ files, request }: Awaited<ReturnType<typeof filesOf>>, signal: AbortSignal) =>
      files.read({ ...request, offset: 0, limit: 4 * MIB }, signal),
  ],
  [
    "lists",
    NAMES,
    ({ files, request }: Awaited<ReturnType<typeof filesOf>>, signal: AbortSignal) =>
      files.list({ ...request, after: "a", limit: 1 }, signal),
  ],
])("%s gather no more together than there is memory for, and give it back", async (_, output, act) => {
  const world = await filesOf();
  const { runner, memory } = world;
  const leave = new AbortController();
  const calls = Array.from({ length: CALLS }, () => act(world, leave.signal).then(() => "read", reasonOf));
  while (runner.jobs.length < CALLS) await setImmediate();
  for (const job of runner.jobs) {
    job.write(output);
    await settled();
  }
  // Scripts whose output has no room are stopped.
  expect(runner.jobs.some(({ runs }) => !runs)).toBe(true);
  expect(await Promise.race(calls)).toBe("TOO_MANY_OPERATIONS");
  expect(memory.of(OWNER)).toBeLessThanOrEqual(ROOM_BYTES);
  expect(memory.of(OWNER)).toBeGreaterThan(ROOM_BYTES / 4);
  leave.abort();
  expect(await Promise.all(calls)).toContain("CANCELED");
  expect(memory.of(OWNER)).toBe(0);
});

test("uploads of archives gather no more names together than there is memory for, and give it back", async () => {
  const roomBytes = 2 * MIB;
  const { files, memory, request } = await filesOf(roomBytes);
  const leave = new AbortController();
  const entries = Array.from({ length: 1_250 }, (_, index) => ({ name: String(index).padStart(100, "n") }));
  const tar = makeTar(entries, Buffer.alloc(0));
  const arrived = new Set<number>();
  const all = Promise.withResolvers<void>();
  const arrive = (call: number): void => {
    arrived.add(call);
    if (arrived.size === CALLS) all.resolve();
  };
  /** Ends once all others have arrived or failed. */
  async function* chunks(call: number): AsyncGenerator<Buffer> {
    yield tar;
    arrive(call);
    await all.promise;
  }
  const upload = async (call: number): Promise<string> => {
    try {
      await files.uploadArchive({ ...request, createParents: false }, chunks(call), leave.signal);
      return "unpacked";
    } catch (error) {
      return reasonOf(error);
    } finally {
      arrive(call);
    }
  };
  const calls = Array.from({ length: CALLS }, (_, call) => upload(call));
  await all.promise;
  expect(memory.of(OWNER)).toBeLessThanOrEqual(roomBytes);
  expect(memory.of(OWNER)).toBeGreaterThan(roomBytes / 4);
  const reasons = await Promise.all(calls);
  expect(reasons).toContain("TOO_MANY_OPERATIONS");
  expect(new Set(reasons).size).toBeGreaterThan(1);
  expect(memory.of(OWNER)).toBe(0);
});

test("what downloads have read ahead of their callers is bounded together", async () => {
  const { files, runner, ahead, request } = await filesOf();
  const leave = new AbortController();
  const downloads = Array.from({ length: CALLS }, () =>
    files.download({ ...request, offset: 0 }, leave.signal),
  );
  const starts = downloads.map((download) => download.next());
  while (runner.jobs.length < CALLS) await setImmediate();
  for (const job of runner.jobs) job.write(STAT);
  await Promise.all(starts);
  // Its reader takes nothing, and the source writes until it is paused.
  const piece = "x".repeat(MIB / 4);
  for (const job of runner.jobs) while (!job.paused) job.write(piece);
  expect(ahead.of(OWNER)).toBeGreaterThan(ROOM_BYTES / 2);
  expect(ahead.of(OWNER)).toBeLessThanOrEqual(ROOM_BYTES);
  leave.abort();
  await Promise.allSettled(downloads.map((download) => download.return(undefined)));
  expect(ahead.of(OWNER)).toBe(0);
});
