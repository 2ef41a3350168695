import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test, vi } from "vitest";
import type { BerthError } from "../../../../src/base/errors.ts";
import { Reports } from "../../../../src/engine/bubblewrap/launcher.ts";
import { spec } from "../docker/support.ts";
import { useBubblewrap } from "./support.ts";

const engine = useBubblewrap();
const COUNT = 40;
const NOBODY_LISTENS = { data() {}, end() {} };

test("concurrent starts in one sandbox run one after another, in the order of the requests", async () => {
  const { ref } = await engine.create(spec());
  const started: number[] = [];
  const processes = await Promise.all(
    Array.from({ length: COUNT }, async (_, index) => {
      const spawned = await engine.spawn(ref, { argv: ["sleep", "100"], stdin: false }, NOBODY_LISTENS);
      started.push(index);
      return spawned;
    }),
  );
  expect(started).toEqual(processes.map((_, index) => index));
  await engine.remove(ref);
});

/**
 * Stops every shell that starts as soon as it can open that shell's stdout, says something there, and keeps it open.
 */
const spoil = (say: string): string => `
import os, signal
own = set(os.listdir("/proc"))
held = []
def spoil(pid):
    try:
        os.kill(int(pid), signal.SIGSTOP)
        pipe = os.open(f"/proc/{pid}/fd/1", os.O_WRONLY)
    except OSError:
        try: os.kill(int(pid), signal.SIGCONT)
        except OSError: pass
        return
    own.add(pid)
    held.append(pipe)
    print("struck", flush=True)
    ${say}
print("watches", flush=True)
while True:
    for pid in os.listdir("/proc"):
        if pid.isdigit() and pid not in own: spoil(pid)
`;

/** Creates a sandbox in which such a program runs. `struck` resolves when it has stopped a shell. */
async function spoiled(say: string) {
  const { ref } = await engine.create(spec());
  const [watches, struck] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const argv = ["python3", "-c", spoil(say)];
  const data = (_: unknown, chunk: Buffer): void => (chunk.includes("struck") ? struck : watches).resolve();
  await engine.spawn(ref, { argv, stdin: false }, { data, end() {} });
  await watches.promise;
  return { ref, struck: struck.promise };
}

/** Starts a process whose shell takes long to read its arguments. Resolves with why that failed. */
const startSlowly = (ref: string): Promise<unknown> => {
  const argv = ["true", ...Array<string>(10).fill("x".repeat(100_000))];
  const starting = engine.spawn(ref, { argv, stdin: false }, NOBODY_LISTENS);
  return starting.then(
    () => "it started",
    (error: BerthError) => error.reason,
  );
};

test.each([
  ["says something else", `os.write(pipe, b"nonsense;")`],
  ["says something without an end", `while True: os.write(pipe, b"x" * 65536)`],
])("a start fails whose shell %s, although its pipes stay open", async (_, say) => {
  const { ref } = await spoiled(say);
  let failed: unknown = "it goes on";
  void startSlowly(ref).then((why) => (failed = why));
  await expect.poll(() => failed, { timeout: 20_000 }).toMatch(/^(ENGINE_UNAVAILABLE|TOO_MANY_OPERATIONS)$/);
});

test("a pause waits for a start that does not end only until its signal is aborted", async () => {
  const { ref, struck } = await spoiled("pass");
  void startSlowly(ref);
  await struck;
  let failed: unknown;
  const pausing = engine.pause(ref, AbortSignal.timeout(300));
  pausing.catch((error: BerthError) => (failed = error.reason));
  await expect.poll(() => failed, { timeout: 20_000 }).toBe("CANCELED");
  expect(await engine.isPaused(ref)).toBe(false);
});

test("starts during which their sandbox ends leave nothing that is waited for", async () => {
  const expecting = vi.spyOn(Reports.prototype, "expect");
  onTestFinished(() => expecting.mockRestore());
  for (let i = 0; i < 20; i++) {
    const { ref } = await engine.create(spec());
    const start = () => engine.spawn(ref, { argv: ["true"], stdin: false }, NOBODY_LISTENS);
    const starts = Promise.allSettled([start(), start(), start()]);
    // Somewhere in the course of the starts.
    await sleep(i % 10);
    await engine.remove(ref);
    await starts;
  }
  const [reports] = expecting.mock.contexts as unknown as Reports[];
  await expect.poll(() => reports?.expected, { timeout: 20_000 }).toBe(0);
});
