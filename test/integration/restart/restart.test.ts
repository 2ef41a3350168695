import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { expectContainers, expectNoContainers } from "../../support/app.ts";
import { Client, failureOf } from "../../support/client.ts";
import { containersOf, docker, processesIn } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { ServeProcess } from "../../support/program.ts";
import { untilStored } from "../../support/stored-processes.ts";
import type { WatchEventsResponse } from "../../support/wire.ts";
import { Worker } from "../../support/worker.ts";

let service: ServeProcess;
let client: Client;

beforeEach(async () => {
  service = await ServeProcess.start();
  client = new Client(service.address);
});

afterEach(async () => {
  client.close();
  await service.stop();
  await expectNoContainers(service.instance);
});

/** Stops the service and starts it with the data that it left. */
async function restart(signal: NodeJS.Signals = "SIGKILL", args: readonly string[] = []): Promise<void> {
  client.close();
  await service.stop(signal);
  service = await service.again(args);
  client = new Client(service.address);
}

async function eventsAfter(sequence: number, count: number): Promise<WatchEventsResponse[]> {
  const stream = client.stream("SandboxService/WatchEvents", { after_sequence: sequence });
  const items: WatchEventsResponse[] = [];
  for await (const item of stream) {
    items.push(item as WatchEventsResponse);
    if (items.length === count) break;
  }
  stream.on("error", () => {});
  stream.cancel();
  return items;
}

describe("a service that was killed", () => {
  test("finds its sandboxes again, with their files, and runs commands in them at once", async () => {
    const made = await client.createSandbox({ labels: { a: "b" } });
    await client.output(made.sandbox_id, "echo kept >/workspace/file");
    await restart();
    const found = await client.getSandbox(made.sandbox_id);
    expect(found).toMatchObject({
      state: "SANDBOX_STATE_RUNNING",
      generation: 1,
      spec: made.spec,
      create_time: made.create_time,
    });
    expect(await client.output(made.sandbox_id, "cat /workspace/file")).toBe("kept\n");
    expect(await client.call("SandboxService/GetStats")).toMatchObject({ total_sandboxes: 1 });
    await restart("SIGTERM", ["--leave-sandboxes"]);
    await client.deleteSandbox(made.sandbox_id);
    expect(await client.call("SandboxService/GetStats")).toMatchObject({ total_sandboxes: 0 });
  });

  test("leaves commands and answers to retries with their request id", async () => {
    const { sandbox_id: id } = await client.createSandbox();
    const gated = "echo x >>runs; while [ ! -e go ]; do sleep 0.05; done; echo done >>runs";
    const run = () => client.run(id, gated, { request_id: "run" });
    const tool = () => new Worker(client, "w").bash("echo y >>runs; date +%N", { request_id: "tool" });
    await new Worker(client, "w").create("bash", undefined, { sandbox_id: id });
    const answer = await tool();
    run().catch(() => {});
    await eventually(async () => (await client.output(id, "cat runs")) === "y\nx\n");
    await restart();
    const again = run();
    await client.output(id, "touch go");
    expect((await again).exit_status).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 0 });
    expect(await tool()).toEqual(answer);
    expect(await client.output(id, "cat runs")).toBe("y\nx\ndone\n");
    await client.deleteSandbox(id);
  });

  test("keeps paused sandboxes paused, and reports sandboxes that ended meanwhile with the cause", async () => {
    const [paused, exited, removed] = await Promise.all([1, 2, 3].map(() => client.createSandbox()));
    await client.call("SandboxService/PauseSandbox", { sandbox_id: paused?.sandbox_id });
    client.close();
    await service.stop("SIGKILL");
    const container = async (id: string | undefined) => {
      const all = await containersOf(service.instance);
      const found = all.find(({ Labels }) => Labels["berth.sandbox_id"] === id);
      return docker.getContainer(found?.Id ?? "");
    };
    await (await container(exited?.sandbox_id)).kill();
    await (await container(removed?.sandbox_id)).remove({ force: true });
    service = await service.again();
    client = new Client(service.address);
    expect((await client.getSandbox(paused?.sandbox_id ?? "")).state).toBe("SANDBOX_STATE_PAUSED");
    // The service removes both at the same time, and either may take longer.
    for (const made of [exited, removed])
      await eventually(
        async () => (await client.getSandbox(made?.sandbox_id ?? "")).state === "SANDBOX_STATE_TERMINATED",
      );
    const ends = await Promise.all(
      [exited, removed].map((made) => client.getSandbox(made?.sandbox_id ?? "")),
    );
    expect(ends.map(({ state, termination }) => [state, termination?.cause])).toEqual([
      ["SANDBOX_STATE_TERMINATED", "TERMINATION_CAUSE_EXITED"],
      ["SANDBOX_STATE_TERMINATED", "TERMINATION_CAUSE_ENGINE_LOST"],
    ]);
    await client.call("SandboxService/ResumeSandbox", { sandbox_id: paused?.sandbox_id });
    expect(await client.output(paused?.sandbox_id ?? "", "echo on")).toBe("on\n");
    await expectContainers(service.instance, 1);
  });

  test("continues its events where they stopped, and keeps ended sandboxes readable", async () => {
    const { sandbox_id } = await client.createSandbox();
    await client.deleteSandbox(sandbox_id);
    const before = await eventsAfter(0, 4);
    await restart();
    expect(await eventsAfter(0, 4)).toEqual(before);
    const { state, termination } = await client.getSandbox(sandbox_id);
    expect([state, termination?.cause]).toEqual(["SANDBOX_STATE_TERMINATED", "TERMINATION_CAUSE_DELETED"]);
    await client.createSandbox();
    const [next] = await eventsAfter(4, 1);
    expect(next?.event?.sequence).toBe(5);
  });

  test("answers a request id as before, and creates nothing twice", async () => {
    const request = { request_id: "one", spec: { labels: { n: "1" } } };
    const { sandbox } = await client.call("SandboxService/CreateSandbox", request);
    const command = {
      sandbox_id: sandbox.sandbox_id,
      shell: "echo once >>/workspace/log",
      request_id: "two",
    };
    const ran = await client.call("ProcessService/RunCommand", command);
    await restart();
    expect((await client.call("SandboxService/CreateSandbox", request)).sandbox).toEqual(sandbox);
    expect(await client.call("ProcessService/RunCommand", command)).toMatchObject({
      process_id: ran.process_id,
      exit_status: { exit_code: 0 },
    });
    expect(await client.output(sandbox.sandbox_id, "cat /workspace/log")).toBe("once\n");
    const reused = await failureOf(client.call("SandboxService/CreateSandbox", { request_id: "one" }));
    expect(reused.reason).toBe("REQUEST_ID_REUSED");
  });

  test("has the output of ended processes, small and large, and how they ended", async () => {
    const { sandbox_id } = await client.createSandbox();
    const execution = client.exec(sandbox_id, "echo out; echo err >&2; exit 3");
    const small = await execution.result;
    const large = client.exec(sandbox_id, "seq 1 400000; echo end >&2", {
      on_disconnect: "ON_DISCONNECT_DETACH",
    });
    const { stdout } = await large.result;
    const ids = [await client.exec(sandbox_id, "true").processId, await large.processId];
    // The write to disk happens in the background, soon after.
    const all = [await execution.processId, ...ids];
    await untilStored(service.dataDir, all, 0, { ended: true });
    await restart();
    const again = await client.attach(ids[1] ?? "").result;
    expect(again.stdout.equals(stdout)).toBe(true);
    expect(again.stderr.toString()).toBe("end\n");
    expect(again.exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 0 });
    const part = await client.attach(ids[1] ?? "", { stdout: 100_000, stderr: 4 }).result;
    expect(part.stdout.equals(stdout.subarray(100_000))).toBe(true);
    const { processes } = await client.call("ProcessService/ListProcesses", { sandbox_id, show_ended: true });
    expect(processes.map(({ exit_status }) => exit_status?.exit_code)).toEqual([0, 0, 3]);
    const first = await client.attach(processes[2]?.process_id ?? "").result;
    expect(first).toEqual({ ...small });
    await client.deleteSandbox(sandbox_id);
    expect(
      (await client.attach(ids[1] ?? "", { stdout: stdout.length, stderr: 0 }).result).stderr.toString(),
    ).toBe("end\n");
  });

  test("finds detached processes again, ends those whose caller is gone, and notices when they end", async () => {
    const { sandbox_id } = await client.createSandbox();
    const detached = client.exec(sandbox_id, "echo early; sleep 1000; echo late", {
      on_disconnect: "ON_DISCONNECT_DETACH",
    });
    const attended = client.exec(sandbox_id, "echo mine; sleep 2000");
    const ids = await Promise.all([detached.processId, attended.processId]);
    const [container] = await containersOf(service.instance);
    const sleeps = async () =>
      (await processesIn(docker.getContainer(container?.Id ?? ""))).filter((line) =>
        line.startsWith("sleep"),
      );
    await eventually(async () => (await sleeps()).length === 2);
    await untilStored(service.dataDir, ids, "mine\n".length);
    await restart();
    const get = async (id: string | undefined) =>
      (await client.call("ProcessService/GetProcess", { process_id: id })).process;
    expect((await get(ids[0])).exit_status).toBeNull();
    await eventually(async () => (await get(ids[1])).exit_status !== null);
    expect((await get(ids[1])).exit_status).toMatchObject({ cause: "EXIT_CAUSE_CANCELED" });
    await eventually(async () => (await sleeps()).length === 1, { describe: sleeps });
    expect(await sleeps()).toEqual(["sleep 1000"]);
    const late = client.attach(ids[0] ?? "");
    await late.processId;
    await client.call("ProcessService/SignalProcess", { process_id: ids[0], signal: 15 });
    const { stdout, exit } = await late.result;
    expect(stdout.toString()).toBe("early\n");
    expect(exit).toMatchObject({ cause: "EXIT_CAUSE_SIGNALED", exit_code: 143, signal: 15 });
    expect(exit.message).toContain("restarted while it ran");
    // The signal reaches the shell and its program at once, and the end of the shell is the end that is reported.
    await expect.poll(sleeps).toEqual([]);
  });
});

test("two services on one daemon do not touch each other's sandboxes", async () => {
  const other = await ServeProcess.start();
  const theirs = new Client(other.address);
  try {
    const [mine, their] = await Promise.all([client.createSandbox(), theirs.createSandbox()]);
    await restart();
    expect((await client.getSandbox(mine.sandbox_id)).state).toBe("SANDBOX_STATE_RUNNING");
    expect((await theirs.getSandbox(their.sandbox_id)).state).toBe("SANDBOX_STATE_RUNNING");
    expect(await theirs.output(their.sandbox_id, "echo here")).toBe("here\n");
    expect(await failureOf(client.getSandbox(their.sandbox_id))).toMatchObject({
      reason: "SANDBOX_NOT_FOUND",
    });
  } finally {
    theirs.close();
    await other.stop();
    await expectNoContainers(other.instance);
  }
});

test("containers with the instance's label that belong to nothing are removed", async () => {
  const { sandbox_id } = await client.createSandbox();
  const [known] = await containersOf(service.instance);
  const labels = { ...known?.Labels, "berth.sandbox_id": "sbx_nobody" };
  const orphan = await docker.createContainer({
    Image: known?.Image ?? "",
    Cmd: ["sleep", "1000"],
    Labels: labels,
  });
  await orphan.start();
  await restart();
  await expectContainers(service.instance, 1);
  expect((await client.getSandbox(sandbox_id)).state).toBe("SANDBOX_STATE_RUNNING");
});
