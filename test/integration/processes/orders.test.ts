import { setTimeout as sleep } from "node:timers/promises";
import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { ENGINES } from "../../support/engines.ts";
import { seededRandom } from "../../support/random.ts";
import { scaled } from "../../support/scale.ts";

const CASES = scaled(400, 40);
const SEED = 20_261_128;
const SANDBOXES = 3;
const AT_ONCE = 2;
const BLOB_BYTES = 2 * 1024 * 1024;
const BLOB = Buffer.alloc(BLOB_BYTES);
for (let at = 0; at < BLOB_BYTES; at += 8) BLOB.write(`${String(at).padStart(7)}\n`, at);
/** The exit code of a command that handles SIGTERM. */
const HANDLED = 77;
const SIGNALS = [1, 9, 10, 15];
/** Far more than anything takes, apart from the timeout and pauses. */
const LATE_MS = 60_000;

interface Plan {
  readonly terminal: boolean;
  readonly onTerm: "default" | "handle" | "ignore";
  readonly before: number;
  readonly after: number;
  readonly middle: "nothing" | "sleep" | "cat" | "die" | "forever";
  readonly sleepMs: number;
  readonly code: number;
  readonly timeoutMs: number;
  readonly stdin: "none" | "given" | "written" | "left open";
  readonly stdinBytes: number;
  readonly onDisconnect: "KILL" | "DETACH" | "GRACE";
  readonly acts: readonly {
    readonly what: string;
    readonly atMs: number;
    readonly forMs: number;
    readonly signal: number;
  }[];
}

function planOf(random: () => number): Plan {
  const terminal = random() < 0.2;
  const pick = <T>(...items: readonly T[]): T => items[Math.floor(random() * items.length)] as T;
  const between = (least: number, most: number) => Math.floor(least + random() * (most - least));
  return {
    terminal,
    onTerm: pick("default", "default", "handle", "ignore"),
    before: pick(0, 100, 20_000, 300_000, 1_000_000),
    after: pick(0, 50, 70_000, 500_000),
    middle: pick("nothing", "sleep", "sleep", terminal ? "sleep" : "cat", "die", "forever"),
    sleepMs: between(0, 900),
    code: between(0, 120),
    timeoutMs: pick(600_000, between(50, 1_500), between(50, 1_500)),
    stdin: terminal ? "none" : pick("none", "given", "written", "left open"),
    stdinBytes: pick(1, 5_000, 400_000),
    onDisconnect: pick("KILL", "DETACH", "GRACE"),
    acts: Array.from({ length: between(0, 4) }, () => ({
      what: pick("signal", "pause sandbox", "pause reader", "pause reader", "leave"),
      atMs: between(0, 1_500),
      forMs: between(0, 1_500),
      signal: pick(...SIGNALS),
    })).sort((one, other) => one.atMs - other.atMs),
  };
}

function lineOf(plan: Plan): string {
  const { onTerm, before, after, middle, sleepMs, code } = plan;
  return [
    onTerm === "handle" && `trap 'exit ${HANDLED}' TERM`,
    onTerm === "ignore" && "trap '' TERM",
    `head -c ${before} /tmp/blob`,
    { nothing: "", sleep: `sleep ${sleepMs / 1000}`, cat: "cat", die: "kill -9 $$", forever: "sleep 500" }[
      middle
    ],
    `tail -c +${before + 1} /tmp/blob | head -c ${after}`,
    "echo error >&2",
    `exit ${code}`,
  ]
    .filter(Boolean)
    .join("\n");
}

describe.each(ENGINES)("on $name", ({ settings }) => {
  // Small, so that commands wait for a reader that pauses.
  const app = useApp({ ...settings, transcriptWindowBytes: 256 * 1024 });
  const sandboxes: string[] = [];

  beforeAll(async () => {
    for (let index = 0; index < SANDBOXES; index++) {
      const { sandbox_id: id } = await app.client.createSandbox();
      await app.client.exec(id, "cat >/tmp/blob", { stdin: BLOB }).result;
      sandboxes.push(id);
    }
  });

  /**
   * Runs a plan; returns what is wrong with how it ended.
   * @param isPaused whether commands may pause this sandbox. A frozen process ends too late to tell its exit code.
   */
  async function run(plan: Plan, id: string, isPaused: boolean): Promise<string[]> {
    const { client } = app;
    const duration = (ms: number) => ({ seconds: Math.floor(ms / 1000), nanos: (ms % 1000) * 1e6 });
    const input = BLOB.subarray(0, plan.stdinBytes);
    const start = () =>
      client.exec(id, lineOf(plan), {
        timeout: duration(plan.timeoutMs),
        ...(plan.terminal && { terminal: { columns: 80, rows: 24 } }),
        ...(plan.stdin === "given" && { stdin: input }),
        ...((plan.stdin === "written" || plan.stdin === "left open") && { keep_stdin_open: true }),
        ...(plan.onDisconnect === "DETACH" && { on_disconnect: "ON_DISCONNECT_DETACH" }),
        ...(plan.onDisconnect === "GRACE" && { disconnect_grace: duration(60_000) }),
      });
    let begin = performance.now();
    let execution = start();
    const startsPaused = () =>
      execution.processId.then(
        () => false,
        (error: Error) => /paused/.test(error.message),
      );
    // Another command of this sandbox has paused it.
    for (let tries = 0; tries < 1_000 && (await startsPaused()); tries++) {
      await sleep(20);
      begin = performance.now();
      execution = start();
    }
    const processId = await execution.processId.catch(() => undefined);
    const sent = new Set<number>();
    let left = false;
    let heldMs = 0;
    const parts = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
    const writing = (async () => {
      if (processId === undefined || (plan.stdin !== "written" && plan.stdin !== "left open")) return;
      const request = { process_id: processId, offset: 0, data: input, close: plan.stdin === "written" };
      await client.call("ProcessService/WriteStdin", request).catch(() => {});
    })();
    if (processId !== undefined) {
      for (const act of plan.acts) {
        if (act.what === "pause sandbox" && !isPaused) continue;
        await sleep(Math.max(0, act.atMs - (performance.now() - begin)));
        if (act.what === "signal") {
          const request = { process_id: processId, signal: act.signal };
          await client.call("ProcessService/SignalProcess", request).then(
            () => sent.add(act.signal),
            () => {},
          );
        } else if (act.what === "pause sandbox") {
          const paused = await client.call("SandboxService/PauseSandbox", { sandbox_id: id }).then(
            () => true,
            () => false,
          );
          await sleep(act.forMs);
          if (paused) await client.call("SandboxService/ResumeSandbox", { sandbox_id: id });
        } else if (act.what === "pause reader") {
          execution.call.pause();
          await sleep(act.forMs);
          execution.call.resume();
        } else if (!left) {
          left = true;
          execution.cancel();
          await execution.result.catch(() => {});
          for (const stream of ["stdout", "stderr"] as const) parts[stream].push(execution.output[stream]);
          await sleep(act.forMs / 10);
          const from = { stdout: execution.offset("stdout"), stderr: execution.offset("stderr") };
          execution = client.attach(processId, from);
        }
        heldMs += act.forMs;
      }
    }
    // What would wait forever must be ended.
    const isEndless =
      plan.timeoutMs > 100_000 &&
      (plan.middle === "forever" || (plan.middle === "cat" && plan.stdin === "left open"));
    if (isEndless && processId !== undefined) {
      await client.call("ProcessService/SignalProcess", { process_id: processId, signal: 9 }).catch(() => {});
      sent.add(9);
    }
    const result = await execution.result.catch((error: unknown) => error as Error);
    if (result instanceof Error) return [`failed: ${result.message}`];
    await writing;
    const { exit, gaps } = result;
    const stdout = Buffer.concat([...parts.stdout, result.stdout]);
    const stderr = Buffer.concat([...parts.stderr, result.stderr]);
    const plain = Buffer.concat([
      BLOB.subarray(0, plan.before),
      ...(plan.middle === "cat" && plan.stdin !== "none" ? [input] : []),
      BLOB.subarray(plan.before, plan.before + plan.after),
    ]);
    const [wanted, wantedError] = plan.terminal
      ? [Buffer.from(`${plain}error\n`.replaceAll("\n", "\r\n")), ""]
      : [plain, "error\n"];
    const cause = exit.cause.replace("EXIT_CAUSE_", "");
    const wrong: string[] = [];
    const tookMs = exit.duration.seconds * 1000 + exit.duration.nanos / 1e6;
    const isWhole = gaps.length === 0;
    // The process does not wait for a reader that attaches.
    if (!isWhole && !left) wrong.push("a gap");
    if (isWhole && Number(exit.stdout_bytes) !== stdout.length)
      wrong.push(`${stdout.length} of ${exit.stdout_bytes} bytes`);
    if (isWhole && Number(exit.stderr_bytes) !== stderr.length)
      wrong.push(`${stderr.length} of ${exit.stderr_bytes} error bytes`);
    // A child that a signal ended leaves a hole. At a terminal, a shell says that it was ended.
    const isOwn = !plan.terminal || cause === "EXITED";
    if (isWhole && isOwn && sent.size === 0 && !stdout.equals(wanted.subarray(0, stdout.length)))
      wrong.push("other output");
    const isSelfKilled = plan.middle === "die";
    if (cause === "EXITED") {
      const handled =
        plan.onTerm === "handle" && (exit.exit_code === HANDLED || exit.exit_code === plan.code);
      if (exit.exit_code !== plan.code && !(handled && sent.has(15))) wrong.push("another code");
      if (exit.exit_code === plan.code && isWhole && sent.size === 0 && stdout.length !== wanted.length)
        wrong.push(`${stdout.length} bytes where ${wanted.length} were due`);
      if (exit.exit_code === plan.code && sent.size === 0 && stderr.toString() !== wantedError)
        wrong.push("no error output");
    } else if (cause === "SIGNALED") {
      if (!sent.has(exit.signal) && !(isSelfKilled && exit.signal === 9))
        wrong.push("a signal that nobody sent");
    } else if (cause === "TIMED_OUT") {
      if (tookMs < plan.timeoutMs - 2) wrong.push("too early");
      if (exit.exit_code === -1 && !isPaused) wrong.push("an unknown code");
    } else if (cause === "CANCELED") {
      if (!left || plan.onDisconnect !== "KILL") wrong.push("nobody left");
      if (exit.exit_code === -1 && !isPaused) wrong.push("an unknown code");
    } else wrong.push("another cause");
    if (tookMs > Math.min(plan.timeoutMs, 10_000) + heldMs * AT_ONCE + LATE_MS) wrong.push("late");
    if (wrong.length === 0) return [];
    return [
      `${wrong.join(", ")}: ${JSON.stringify(exit)} of ${JSON.stringify(plan)}; sent ${[...sent]}; ${heldMs} ms held`,
    ];
  }

  test(`random commands end as they should, however they are disturbed (seed ${SEED})`, {
    timeout: 600_000,
  }, async () => {
    const random = seededRandom(SEED);
    const plans = Array.from({ length: CASES }, () => planOf(random));
    const wrong: string[] = [];
    let next = 0;
    const worker = async (index: number): Promise<void> => {
      for (let at = next++; at < plans.length; at = next++) {
        const place = index % SANDBOXES;
        const id = sandboxes[place] ?? "";
        for (const what of await run(plans[at] as Plan, id, place > 0)) wrong.push(`${at}: ${what}`);
      }
    };
    await Promise.all(Array.from({ length: SANDBOXES * AT_ONCE }, (_, index) => worker(index)));
    expect(wrong).toEqual([]);
  });
});
