import { once } from "node:events";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CuttableLink } from "../../support/cuttable-link.ts";
import { eventually } from "../../support/eventually.ts";
import { endOf, ServeProcess } from "../../support/program.ts";
import { runHere } from "../../support/program-here.ts";

let service: ServeProcess;
beforeAll(async () => {
  service = await ServeProcess.start(["--engine", "bubblewrap"]);
});
afterAll(() => service?.stop());

const berth = (...args: string[]) => runHere(args, { env: { BERTH_ADDRESS: service.address } });

/** Runs a command that must succeed. Returns its stdout without the last newline. */
async function ok(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await berth(...args);
  if (code !== 0) throw new Error(`berth ${args.join(" ")} exited with ${code}: ${stderr}`);
  return stdout.trimEnd();
}

const detached = (sandbox: string, ...command: string[]) => ok("exec", "-d", sandbox, "--", ...command);

describe("inspect", () => {
  test("shows objects of every kind, each found by its id", async () => {
    const sandbox = await ok("create", "-l", "team=red");
    const process = await detached(sandbox, "sleep", "1000");
    await ok("workspace", "create", "an/area");
    const session = await ok("session", "create", "bash", "--sandbox", sandbox);
    const things = JSON.parse(await ok("inspect", sandbox, process, "an/area", session));
    expect(things).toMatchObject([
      { sandboxId: sandbox, state: "SANDBOX_STATE_RUNNING", spec: { labels: { team: "red" } } },
      { processId: process, sandboxId: sandbox, argv: { args: ["sleep", "1000"] } },
      { workspaceId: "an/area", refCount: 0 },
      { sessionId: session, resourceType: "bash", sandboxId: sandbox },
    ]);
    expect(await ok("inspect", "--format", "{{.spec.labels.team}}:{{.generation}}", sandbox)).toBe("red:1");
    expect(JSON.parse(await ok("inspect", "--format", "json", process))).toEqual(things[1]);
    expect(await ok("inspect", "--type", "workspace", "--format", "{{.workspaceId}}", "an/area")).toBe(
      "an/area",
    );
    await ok("rm", "--grace", "0s", sandbox);
    expect(await ok("inspect", "--format", "{{.state}} {{.termination.cause}}", sandbox)).toBe(
      "SANDBOX_STATE_TERMINATED TERMINATION_CAUSE_DELETED",
    );
  });

  test("reports what is missing, and shows the rest", async () => {
    await ok("workspace", "create", "there");
    const { code, stdout, stderr } = await berth("inspect", "nowhere", "there");
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject([{ workspaceId: "there" }]);
    expect(stderr).toBe("berth: there is nothing with the id nowhere\n");
    expect(await berth("inspect", "--type", "run", "there")).toEqual({
      code: 1,
      stdout: "[]\n",
      stderr: "berth: there is no run with the id there\n",
    });
  });
});

describe("pause, resume and update", () => {
  test("the processes of a paused sandbox stop until it is resumed", async () => {
    const sandbox = await ok("create");
    expect(await ok("pause", sandbox)).toBe(sandbox);
    expect(await ok("ls", "--state", "paused", "-q")).toBe(sandbox);
    expect(JSON.parse(await ok("resume", "--json", sandbox))).toMatchObject({
      sandbox: { sandboxId: sandbox, state: "SANDBOX_STATE_RUNNING" },
    });
    expect(await ok("exec", sandbox, "--", "echo", "goes on")).toBe("goes on");
    await ok("rm", "--grace", "0s", sandbox);
  });

  test("labels are set and removed one by one, and durations reset to the service's defaults", async () => {
    const sandbox = await ok("create", "-l", "a=1", "-l", "b=2", "--idle-timeout", "5m");
    const shown = () => ok("inspect", "--format", "{{json .spec.labels}} {{.spec.idleTimeout}}", sandbox);
    expect(await ok("update", "-l", "b=3", "-l", "c=4", "--remove-label", "a", sandbox)).toBe(sandbox);
    expect(await shown()).toBe('{"b":"3","c":"4"} 300s');
    await ok("update", "--idle-timeout", "default", "--max-lifetime", "2h", sandbox);
    expect(await shown()).toBe('{"b":"3","c":"4"} 3600s');
    expect(await ok("inspect", "--format", "{{.spec.maxLifetime}}", sandbox)).toBe("7200s");
    await ok("rm", "--grace", "0s", sandbox);
  });

  test.each(["pause", "resume"])("%s reports each failure", async (verb) => {
    const sandbox = await ok("create");
    const { code, stdout, stderr } = await berth(verb, "unknown", sandbox);
    expect([code, stdout]).toEqual([1, `${sandbox}\n`]);
    expect(stderr).toMatch(/^berth: .*unknown.*\nTo list them: berth ls --all\n$/);
    const lines = (await berth(verb, "--json", "unknown")).stdout;
    expect(JSON.parse(lines)).toEqual({ sandboxId: "unknown", error: expect.stringContaining("unknown") });
    await ok("rm", "--grace", "0s", sandbox);
  });
});

describe("kill", () => {
  test("sends the named signal to one process, or to all of a sandbox", async () => {
    const sandbox = await ok("create");
    const trap = await detached(
      sandbox,
      "sh",
      "-c",
      "trap 'exit 7' USR1; echo ready; while :; do sleep 0.05; done",
    );
    await eventually(async () => (await berth("logs", trap)).stdout === "ready\n");
    expect(await ok("kill", "-s", "USR1", trap)).toBe(trap);
    expect(await berth("wait", trap)).toEqual({ code: 7, stdout: "7\n", stderr: "" });

    const others = [await detached(sandbox, "sleep", "1000"), await detached(sandbox, "sleep", "1000")];
    const killed = JSON.parse(await ok("kill", "--json", sandbox));
    expect(killed).toEqual({ sandboxId: sandbox, signaled: expect.arrayContaining(others) });
    expect(killed.signaled).not.toContain(trap);
    expect(await berth("wait", ...others)).toMatchObject({ code: 137, stdout: "137\n137\n" });
    // It is still live, with nothing left to kill.
    expect(await ok("kill", sandbox)).toBe(sandbox);
    expect(await berth("kill", trap)).toMatchObject({ code: 1, stderr: expect.stringContaining("berth: ") });
    await ok("rm", "--grace", "0s", sandbox);
  });
});

describe("wait", () => {
  test("returns when a process ends, with its exit code", async () => {
    const sandbox = await ok("create");
    const process = await detached(sandbox, "sh", "-c", "until [ -e done ]; do sleep 0.05; done; exit 3");
    const waiting = service.begin(["wait", process]);
    const late = await berth("wait", "--timeout", "200ms", process);
    expect(late).toEqual({ code: 124, stdout: "", stderr: `berth: ${process} has not ended within 200ms\n` });
    expect(waiting.exitCode).toBeNull();
    await ok("exec", sandbox, "--", "touch", "done");
    expect(await endOf(waiting)).toMatchObject({ exitCode: 3, stderr: "" });
    const fine = await detached(sandbox, "true");
    expect(await berth("wait", fine, process)).toEqual({ code: 3, stdout: "0\n3\n", stderr: "" });
    expect(JSON.parse((await berth("wait", "--json", process)).stdout)).toMatchObject({
      processId: process,
      exitStatus: { cause: "EXIT_CAUSE_EXITED", exitCode: 3 },
    });
    await ok("rm", "--grace", "0s", sandbox);
  });

  test("returns when a sandbox has ended, and says why", async () => {
    const sandbox = await ok("create", "--id", "awaited");
    const process = await detached(sandbox, "sleep", "1000");
    const waiting = service.begin(["wait", sandbox, process]);
    const end = endOf(waiting);
    await ok("rm", "--grace", "0s", sandbox);
    const { exitCode, stdout, stderr } = await end;
    expect([exitCode, stdout.toString()]).toEqual([125, "deleted\n125\n"]);
    expect(stderr).toContain("berth: the sandbox ended while the command ran.");
    expect(await ok("wait", sandbox)).toBe("deleted");
  });

  test("waits for the sandbox that has the id now, not for an earlier one", async () => {
    const sandbox = await ok("create", "--id", "again");
    await ok("rm", "--grace", "0s", sandbox);
    await ok("create", "--id", "again");
    // The end of the first sandbox is in the event history, but is not the one to wait for.
    expect(await berth("wait", "--timeout", "500ms", sandbox)).toMatchObject({ code: 124, stdout: "" });
    await ok("rm", "--grace", "0s", sandbox);
  });

  test("continues over a new connection if one breaks", async () => {
    const sandbox = await ok("create");
    const process = await detached(sandbox, "sleep", "1000");
    const link = await CuttableLink.to(service.address);
    try {
      const waiting = service.begin(["wait", sandbox, process], { env: { BERTH_ADDRESS: link.address } });
      const end = endOf(waiting);
      await eventually(async () => {
        const metrics = await (await fetch(`http://${service.address}/metrics`)).text();
        return (
          /^berth_rpc_in_flight\{.*WatchEvents.*\} 1$/m.test(metrics) &&
          /^berth_rpc_in_flight\{.*AttachProcess.*\} 1$/m.test(metrics)
        );
      });
      link.cut();
      await ok("rm", "--grace", "0s", sandbox);
      await link.restore();
      const { exitCode, stdout, stderr } = await end;
      expect([exitCode, stdout.toString()]).toEqual([125, "deleted\n125\n"]);
      expect(stderr).toContain("reconnecting (1 of 6)");
    } finally {
      link.cut();
    }
  });

  test("reports the end of its sandbox if another one has the id once the connection is back", async () => {
    const sandbox = await ok("create", "--id", "replaced");
    const link = await CuttableLink.to(service.address);
    try {
      const env = { BERTH_ADDRESS: link.address };
      const waiting = service.begin(["wait", "--timeout", "20s", sandbox], { env });
      const end = endOf(waiting);
      await eventually(async () => {
        const metrics = await (await fetch(`http://${service.address}/metrics`)).text();
        return /^berth_rpc_in_flight\{.*WatchEvents.*\} 1$/m.test(metrics);
      });
      link.cut();
      await ok("rm", "--grace", "0s", sandbox);
      await ok("create", "--id", sandbox);
      await link.restore();
      const { exitCode, stdout } = await end;
      expect({ exitCode, stdout: stdout.toString() }).toEqual({ exitCode: 0, stdout: "deleted\n" });
    } finally {
      link.cut();
      await ok("rm", "--grace", "0s", sandbox);
    }
  });

  test("Ctrl-C ends only the waiting", async () => {
    const sandbox = await ok("create");
    const process = await detached(sandbox, "sleep", "1000");
    const ended = await detached(sandbox, "true");
    const waiting = service.begin(["wait", ended, process, sandbox]);
    const end = endOf(waiting);
    await once(waiting.stdout, "data");
    waiting.kill("SIGINT");
    expect(await end).toMatchObject({ exitCode: 130, stdout: Buffer.from("0\n") });
    expect(await ok("ps", "-q", sandbox)).toBe(process);
    await ok("rm", "--grace", "0s", sandbox);
  });

  test("what is missing is reported, and the rest is waited for", async () => {
    const sandbox = await ok("create");
    const process = await detached(sandbox, "true");
    const { code, stdout, stderr } = await berth("wait", "unknown", process);
    expect([code, stdout]).toEqual([125, "0\n"]);
    expect(stderr).toContain("To list them: berth ls --all\n");
    await ok("rm", "--grace", "0s", sandbox);
  });
});
