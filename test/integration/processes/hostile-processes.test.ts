import { spawn } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startTestApp, type TestApp, useApp } from "../../support/app.ts";
import { type Client, type Failure, failureOf } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import type { Execution } from "../../support/execution.ts";
import { withTimeEnough } from "../../support/time-enough.ts";
import { type ExitStatus, inSeconds, seconds } from "../../support/wire.ts";
import { type BashData, type PythonData, Worker } from "../../support/worker.ts";

/** How long starts of programs took, in ms, and when they ended: a measure of how busy the machine was. */
const starts: { readonly at: number; readonly ms: number }[] = [];
const done = new AbortController();
let sampling: Promise<void>;

async function sample(): Promise<void> {
  while (!done.signal.aborted) {
    const began = performance.now();
    await once(spawn("true"), "exit");
    starts.push({ at: performance.now(), ms: performance.now() - began });
    await sleep(100, undefined, { signal: done.signal }).catch(() => {});
  }
}

beforeAll(() => {
  sampling = sample();
});
afterAll(async () => {
  done.abort();
  await sampling;
});

/**
 * How many seconds a command may take beyond its timeout, whatever it does: 3, and on a busy machine more, in
 * proportion to the slowest start of a program since then.
 */
function latestEnd(since: number): number {
  return 3 + Math.max(0, ...starts.filter(({ at }) => at >= since).map(({ ms }) => ms)) / 20;
}

/** Each call is in time. Some may succeed before the sandbox is given up. */
const SLOW = { timeoutMs: 60_000 };

/**
 * Against hangs only: on a busy machine the sandbox's own 2 s may not be enough. What stays stopped would exceed this
 * too.
 */
const LONG_S = 30;
const LONG = { timeout: seconds(LONG_S) };

/** Attacks run in sandboxes with a low limit of processes. */
const FEW = { resources: { pids_limit: 64 }, command_timeout: seconds(2) };

/** Always has as many processes as the limit allows. */
const FILL_UP = `exec python3 -c '
import os, time
said = False
while True:
    try:
        if os.fork() == 0:
            time.sleep(7001)
    except OSError:
        if not said:
            print("started", flush=True)
        said = True
        time.sleep(0.001)'`;

/**
 * Repeatedly stops every process it sees except itself and process 1. A round takes less than the pause after it, so
 * that it leaves the processor to what it attacks.
 */
const STOP_ALL = `exec perl -e '
$| = 1;
print "started\\n";
while (1) {
    for (glob "/proc/[0-9]*") {
        my ($pid) = /([0-9]+)/;
        kill "STOP", $pid unless $pid == 1 || $pid == $$;
    }
    select undef, undef, undef, 0.001;
}'`;

/** The same without a pause, by the shell itself. */
const SHELL_STOPS_ALL =
  "while :; do for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = 1 ] || [ $p = $$ ] || kill -STOP $p; done; done 2>/dev/null";

const MANY_CHILDREN =
  "trap '' TERM; i=0; while [ $i -lt 50 ]; do sleep 7001 & i=$((i+1)); done; echo started; wait; wait";

function expectTimedOut(exit: ExitStatus, timeout: number): void {
  expect(exit.cause).toBe("EXIT_CAUSE_TIMED_OUT");
  const seconds = inSeconds(exit.duration);
  expect(seconds).toBeLessThan(timeout + latestEnd(performance.now() - seconds * 1000));
}

/** Fails unless a call with a timeout of 2 s ends in time. Returns its refusal. Undefined: it succeeded. */
async function refusalInTime(call: Promise<unknown>, what = ""): Promise<Failure | undefined> {
  const began = performance.now();
  const answered = await call.then(
    () => true,
    () => false,
  );
  expect(performance.now() - began, what).toBeLessThan((2 + latestEnd(began)) * 1000);
  return answered ? undefined : failureOf(call);
}

/** Treats a timeout as "not yet". */
function isLate(error: { readonly code?: number }): false {
  if (error.code !== status.DEADLINE_EXCEEDED) throw error;
  return false;
}

/** Treats "too many processes" as "not yet". */
function isFull(error: unknown): false {
  if (!/(bound|limit) of processes|pids_limit/.test(String(error))) throw error;
  return false;
}

interface Attack {
  readonly execution: Execution;
  /** Its timeout, in seconds. */
  readonly timeout: number;
  /** Why it did not start. */
  readonly failure: unknown;
}

/** A sandbox under attack, with a worker's sessions in it. */
class Attacked {
  readonly id: string;
  readonly worker: Worker;
  readonly #client: Client;

  constructor(client: Client, id: string) {
    this.#client = client;
    this.id = id;
    this.worker = new Worker(client, id);
  }

  static async open(client: Client, types: readonly string[] = []): Promise<Attacked> {
    const { sandbox_id: id } = await client.createSandbox(FEW);
    const attacked = new Attacked(client, id);
    // After a command has run, there is a shell for the next.
    await client.output(id, "true", LONG);
    for (const type of types) {
      await attacked.worker.create(type, {}, { sandbox_id: id });
      const params = type === "bash" ? { command: "true" } : { code: "1" };
      await attacked.worker.execute(`${type}:run`, { ...params, timeout: LONG_S });
    }
    return attacked;
  }

  /** Starts an attack that has written that it started before its timeout passes. */
  start(line: string, first: number): Promise<Attack> {
    const start = (timeout: number) => this.tryToStart(line, timeout);
    return withTimeEnough(first, start, ({ failure }) => failure === undefined);
  }

  /** The same with one timeout, which may pass before the attack has written that. */
  async tryToStart(line: string, timeout: number): Promise<Attack> {
    const execution = this.#client.exec(this.id, line, { timeout: seconds(timeout) });
    const failure = await execution.until("started\n").catch((error: unknown) => ({ error }));
    return { execution, timeout, failure };
  }

  /** Runs a short command. If it starts, it succeeds, or others stop it. */
  async run(line: string): Promise<void> {
    const { exit_status: exit } = await this.#client.run(this.id, line, { timeout: seconds(2) });
    if (exit.cause !== "EXIT_CAUSE_TIMED_OUT") expect(exit.exit_code).toBe(0);
  }

  write(size = 4): Promise<unknown> {
    const request = { sandbox_id: this.id, path: `/tmp/written-${size}`, data: Buffer.alloc(size, "data") };
    return this.#client.call("FileService/WriteFile", request);
  }

  bash(command: string, timeout = 2) {
    return this.worker.execute<BashData>("bash:run", { command, timeout });
  }

  python(code: string, timeout = 2) {
    return this.worker.execute<PythonData>("python:run", { code, timeout });
  }

  /** Fails unless commands and files work. */
  async works(): Promise<void> {
    expect(await this.#client.output(this.id, "echo fine", LONG)).toBe("fine\n");
    // A write has the sandbox's own timeout.
    await eventually(() => this.write().then(() => true, isLate));
    expect(await this.#client.output(this.id, "cat /tmp/written-4", LONG)).toBe("data");
  }

  close(): Promise<void> {
    return this.#client.deleteSandbox(this.id);
  }
}

describe.each(ENGINES)("on $name", ({ settings }) => {
  const service = useApp(settings);

  test.concurrent.each([
    ["that ignores SIGTERM", "trap '' TERM; echo started; while :; do sleep 0.05; done"],
    ["with many children that ignore SIGTERM", MANY_CHILDREN],
    ["that is stopped", "echo started; kill -STOP $$"],
    ["that stops every process it sees", STOP_ALL],
  ])("a command ends in time %s, and the sandbox still works", async (_, line) => {
    const sandbox = await Attacked.open(service.client);
    const { execution, timeout } = await sandbox.start(line, 2);
    expectTimedOut((await execution.result).exit, timeout);
    await sandbox.works();
    await sandbox.close();
  });

  test.concurrent("a command that is stopped takes SIGTERM at once", async () => {
    const sandbox = await Attacked.open(service.client);
    const { execution } = await sandbox.start(
      "trap 'echo ended; exit 3' TERM; echo started; kill -STOP $$",
      1,
    );
    const { exit, stdout } = await execution.result;
    // Continued only when it is killed, it would have ended by SIGKILL, and silently.
    expect(stdout.toString()).toBe("started\nended\n");
    expect(exit).toMatchObject({ cause: "EXIT_CAUSE_TIMED_OUT", exit_code: 3 });
    await sandbox.close();
  });

  test.concurrent.each([
    ["has every process that there may be", FILL_UP, /^(TOO_MANY_OPERATIONS|DEADLINE_EXCEEDED)$/],
    // Those that are stopped during their start count too.
    ["stops every process it sees", STOP_ALL, /^(TOO_MANY_OPERATIONS|DEADLINE_EXCEEDED)$/],
  ])(
    "calls end in time next to a command that %s, and their sessions still work",
    async (_, line, reason) => {
      const sandbox = await Attacked.open(service.client, ["bash", "python"]);
      const { execution, timeout } = await sandbox.start(line, 5);
      const refusals = await Promise.all([
        refusalInTime(sandbox.run("echo"), "a command"),
        refusalInTime(sandbox.write(), "a small file"),
        refusalInTime(sandbox.write(100_000), "a large file"),
        refusalInTime(sandbox.bash("sleep 60"), "a bash call"),
        refusalInTime(sandbox.python("import time; time.sleep(60)"), "a python call"),
      ]);
      // The engine is fine. Some calls may succeed, and what happens to a session's program is that program's result.
      for (const refusal of refusals)
        if (refusal !== undefined) expect(refusal.reason, refusal.message).toMatch(reason);
      expectTimedOut((await execution.result).exit, timeout);
      await sandbox.works();
      // A stopped interpreter is replaced.
      await eventually(async () => (await sandbox.bash("echo fine", LONG_S)).data?.stdout === "fine\n");
      await eventually(async () => (await sandbox.python("6 * 7", LONG_S)).data?.result === "42");
      await sandbox.close();
    },
  );

  test.concurrent("a bash call that stops every process ends in time, and the session still works", async () => {
    const sandbox = await Attacked.open(service.client, ["bash"]);
    const call = sandbox.bash(SHELL_STOPS_ALL);
    expect(await refusalInTime(call)).toBeUndefined();
    expect((await call).data.timed_out).toBe(true);
    await sandbox.works();
    expect((await sandbox.bash("echo fine", LONG_S)).data.stdout).toBe("fine\n");
    await sandbox.close();
  });

  test.concurrent("a python call that uses up every process ends in time, and the session still works", async () => {
    const sandbox = await Attacked.open(service.client, ["python"]);
    const call = sandbox.python(
      `import subprocess; subprocess.run(["sh", "-c", ${JSON.stringify(FILL_UP)}])`,
    );
    expect(await refusalInTime(call)).toBeUndefined();
    expect((await call).data.timed_out).toBe(true);
    // Killed processes count until they are gone.
    await eventually(() => sandbox.works().then(() => true, isFull));
    expect((await sandbox.python("6 * 7", LONG_S)).data.result).toBe("42");
    await sandbox.close();
  });

  test.concurrent("a command that stops every process and never ends costs the sandbox", async () => {
    const { id } = await Attacked.open(service.client);
    const daemon = `setsid sh -c 'sleep 0.5; eval "$STOP_ALL"' </dev/null >/dev/null 2>&1 &`;
    const started = await service.client.run(id, daemon, { env: { STOP_ALL } });
    expect(started.exit_status.cause).toBe("EXIT_CAUSE_EXITED");
    await sleep(700);
    await eventually(async () => {
      // A command that starts may be stopped later, and ends at its timeout.
      const refusal = await refusalInTime(service.client.run(id, "echo", { timeout: seconds(2) }));
      if (refusal !== undefined) expect(refusal.reason).toMatch(/^(DEADLINE_EXCEEDED|SANDBOX_.*)$/);
      return (await service.client.getSandbox(id)).termination !== null;
    }, SLOW);
    const { termination } = await service.client.getSandbox(id);
    expect(termination?.cause).toBe("TERMINATION_CAUSE_UNCONTROLLABLE");
  });
});

describe("on docker, as root of the sandbox", () => {
  const service = useApp({ engine: "docker" });

  test("a command whose /bin/sh sleeps ends in time", async () => {
    const line = `cp "$(readlink -f /bin/sh)" /bin/real-sh
      printf '#!/bin/real-sh\\nexec sleep 7011\\n' >/tmp/sh; chmod 755 /tmp/sh; mv -f /tmp/sh /bin/sh
      echo started; exec sleep 7012`;
    // In a sandbox where this failed, no further command starts.
    const start = async (timeout: number) => {
      const sandbox = await Attacked.open(service.client);
      return { id: sandbox.id, ...(await sandbox.tryToStart(line, timeout)) };
    };
    const { id, execution, timeout } = await withTimeEnough(3, start, ({ failure }) => failure === undefined);
    expectTimedOut((await execution.result).exit, timeout);
    const began = performance.now();
    const next = await service.client.run(id, "echo never", { timeout: seconds(8) }).then(
      ({ exit_status }) => exit_status.cause,
      (error: { details: string }) => error.details,
    );
    expect(next).toMatch(/TIMED_OUT|did not (re)?start/);
    expect(performance.now() - began).toBeLessThan((8 + latestEnd(began)) * 1000);
    await service.client.deleteSandbox(id);
  });
});

describe("on a docker daemon of another machine", () => {
  let link: net.Server;
  let service: TestApp;

  beforeAll(async () => {
    // With a daemon at a TCP port, the service assumes that it cannot see the processes.
    link = net.createServer({ allowHalfOpen: true }, (near) => {
      const far = net.connect({ path: "/var/run/docker.sock", allowHalfOpen: true });
      for (const socket of [near, far]) socket.on("error", () => {});
      near.pipe(far).pipe(near);
      near.once("close", () => far.destroy());
    });
    link.listen(0, "127.0.0.1");
    await once(link, "listening");
    const { port } = link.address() as net.AddressInfo;
    service = await startTestApp({ engine: "docker", dockerHost: `tcp://127.0.0.1:${port}` });
  });
  afterAll(async () => {
    await service.stop();
    link.close();
  });

  test("a command that nobody can end is ended with its sandbox, in time", async () => {
    // In a sandbox where this failed, nothing may work.
    const start = async (timeout: number) => {
      const sandbox = await Attacked.open(service.client);
      return { id: sandbox.id, ...(await sandbox.tryToStart(STOP_ALL, timeout)) };
    };
    const { id, execution, timeout } = await withTimeEnough(3, start, ({ failure }) => failure === undefined);
    const { exit } = await execution.result;
    expectTimedOut(exit, timeout);
    expect(exit.message).toContain("could not be ended");
    await eventually(async () => (await service.client.getSandbox(id)).termination !== null);
    const { termination } = await service.client.getSandbox(id);
    expect(termination?.cause).toBe("TERMINATION_CAUSE_UNCONTROLLABLE");
  });
});
