import { afterAll, beforeAll, expect, test } from "vitest";
import { Store } from "../../../src/store.ts";
import { expectNoContainers } from "../../support/app.ts";
import { Client } from "../../support/client.ts";
import { processesOf } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { ServeProcess } from "../../support/program.ts";
import { SHELL_IMAGES } from "../../support/shell-images.ts";

interface Facts {
  readonly leader: { pid: number; startTime: string };
}

const SLEEPS = ["4801", "4802", "4803", "4804", "4805", "4806"].map((name) => `sleep ${name}`);

let service: ServeProcess;
let client: Client;
/** One sandbox for each shell. */
let sandboxes: readonly string[];

beforeAll(async () => {
  service = await ServeProcess.start(["--leave-sandboxes"]);
  client = new Client(service.address);
  const created = await Promise.all(SHELL_IMAGES.map(([, image]) => client.createSandbox({ image })));
  sandboxes = created.map(({ sandbox_id: id }) => id);
});
afterAll(async () => {
  client.close();
  await service.stop();
  await expectNoContainers(service.instance);
});

/** Kills the service, changes its records of processes, and starts it again. */
async function restart(change: (processId: string, facts: Facts) => void): Promise<void> {
  client.close();
  await service.stop("SIGKILL");
  const store = Store.open(service.dataDir, { instance: service.instance });
  for (const process of store.processes.unsummarized()) {
    const facts = JSON.parse(process.facts) as Facts;
    change(process.processId, facts);
    store.processes.put({ ...process, facts: JSON.stringify(facts) });
  }
  store.close();
  service = await service.again(["--leave-sandboxes"]);
  client = new Client(service.address);
}

async function begin(sandboxId: string, line: string | undefined, how: Record<string, unknown>) {
  const execution = client.exec(sandboxId, `echo on; ${line}`, how);
  await execution.until("on");
  return execution.processId;
}

async function endOf(id: string) {
  return (await client.call("ProcessService/GetProcess", { process_id: id })).process.exit_status;
}

async function sleepsIn(sandboxId: string): Promise<string[]> {
  const all = await processesOf(service.instance, sandboxId);
  return all.filter((args) => args.startsWith("sleep 48")).sort();
}

test("processes of a killed service are found, however they were started, unless another process has their PID now", async () => {
  const detached = { on_disconnect: "ON_DISCONNECT_DETACH" };
  const terminal = { columns: 80, rows: 24 };
  const ways = [{}, { keep_stdin_open: true }, { user: "1000:1000" }, { terminal }];
  const ours: string[] = [];
  const others: string[] = [];
  for (const id of sandboxes) {
    // Its caller is gone after the restart, so it would be killed if it were taken for a process of the service. It is
    // stored together with the next detached one, which is before that one's caller gets an answer.
    others.push(await begin(id, SLEEPS[5], {}));
    others.push(await begin(id, SLEEPS[4], detached));
    for (const [i, way] of ways.entries()) ours.push(await begin(id, SLEEPS[i], { ...detached, ...way }));
    // A start is reported before the program has replaced the shell.
    await eventually(async () => (await sleepsIn(id)).length === SLEEPS.length);
    expect(await sleepsIn(id)).toEqual(SLEEPS);
  }

  await restart((id, { leader }) => {
    expect(leader).toMatchObject({ pid: expect.any(Number), startTime: expect.stringMatching(/^\d+$/) });
    if (others.includes(id)) leader.startTime = String(Number(leader.startTime) - 1);
  });
  for (const id of others) {
    await eventually(async () => (await endOf(id)) !== null);
    expect(await endOf(id)).toMatchObject({
      cause: "EXIT_CAUSE_ENGINE_LOST",
      message: expect.stringContaining("restarted while it ran"),
    });
  }
  // By then each of the others has been checked twice.
  await new Promise((resolve) => setTimeout(resolve, 2_500));
  for (const id of ours) expect(await endOf(id)).toBeNull();
  for (const id of sandboxes) expect(await sleepsIn(id)).toEqual(SLEEPS);

  for (const id of ours) {
    await client.call("ProcessService/SignalProcess", { process_id: id, signal: 15 });
    await eventually(async () => (await endOf(id)) !== null);
    expect(await endOf(id)).toMatchObject({ cause: "EXIT_CAUSE_SIGNALED", signal: 15 });
  }
  // The signal reaches a shell and its program at once, and the end of the shell is the end that is reported.
  for (const id of sandboxes) await expect.poll(() => sleepsIn(id)).toEqual(SLEEPS.slice(4));
});

test("a process that is left running when the service stops is found by the next", async () => {
  const [id = ""] = sandboxes;
  // It writes constantly, so that the stop always finds output that is not stored yet.
  const processId = await begin(id, "while :; do echo y; sleep 0.01; done", {
    on_disconnect: "ON_DISCONNECT_DETACH",
  });
  client.close();
  expect((await service.stop()).exitCode).toBe(0);
  service = await service.again();
  client = new Client(service.address);
  expect(await endOf(processId)).toBeNull();
  await client.call("ProcessService/SignalProcess", { process_id: processId, signal: 9 });
  await eventually(async () => (await endOf(processId)) !== null);
});
