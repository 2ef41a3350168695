import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { type Client, failureOf } from "../../support/client.ts";
import { containerOf, pauseContainer, rawExec } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { inSeconds, seconds } from "../../support/wire.ts";

const app = useApp({ maxSandboxes: 20, cleanupIntervalMs: 200_000, defaults: { idleTimeoutMs: 1_800_000 } });

afterEach(async () => {
  const { sandboxes } = await app.client.call("SandboxService/ListSandboxes", { page_size: 1000 });
  await Promise.all(sandboxes.map(({ sandbox_id: id }) => app.client.deleteSandbox(id)));
});

const pause = (client: Client, id: string) => client.call("SandboxService/PauseSandbox", { sandbox_id: id });
const resume = (client: Client, id: string) =>
  client.call("SandboxService/ResumeSandbox", { sandbox_id: id });

/**
 * Returns when Docker knows the state of a container that is not paused. It learns of its own pauses a second time, late,
 * and then takes them for the latest state. But it learns in order, also how this command ends.
 */
async function settled(container: Awaited<ReturnType<typeof containerOf>>): Promise<void> {
  await eventually(async () => {
    const ran = await rawExec(container, ["true"]).catch(() => undefined);
    return ran?.exitCode === 0;
  });
}

describe("pause and resume", () => {
  test("freeze every process and let it continue, any number of times", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    const ticking = client.exec(id, "while :; do echo tick; sleep 0.02; done");
    await ticking.until("tick\ntick");

    for (let i = 0; i < 2; i++) {
      expect((await pause(client, id)).sandbox.state).toBe("SANDBOX_STATE_PAUSED");
    }
    expect((await client.getSandbox(id)).state).toBe("SANDBOX_STATE_PAUSED");
    expect((await (await containerOf(app.instance, id)).inspect()).State.Paused).toBe(true);
    // What it wrote before may still be on its way.
    const frozenAt = await eventually(async () => {
      const at = ticking.offset("stdout");
      await sleep(300);
      return ticking.offset("stdout") === at && at;
    });

    for (const refused of [client.run(id, "true"), client.exec(id, "true").result]) {
      const failure = await failureOf(refused);
      expect(failure).toMatchObject({ code: "FAILED_PRECONDITION", reason: "SANDBOX_NOT_RUNNING" });
      expect(failure.message).toMatch(/paused.*resume/i);
    }

    for (let i = 0; i < 2; i++) {
      expect((await resume(client, id)).sandbox.state).toBe("SANDBOX_STATE_RUNNING");
    }
    await eventually(() => ticking.offset("stdout") > frozenAt);
    expect(await client.output(id, "echo fine")).toBe("fine\n");
    ticking.cancel();
  });

  test("at the same time and in any order leave a sandbox that works", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    for (let round = 0; round < 5; round++) {
      await Promise.allSettled([
        pause(client, id),
        client.run(id, "true"),
        resume(client, id),
        client.run(id, "true"),
        pause(client, id),
        client.run(id, "true"),
      ]);
      await resume(client, id);
      expect(await client.output(id, "echo fine")).toBe("fine\n");
    }
  });

  test("after a pause or resume by Docker itself the next call of Berth restores Berth's state", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    const container = await containerOf(app.instance, id);
    await pauseContainer(container);
    expect((await resume(client, id)).sandbox.state).toBe("SANDBOX_STATE_RUNNING");
    await settled(container);
    expect((await container.inspect()).State.Paused).toBe(false);
    expect(await client.output(id, "echo fine")).toBe("fine\n");

    await pause(client, id);
    await container.unpause();
    await settled(container);
    expect((await pause(client, id)).sandbox.state).toBe("SANDBOX_STATE_PAUSED");
    expect((await container.inspect()).State.Paused).toBe(true);
    await resume(client, id);
    expect(await client.output(id, "echo fine")).toBe("fine\n");
  });

  test("a sandbox that Docker itself pauses is PAUSED, and refuses calls until Docker resumes it", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    const waiting = client.exec(id, "echo up; sleep 2; echo done");
    await waiting.until("up\n");
    const container = await containerOf(app.instance, id);
    const stateOf = async () => (await client.getSandbox(id)).state;
    await pauseContainer(container);
    await expect.poll(stateOf).toBe("SANDBOX_STATE_PAUSED");
    expect(await failureOf(client.run(id, "true"))).toMatchObject({
      code: "FAILED_PRECONDITION",
      reason: "SANDBOX_NOT_RUNNING",
      message: expect.stringMatching(/paused.*resume/i),
    });
    await container.unpause();
    await settled(container);
    await expect.poll(stateOf).toBe("SANDBOX_STATE_RUNNING");
    // Berth may still have to hear that Docker learned of its own pause once more, and of the end of it.
    await expect.poll(() => client.output(id, "echo fine").catch(String)).toBe("fine\n");
    expect((await waiting.result).stdout.toString()).toContain("done");
  });

  test("pauses by Docker at the same time as those of Berth leave the sandbox in Docker's state", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    const container = await containerOf(app.instance, id);
    for (let round = 0; round < 5; round++) {
      await Promise.allSettled([
        pause(client, id),
        container.pause(),
        resume(client, id),
        container.unpause(),
      ]);
      await expect
        .poll(async () => {
          const isPaused = (await container.inspect()).State.Paused;
          return (await client.getSandbox(id)).state === `SANDBOX_STATE_${isPaused ? "PAUSED" : "RUNNING"}`;
        })
        .toBe(true);
    }
    await resume(client, id);
    await settled(container);
    await expect.poll(() => client.output(id, "echo fine").catch(String)).toBe("fine\n");
  });

  test("a paused sandbox is deleted at once", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    const running = client.exec(id, "sleep 600");
    await running.processId;
    await pause(client, id);
    await client.call("SandboxService/DeleteSandbox", { sandbox_id: id, grace: seconds(0) });
    expect((await running.result).exit.cause).toBe("EXIT_CAUSE_SANDBOX_TERMINATED");
    for (const late of [pause(client, id), resume(client, id)]) {
      expect(await failureOf(late)).toMatchObject({
        code: "FAILED_PRECONDITION",
        reason: "SANDBOX_NOT_RUNNING",
      });
    }
  });

  test("output that a paused command writes after its resume arrives whole", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    const line = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done";
    const counting = client.exec(id, line);
    await counting.until("line 5\n");
    await pause(client, id);
    await sleep(200);
    await resume(client, id);
    const { stdout, exit } = await counting.result;
    expect(exit.exit_code).toBe(0);
    expect(stdout.toString()).toBe(Array.from({ length: 20_000 }, (_, i) => `line ${i}\n`).join(""));
  });
});

describe("updates", () => {
  test("change the fields in the mask and nothing else", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox({
      labels: { a: "1", b: "2" },
      max_lifetime: seconds(900),
    });
    const update = async (paths: string[], change: Readonly<Record<string, unknown>>) => {
      const request = { sandbox_id: id, update_mask: { paths }, ...change };
      return (await client.call("SandboxService/UpdateSandbox", request)).sandbox.spec;
    };
    // In the request but not in the mask: unchanged.
    expect(await update(["labels"], { labels: { c: "3" }, idle_timeout: seconds(5) })).toMatchObject({
      labels: { c: "3" },
      idle_timeout: seconds(1800),
      max_lifetime: seconds(900),
    });
    expect(
      await update(["idle_timeout", "max_lifetime"], {
        idle_timeout: seconds(700),
        max_lifetime: seconds(800),
      }),
    ).toMatchObject({
      labels: { c: "3" },
      idle_timeout: seconds(700),
      max_lifetime: seconds(800),
    });
    // In the mask but unset: the default.
    expect(await update(["labels", "idle_timeout", "max_lifetime"], {})).toMatchObject({
      labels: {},
      idle_timeout: seconds(1800),
      max_lifetime: null,
    });
    expect((await client.getSandbox(id)).spec.labels).toEqual({});
  });

  test("of a deleted sandbox are refused", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    await client.deleteSandbox(id);
    const request = { sandbox_id: id, update_mask: { paths: ["labels"] } };
    expect(await failureOf(client.call("SandboxService/UpdateSandbox", request))).toMatchObject({
      code: "FAILED_PRECONDITION",
      reason: "SANDBOX_NOT_RUNNING",
    });
    expect(await failureOf(client.call("SandboxService/KeepAliveSandbox", { sandbox_id: id }))).toMatchObject(
      {
        code: "FAILED_PRECONDITION",
        reason: "SANDBOX_NOT_RUNNING",
      },
    );
  });
});

describe("lists", () => {
  const list = async (request: Readonly<Record<string, unknown>> = {}) => {
    const { sandboxes } = await app.client.call("SandboxService/ListSandboxes", request);
    return sandboxes.map(({ sandbox_id: id }) => id);
  };

  test("show the newest first, by labels, by state, page by page", async () => {
    const { client } = app;
    const ids: string[] = [];
    for (const labels of [{ team: "red" }, { team: "red", tier: "x" }, { team: "blue" }, {}, { tier: "x" }]) {
      ids.push((await client.createSandbox({ labels })).sandbox_id);
    }
    const [a, b, c, d, e] = ids as [string, string, string, string, string];
    expect(await list()).toEqual([e, d, c, b, a]);
    expect(await list({ page_size: 100_000 })).toEqual([e, d, c, b, a]);
    expect(await list({ label_selector: { team: "red" } })).toEqual([b, a]);
    expect(await list({ label_selector: { team: "red", tier: "x" } })).toEqual([b]);
    expect(await list({ label_selector: { team: "green" } })).toEqual([]);
    // A selector matches the whole value.
    expect(await list({ label_selector: { team: "re" } })).toEqual([]);

    await pause(client, c);
    await client.deleteSandbox(d);
    expect(await list()).toEqual([e, c, b, a]);
    expect(await list({ states: ["SANDBOX_STATE_PAUSED"] })).toEqual([c]);
    expect(await list({ states: ["SANDBOX_STATE_PAUSED", "SANDBOX_STATE_TERMINATED"] })).toContain(d);
    const withEnded = await list({ show_terminated: true });
    expect(withEnded.slice(0, 5)).toEqual([e, d, c, b, a]);

    const pages: string[][] = [];
    let token = "";
    do {
      const page = await client.call("SandboxService/ListSandboxes", { page_size: 3, page_token: token });
      pages.push(page.sandboxes.map(({ sandbox_id: id }) => id));
      token = page.next_page_token;
      // A sandbox created meanwhile is newer than every page, and affects none.
      if (pages.length === 1) await client.createSandbox();
    } while (token !== "");
    expect(pages).toEqual([[e, c, b], [a]]);
  });

  test("of processes show the newest first, ended ones on request", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    const first = (await client.run(id, "exit 3")).process_id;
    const second = (await client.run(id, ["true"])).process_id;
    const running = client.exec(id, "sleep 600");
    const third = await running.processId;
    const processes = async (more: Readonly<Record<string, unknown>>) =>
      client.call("ProcessService/ListProcesses", { sandbox_id: id, ...more });

    expect((await processes({})).processes).toMatchObject([
      { process_id: third, shell: "sleep 600", exit_status: null, sandbox_id: id },
    ]);
    const all = await processes({ show_ended: true });
    expect(all.processes).toMatchObject([
      { process_id: third },
      { process_id: second, argv: { args: ["true"] }, exit_status: { exit_code: 0 } },
      { process_id: first, shell: "exit 3", exit_status: { exit_code: 3 } },
    ]);
    const page = await processes({ show_ended: true, page_size: 2 });
    expect(page.processes.map(({ process_id: one }) => one)).toEqual([third, second]);
    const rest = await processes({ show_ended: true, page_size: 2, page_token: page.next_page_token });
    expect(rest.processes.map(({ process_id: one }) => one)).toEqual([first]);
    expect(rest.next_page_token).toBe("");
    running.cancel();
  });
});

describe("stats", () => {
  test("report the manager's figures", async () => {
    const { client } = app;
    const stats = () => client.call("SandboxService/GetStats");
    expect(await stats()).toMatchObject({
      total_sandboxes: 0,
      active_operations: 0,
      max_sandboxes: 20,
      idle_timeout: seconds(1800),
      cleanup_interval: seconds(200),
      is_shutting_down: false,
      sandboxes: [],
      engine: {
        name: "docker",
        version: expect.stringMatching(/^\d+\./),
        isolation: "ISOLATION_LEVEL_CONTAINER",
        capabilities: expect.arrayContaining(["pause", "memory_limit", "cpu_limit", "pids_limit"]),
        available: true,
      },
    });
    const { sandbox_id: busy } = await client.createSandbox();
    const { sandbox_id: idle } = await client.createSandbox();
    const running = [client.exec(busy, "sleep 600"), client.exec(busy, "sleep 600")];
    await Promise.all(running.map(({ processId }) => processId));
    const during = await stats();
    expect(during).toMatchObject({ total_sandboxes: 2, active_operations: 2 });
    expect(during.sandboxes).toHaveLength(2);
    expect(during.sandboxes).toContainEqual(expect.objectContaining({ sandbox_id: busy, is_active: true }));
    expect(during.sandboxes).toContainEqual(expect.objectContaining({ sandbox_id: idle, is_active: false }));
    const [one] = during.sandboxes;
    expect(Math.abs(inSeconds(one?.last_used) - Date.now() / 1000)).toBeLessThan(30);

    for (const execution of running) execution.cancel();
    await eventually(async () => (await stats()).active_operations === 0);
    expect((await stats()).sandboxes.every(({ is_active: active }) => !active)).toBe(true);
  });
});
