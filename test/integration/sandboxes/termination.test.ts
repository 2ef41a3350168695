import { afterEach, describe, expect, test } from "vitest";
import { expectNoContainers, useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { containerOf } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import type { Sandbox } from "../../support/wire.ts";

const MIB = 1024 * 1024;

const app = useApp();

afterEach(async () => {
  const { sandboxes } = await app.client.call("SandboxService/ListSandboxes");
  await Promise.all(sandboxes.map(({ sandbox_id: id }) => app.client.deleteSandbox(id)));
  await expectNoContainers(app.instance);
  expect((await app.client.call("SandboxService/GetStats")).total_sandboxes).toBe(0);
});

function ended(id: string): Promise<Sandbox> {
  return eventually(async () => {
    const sandbox = await app.client.getSandbox(id);
    return sandbox.state === "SANDBOX_STATE_TERMINATED" ? sandbox : undefined;
  });
}

describe("a container that ends without Berth", () => {
  const ways = {
    "docker kill": { cause: "TERMINATION_CAUSE_EXITED", act: (id: string) => kill(id) },
    "docker stop": { cause: "TERMINATION_CAUSE_EXITED", act: (id: string) => stop(id) },
    "docker rm -f": { cause: "TERMINATION_CAUSE_REMOVED_EXTERNALLY", act: (id: string) => remove(id) },
  };
  const kill = async (id: string) => (await containerOf(app.instance, id)).kill();
  const stop = async (id: string) => (await containerOf(app.instance, id)).stop();
  const remove = async (id: string) => (await containerOf(app.instance, id)).remove({ force: true });

  for (const [name, { cause, act }] of Object.entries(ways)) {
    test(`by ${name}: its commands report it, and the sandbox says why it ended`, async () => {
      const { client } = app;
      const { sandbox_id: id } = await client.createSandbox();
      const streaming = client.exec(id, "echo started; sleep 600");
      const collected = client.run(id, "sleep 600");
      await streaming.until("started");
      const processId = await streaming.processId;
      await eventually(async () => (await client.getSandbox(id)).active_operations === 2);
      await eventually(
        async () =>
          (await client.call("ProcessService/ListProcesses", { sandbox_id: id })).processes.length === 2,
      );

      await act(id);

      const { state, termination, active_operations: active } = await ended(id);
      expect({ state, cause: termination?.cause, active }).toEqual({
        state: "SANDBOX_STATE_TERMINATED",
        cause,
        active: 0,
      });
      const { stdout, exit } = await streaming.result;
      expect(stdout.toString()).toBe("started\n");
      expect(exit.cause).toBe("EXIT_CAUSE_SANDBOX_TERMINATED");
      expect((await collected).exit_status.cause).toBe("EXIT_CAUSE_SANDBOX_TERMINATED");
      // The process stays readable, with the same status.
      const { process } = await client.call("ProcessService/GetProcess", { process_id: processId });
      expect(process.exit_status).toEqual(exit);
      const late = await failureOf(client.run(id, "true"));
      expect(late).toMatchObject({ code: "FAILED_PRECONDITION", reason: "SANDBOX_NOT_RUNNING" });
      expect(late.message).toContain(termination?.message);
    });
  }

  test("while it is paused", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    await client.call("SandboxService/PauseSandbox", { sandbox_id: id });
    await remove(id);
    expect((await ended(id)).termination?.cause).toBe("TERMINATION_CAUSE_REMOVED_EXTERNALLY");
  });

  test("one after the other, while others work on undisturbed", async () => {
    const { client } = app;
    const { sandbox_id: neighbour } = await client.createSandbox();
    const { sandbox_id: victim } = await client.createSandbox();
    const running = client.exec(neighbour, "sleep 1; echo fine");
    await running.processId;
    await kill(victim);
    await ended(victim);
    expect((await running.result).stdout.toString()).toBe("fine\n");
  });
});

describe("out of memory", () => {
  /** Takes 300 MiB and keeps them. */
  const HOG = "x = bytearray(300 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('survived')";

  test("is reported for the command it hit, and affects nothing else", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox({ resources: { memory_bytes: 64 * MIB } });
    const running = client.exec(id, "sleep 3; echo undisturbed");
    await running.processId;
    for (let i = 0; i < 2; i++) {
      const { stdout, exit } = await client.exec(id, ["python3", "-c", HOG]).result;
      expect(exit).toMatchObject({ cause: "EXIT_CAUSE_OUT_OF_MEMORY", exit_code: 137, signal: 9 });
      expect(stdout.toString()).toBe("");
    }
    // A kill for another reason is not reported as out of memory.
    const killed = await client.exec(id, "kill -9 $$").result;
    expect(killed.exit).toMatchObject({ cause: "EXIT_CAUSE_SIGNALED", exit_code: 137, signal: 9 });
    const chosen = await client.exec(id, "exit 137").result;
    expect(chosen.exit.cause).not.toBe("EXIT_CAUSE_OUT_OF_MEMORY");
    expect((await running.result).stdout.toString()).toBe("undisturbed\n");
    expect((await client.getSandbox(id)).state).toBe("SANDBOX_STATE_RUNNING");
  });

  test("below a shell that survives is an exit code of that shell's child", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox({ resources: { memory_bytes: 64 * MIB } });
    const { stdout, exit } = await client.exec(id, `python3 -c '${HOG.replaceAll("'", '"')}'; echo code $?`)
      .result;
    expect(stdout.toString()).toBe("code 137\n");
    expect(exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 0 });
  });
});
