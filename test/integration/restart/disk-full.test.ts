import { closeSync, existsSync, fsyncSync, openSync, rmSync, writeSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { expectNoContainers } from "../../support/app.ts";
import { Client, failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { ServeProcess } from "../../support/program.ts";
import { RunDriver } from "../../support/run-driver.ts";
import { SmallDisk } from "../../support/small-disk.ts";
import { withTimeEnough } from "../../support/time-enough.ts";
import type { WatchEventsResponse } from "../../support/wire.ts";
import { Worker } from "../../support/worker.ts";

let disk: SmallDisk;
let service: ServeProcess;
let client: Client;

beforeAll(async () => {
  disk = await SmallDisk.make(8);
  service = await ServeProcess.start(
    [],
    {},
    {
      within: disk.enter,
      dataDir: `${disk.path}/data`,
    },
  );
  client = new Client(service.address);
});

afterAll(async () => {
  client?.close();
  await service?.stop();
  await disk?.remove();
  if (service) await expectNoContainers(service.instance);
});

/** Takes all remaining space with a file. */
function fill(name: string): void {
  const file = openSync(disk.reach(name), "w");
  const writeUntilFull = (size: number): void => {
    try {
      for (;;) writeSync(file, Buffer.alloc(size, 1));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
    }
  };
  try {
    for (const size of [65_536, 4_096, 512]) writeUntilFull(size);
  } finally {
    fsyncSync(file);
    closeSync(file);
  }
}

/** Fills the disk, and uses up the space left in existing files. @returns the refusal of a change of the sandbox. */
async function fillWholly(
  sandbox_id: string,
  name = "filler",
  caller = client,
): Promise<Awaited<ReturnType<typeof failureOf>> | undefined> {
  fill(name);
  for (let i = 0; i < 2_000; i++) {
    const labels = { filler: "x".repeat(60), n: String(i) };
    const update = { sandbox_id, labels, update_mask: { paths: ["labels"] } };
    const refused = await caller.call("SandboxService/UpdateSandbox", update).then(
      () => undefined,
      (error: unknown) => failureOf(Promise.reject(error)),
    );
    if (refused !== undefined) return refused;
  }
  return undefined;
}

/** Ends the service, kills it by default, and starts it with the data that it left. */
async function restart(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
  client.close();
  await service.stop(signal);
  service = await service.again();
  client = new Client(service.address);
}

test("a full disk refuses creates with what to do; reads, commands and deletes work; nothing is broken after", async () => {
  const [kept, gone] = await Promise.all([client.createSandbox(), client.createSandbox()]);
  const worker = new Worker(client, "full");
  await worker.create("bash", undefined, { sandbox_id: kept.sandbox_id });
  const refused = await fillWholly(kept.sandbox_id);
  expect(refused?.reason).toBe("NO_SPACE");
  const create = await failureOf(client.createSandbox());
  expect(create).toMatchObject({ code: "RESOURCE_EXHAUSTED", reason: "NO_SPACE" });
  expect(create.message).toContain("data directory is full");

  expect((await client.getSandbox(kept.sandbox_id)).state).toBe("SANDBOX_STATE_RUNNING");
  expect(await client.output(kept.sandbox_id, "echo works")).toBe("works\n");
  expect((await worker.bash("echo works")).stdout).toBe("works\n");
  expect(await worker.destroy()).toMatchObject([
    { status: "SESSION_RESULT_STATUS_DESTROYED", failure: null },
  ]);
  expect(await worker.list()).toEqual([]);
  await client.call("SandboxService/DeleteSandbox", { sandbox_id: gone.sandbox_id, request_id: "delete" });
  expect((await client.getSandbox(gone.sandbox_id)).state).toBe("SANDBOX_STATE_TERMINATED");
  const stats = await client.call("SandboxService/GetStats");
  expect(stats.total_sandboxes).toBe(1);

  rmSync(disk.reach("filler"));
  const made = await client.createSandbox();
  // The next run reads every page before it starts, and starts.
  await restart();
  expect((await client.getSandbox(kept.sandbox_id)).state).toBe("SANDBOX_STATE_RUNNING");
  expect((await client.getSandbox(made.sandbox_id)).state).toBe("SANDBOX_STATE_RUNNING");
  // Its end waits for space, and is stored within a second. A run that ends sooner leaves the rest of the deletion to
  // the next.
  const hasEnded = async () =>
    (await client.getSandbox(gone.sandbox_id)).state === "SANDBOX_STATE_TERMINATED";
  await eventually(hasEnded);
});

test("runs can be canceled and deleted on a full disk", async () => {
  const create = () => RunDriver.create(client, { sandbox_spec: {} });
  const [canceled, deleted] = [await create(), await create()];
  const { sandbox_id } = await canceled.start();
  await deleted.start();
  const filler = await client.createSandbox();
  expect((await fillWholly(filler.sandbox_id))?.reason).toBe("NO_SPACE");
  const before = (await client.call("SandboxService/GetStats")).total_sandboxes;
  const asCanceled = { state: "RUN_STATE_ERROR", outcome: "RUN_OUTCOME_CANCELED" };
  expect(await canceled.cancel()).toMatchObject(asCanceled);
  await deleted.delete();
  const list = async () => (await client.call("RunService/ListRuns")).runs;
  expect(await list()).toMatchObject([{ run_id: canceled.runId, ...asCanceled }]);
  expect((await client.getSandbox(sandbox_id)).state).toBe("SANDBOX_STATE_TERMINATED");
  expect((await client.call("SandboxService/GetStats")).total_sandboxes).toBe(before - 2);
  rmSync(disk.reach("filler"));
  await canceled.reset();
  await client.deleteSandbox(filler.sandbox_id);
  // A service that stops stores what waits.
  await restart("SIGTERM");
  expect(await list()).toMatchObject([{ run_id: canceled.runId, state: "RUN_STATE_IDLE" }]);
});

test("a run whose last report cannot be stored ends with its lease; others continue after a restart", async () => {
  const start = (seconds: number) => RunDriver.start(client, { sandbox_spec: {}, step_timeout: { seconds } });
  const kept = await start(600);
  const filler = await client.createSandbox();
  // The disk must be full before the lease expires.
  const { reported, refused } = await withTimeEnough(
    8,
    async (lease) => {
      rmSync(disk.reach("filler"), { force: true });
      const reported = await start(lease);
      expect((await fillWholly(filler.sandbox_id))?.reason).toBe("NO_SPACE");
      return { reported, refused: await failureOf(reported.finish()) };
    },
    ({ refused }) => refused.reason !== "RUN_STATE",
  );
  expect(refused).toMatchObject({ reason: "NO_SPACE" });
  const get = async ({ runId }: RunDriver) => (await client.call("RunService/GetRun", { run_id: runId })).run;
  await expect.poll(async () => (await get(reported)).outcome).toBe("RUN_OUTCOME_LEASE_EXPIRED");
  // The next service starts on the full disk.
  await restart();
  expect(await get(kept)).toMatchObject({ state: "RUN_STATE_RUNNING" });
  const { run } = await client.call("RunService/CancelRun", { run_id: kept.runId });
  expect(run).toMatchObject({ outcome: "RUN_OUTCOME_CANCELED" });
  rmSync(disk.reach("filler"));
});

test("a workspace that fills the disk can be cleaned up", async () => {
  const filler = await client.createSandbox();
  const { workspace } = await client.call("WorkspaceService/CreateWorkspace", { workspace_id: "large" });
  const place = path.relative(disk.path, workspace?.path ?? "");
  expect((await fillWholly(filler.sandbox_id, `${place}/large`))?.reason).toBe("NO_SPACE");
  const outcome = await client
    .call("WorkspaceService/CleanupWorkspace", { workspace_id: "large", force: true, request_id: "large" })
    .then(
      () => "deleted",
      (error: Error) => error.message,
    );
  expect(outcome).toBe("deleted");
  expect(existsSync(disk.reach(place))).toBe(false);
  expect((await client.createSandbox()).state).toBe("SANDBOX_STATE_RUNNING");
});

test("a full disk does not keep a workspace's sandbox from being stopped", async () => {
  // Docker's daemon does not see this disk, and so no workspaces on it.
  const other = await ServeProcess.start(
    ["--engine", "bubblewrap"],
    {},
    { within: disk.enter, dataDir: `${disk.path}/other` },
  );
  const own = new Client(other.address);
  try {
    const workspace_id = "kept";
    await own.call("WorkspaceService/EnsureWorkspaceSandbox", { workspace_id });
    const { sandbox_id } = await own.createSandbox();
    expect((await fillWholly(sandbox_id, "filler", own))?.reason).toBe("NO_SPACE");
    const stopped = await own
      .call("WorkspaceService/StopWorkspaceSandbox", { workspace_id })
      .catch((error: Error) => error.message);
    expect(stopped).toMatchObject({ workspace: { workspace_id, sandbox_id: "" } });
  } finally {
    rmSync(disk.reach("filler"), { force: true });
    own.close();
    await other.stop();
    rmSync(disk.reach("other"), { recursive: true });
  }
});

test("a disk that is nearly full is reported until there is space again", async () => {
  const page = async (name: string) =>
    (await (await fetch(`http://${service.address}/${name}`)).text()).trim();
  const freeBytes = async () => Number(/^berth_data_disk_free_bytes (.*)$/m.exec(await page("metrics"))?.[1]);
  // Earlier tests fill the disk too, which a service may have seen and logged.
  await restart();
  expect(await page("readyz")).toBe("ok");
  const free = await freeBytes();
  expect(free).toBeGreaterThan(100_000);
  fill("filler");
  const warned = "ok\nThe disk of the data directory is nearly full: free space there.";
  await expect.poll(() => page("readyz")).toBe(warned);
  expect(await freeBytes()).toBeLessThan(100_000);
  expect(await page("metrics")).toMatch(/^berth_data_disk_total_bytes \d{7}$/m);
  rmSync(disk.reach("filler"));
  await expect.poll(() => page("readyz")).toBe("ok");
  const { stderr } = await service.stop();
  const messages = stderr
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(messages.filter(({ msg }) => msg.includes("disk of the data directory"))).toMatchObject([
    { level: 40, directory: `${disk.path}/data`, freeBytes: expect.any(Number) },
  ]);
  service = await service.again();
  client = new Client(service.address);
});

test("delayed writes of a deleted sandbox do not reach the next sandbox of its id", async () => {
  const filler = await client.createSandbox();
  const ids = ["again-1", "again-2", "again-3"];
  for (const sandbox_id of ids) await client.call("SandboxService/CreateSandbox", { sandbox_id });
  expect((await fillWholly(filler.sandbox_id))?.reason).toBe("NO_SPACE");
  await Promise.all(ids.map((sandbox_id) => client.deleteSandbox(sandbox_id)));
  rmSync(disk.reach("filler"));
  // Waiting writes happen within a second. The next creates come before or after that.
  for (const sandbox_id of ids) await client.call("SandboxService/CreateSandbox", { sandbox_id });
  await sleep(1_500);
  await restart();
  for (const sandbox_id of ids) {
    expect(await client.getSandbox(sandbox_id)).toMatchObject({
      generation: 2,
      state: "SANDBOX_STATE_RUNNING",
    });
  }
});

test("a watcher that continues after a kill on a full disk misses nothing, and sees no number twice", async () => {
  const filler = await client.createSandbox();
  const ended = await client.createSandbox();
  const watched: WatchEventsResponse[] = [];
  const watch = (after_sequence: number) => {
    const stream = client.stream("SandboxService/WatchEvents", { after_sequence });
    stream.on("data", (item) => watched.push(item));
    stream.on("error", () => {});
    return stream;
  };
  const sequences = (): number[] => watched.flatMap(({ event }) => event?.sequence ?? []);
  const hears = (sandboxId: string, type: string) =>
    eventually(() =>
      watched.some(
        ({ event }) => event?.sandbox_id === sandboxId && event.type === `SANDBOX_EVENT_TYPE_${type}`,
      ),
    );
  const first = watch(0);
  await hears(ended.sandbox_id, "RUNNING");
  expect((await fillWholly(filler.sandbox_id))?.reason).toBe("NO_SPACE");
  await client.deleteSandbox(ended.sandbox_id);
  // More events than the next run can report before the next sandbox.
  for (const act of ["Pause", "Resume", "Pause", "Resume"] as const) {
    await client.call(`SandboxService/${act}Sandbox`, { sandbox_id: filler.sandbox_id });
  }
  // By then it has reported that, if at all.
  await sleep(300);
  first.cancel();
  await service.stop("SIGKILL");
  rmSync(disk.reach("filler"));
  await restart();
  const next = await client.createSandbox();
  const second = watch(Math.max(...sequences()));
  await hears(next.sandbox_id, "CREATING");
  await hears(next.sandbox_id, "RUNNING");
  await hears(ended.sandbox_id, "TERMINATED");
  second.cancel();
  expect(sequences()).toEqual([...new Set(sequences())].sort((a, b) => a - b));
});
