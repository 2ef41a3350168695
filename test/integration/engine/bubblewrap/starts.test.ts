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

test("the program around a terminal ends with its process, even if it is stopped", async () => {
  const { ref } = await engine.create(spec());
  const outside = await engine.outside(ref);
  const { pids } = await engine.usage(ref);
  let said = "";
  const argv = ["sh", "-c", "echo $$; exec sleep 600"];
  const sink = { data: (_: unknown, chunk: Buffer) => (said += chunk), end() {} };
  const terminal = { columns: 80, rows: 24 };
  const spawned = await engine.spawn(ref, { argv, stdin: true, terminal }, sink);
  await expect.poll(() => said).toContain("\n");
  const leader = { pid: Number.parseInt(said, 10), startTime: "" };
  expect(await outside?.signalGroup(leader, 19)).toBe(true);
  await outside?.killTree(leader);
  expect((await engine.usage(ref)).pids).toBeGreaterThan(pids);
  spawned.close();
  await expect.poll(async () => (await engine.usage(ref)).pids, { timeout: 10_000 }).toBe(pids);
});

/**
 * Stops every shell that starts as soon as it can open that shell's stdout, says something there, and keeps it open.
 */
const spoil = (say: string): string => `
import os, select, signal, stat, time
own = set(os.listdir("/proc"))
held = []
def spoil(pid):
    try:
        os.kill(int(pid), signal.SIGSTOP)
        pipe = os.open(f"/proc/{pid}/fd/1", os.O_WRONLY)
        if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
            os.close(pipe)
            raise OSError("it does not have its stdout yet")
    except OSError:
        try: os.kill(int(pid), signal.SIGCONT)
        except OSError: pass
        return
    own.add(pid)
    held.append(pipe)
    # Until somebody reads, a write would fail.
    state = select.poll()
    state.register(pipe, select.POLLOUT)
    while state.poll()[0][1] & select.POLLERR: time.sleep(0.001)
    ${say}
print("watches", flush=True)
while True:
    for pid in os.listdir("/proc"):
        if pid.isdigit() and pid not in own: spoil(pid)
`;

/** Creates a sandbox in which such a program runs. */
async function spoiled(say: string): Promise<string> {
  const { ref } = await engine.create(spec());
  const watches = Promise.withResolvers<void>();
  const argv = ["python3", "-c", spoil(say)];
  await engine.spawn(ref, { argv, stdin: false }, { data: () => watches.resolve(), end() {} });
  await watches.promise;
  return ref;
}

/** How often to start: a shell may be faster than the program that stops it. */
const ATTEMPTS = 200;

/** Starts a process whose shell takes long to read its arguments. Resolves with why that failed. */
const startSlowly = (ref: string): Promise<string> => {
  const argv = ["true", ...Array<string>(10).fill("x".repeat(100_000))];
  const starting = engine.spawn(ref, { argv, stdin: false }, NOBODY_LISTENS);
  return starting.then(
    () => "it started",
    (error: BerthError) => error.reason,
  );
};

/** What `work` resolves with, unless it takes longer. */
const within = (work: Promise<string>, ms: number): Promise<string> =>
  Promise.race([work, sleep(ms, "it goes on", { ref: false })]);

test.each([
  ["says something else", `os.write(pipe, b"nonsense;")`],
  ["says something without an end", `while True: os.write(pipe, b"x" * 65536)`],
])("a start fails whose shell %s, although its pipes stay open", async (_, say) => {
  const ref = await spoiled(say);
  let end = "it started";
  for (let i = 0; i < ATTEMPTS && end === "it started"; i++) end = await within(startSlowly(ref), 20_000);
  expect(end).toMatch(/^(ENGINE_UNAVAILABLE|TOO_MANY_OPERATIONS)$/);
});

test("a pause waits for a start that does not end only until its signal is aborted", async () => {
  const ref = await spoiled("pass");
  let end = "it paused";
  for (let i = 0; i < ATTEMPTS && end === "it paused"; i++) {
    if ((await within(startSlowly(ref), 500)) !== "it goes on") continue;
    const pausing = engine.pause(ref, AbortSignal.timeout(300)).then(
      () => "it paused",
      (error: BerthError) => error.reason,
    );
    end = await within(pausing, 20_000);
    if (end === "it paused") await engine.resume(ref);
  }
  expect(end).toBe("CANCELED");
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
