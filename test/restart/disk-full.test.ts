import { closeSync, fsyncSync, openSync, rmSync, writeSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { expectNoContainers } from "../support/app.ts";
import { Client, failureOf } from "../support/client.ts";
import { ServeProcess } from "../support/program.ts";
import { SmallDisk } from "../support/small-disk.ts";
import { Worker } from "../support/worker.ts";

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

/** Takes all the room there is left. */
function fill(): void {
  const file = openSync(disk.reach("filler"), "w");
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

test("a full disk refuses creates with what to do; reads, commands and deletes work; nothing is broken after", async () => {
  const [kept, gone] = await Promise.all([client.createSandbox(), client.createSandbox()]);
  const worker = new Worker(client, "full");
  await worker.create("bash", undefined, { sandbox_id: kept.sandbox_id });
  fill();
  // What the files that are there still have room for is used up first.
  let refused: Awaited<ReturnType<typeof failureOf>> | undefined;
  for (let i = 0; i < 2_000 && refused === undefined; i++) {
    const labels = { filler: "x".repeat(60), n: String(i) };
    const update = { sandbox_id: kept.sandbox_id, labels, update_mask: { paths: ["labels"] } };
    refused = await client.call("SandboxService/UpdateSandbox", update).then(
      () => undefined,
      (error: unknown) => failureOf(Promise.reject(error)),
    );
  }
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
  client.close();
  await service.stop("SIGKILL");
  // The next run reads every page before it begins, and begins.
  service = await service.again();
  client = new Client(service.address);
  expect((await client.getSandbox(kept.sandbox_id)).state).toBe("SANDBOX_STATE_RUNNING");
  expect((await client.getSandbox(made.sandbox_id)).state).toBe("SANDBOX_STATE_RUNNING");
  expect((await client.getSandbox(gone.sandbox_id)).state).toBe("SANDBOX_STATE_TERMINATED");
});
