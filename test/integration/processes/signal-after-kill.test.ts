import { constants } from "node:os";
import { beforeEach, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { containerOf, rawExec } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import type { Execution } from "../../support/execution.ts";
import { withTimeEnough } from "../../support/time-enough.ts";

/** Prints the pid of the shell around it, then waits for SIGUSR1. */
const WAITS = "trap 'exit 3' USR1; echo $PPID; while :; do sleep 0.05; done";

const service = useApp();
let sandboxId = "";

beforeEach(async () => {
  sandboxId = (await service.client.createSandbox()).sandbox_id;
  return () => service.client.deleteSandbox(sandboxId);
});

const signal = async (execution: Execution, name: NodeJS.Signals): Promise<void> => {
  const process_id = await execution.processId;
  await service.client.call("ProcessService/SignalProcess", { process_id, signal: constants.signals[name] });
};

const shellOf = async (execution: Execution): Promise<string> => {
  await execution.until("\n");
  return execution.output.stdout.toString().trim();
};

/** Sends a signal to every ready shell of Berth, except the given ones. Returns to how many. */
const toReadyShells = async (name: string, but: readonly string[] = []): Promise<number> => {
  const line = `n=0
    for d in /proc/[0-9]*; do
      p=\${d#/proc/}
      case " $* " in *" $p "*) continue; esac
      c=$(tr '\\0' ' ' <$d/cmdline) || continue
      case $c in "/bin/sh "|"/bin/sh -s -- "*|"/bin/sh -c trap : "*) kill -${name} $p && n=$((n+1)); esac
    done
    echo $n`;
  const container = await containerOf(service.instance, sandboxId);
  const { stdout } = await rawExec(container, ["sh", "-c", line, "sh", ...but]);
  return Number(stdout);
};

describe("a shell whose command was acted on", () => {
  test.each([
    ["signalled", { timeout: undefined }, async (execution: Execution) => signal(execution, "SIGUSR1")],
    [
      "stopped and continued",
      { timeout: undefined },
      async (execution: Execution) => {
        await signal(execution, "SIGSTOP");
        await signal(execution, "SIGCONT");
        await signal(execution, "SIGUSR1");
      },
    ],
    ["timed out", { timeout: 1 }, async () => {}],
  ])("runs no other command: %s", async (_how, { timeout: first }, act) => {
    const { client } = service;
    // Handles the timeout's signal, so that its shell outlives it.
    const line = WAITS.replace("USR1", "USR1 TERM");
    const run = async (timeout: number): Promise<string> => {
      const more = first === undefined ? {} : { timeout: { seconds: timeout } };
      const execution = client.exec(sandboxId, line, more);
      const shell = await shellOf(execution).catch(() => "");
      if (shell === "") return "";
      await act(execution);
      expect((await execution.result).exit.exit_code).toBe(3);
      return shell;
    };
    const shell = await withTimeEnough(first ?? 1, run, (found) => found !== "");
    expect(shell).not.toBe("");
    const shells: string[] = [];
    for (let i = 0; i < 20; i++) shells.push((await client.output(sandboxId, "echo $PPID")).trim());
    expect(shells).not.toContain(shell);
  });

  test("is not asked to signal another", async () => {
    const { client } = service;
    for (let round = 0; round < 5; round++) {
      const other = client.exec(sandboxId, WAITS);
      await shellOf(other);
      const line = WAITS.replace("USR1", "USR1 TERM");
      await client.exec(sandboxId, line, { timeout: { nanos: 200_000_000 } }).result;
      await signal(other, "SIGUSR1");
      expect((await other.result).exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 3 });
    }
  });
});

describe("shells that were kept ready and are dead or stopped", () => {
  test.each(["KILL", "STOP"])("do not keep a command from being signalled: %s", async (name) => {
    const execution = service.client.exec(sandboxId, WAITS);
    const shell = await shellOf(execution);
    await eventually(async () => (await toReadyShells(name, [shell])) > 0);
    await signal(execution, "SIGUSR1");
    expect((await execution.result).exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 3 });
  });

  test("do not turn the end of a command into the end of the sandbox", async () => {
    const { client } = service;
    const execution = client.exec(sandboxId, "echo $PPID; sleep 1; kill -9 $$");
    const shell = await shellOf(execution);
    await eventually(async () => (await toReadyShells("STOP", [shell])) > 0);
    expect((await execution.result).exit).toMatchObject({ cause: "EXIT_CAUSE_SIGNALED", signal: 9 });
    expect((await client.getSandbox(sandboxId)).state).toBe("SANDBOX_STATE_RUNNING");
  });

  test("do not fail a command that reads stdin", async () => {
    const { client } = service;
    const stdin = Buffer.from("kept\n");
    const cat = async (): Promise<string> =>
      (await client.exec(sandboxId, "cat", { stdin }).result).stdout.toString();
    for (let round = 0; round < 2; round++) {
      expect(await cat()).toBe("kept\n");
      await toReadyShells("KILL");
      expect(await cat()).toBe("kept\n");
    }
  });
});
