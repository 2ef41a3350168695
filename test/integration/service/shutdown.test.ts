import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { startApp } from "../../../src/app.ts";
import { expectContainers, expectNoContainers } from "../../support/app.ts";
import { Client, failureOf } from "../../support/client.ts";
import { containersOf, docker, removeContainers } from "../../support/docker.ts";
import { MemoryLog } from "../../support/memory-log.ts";
import { ServeProcess } from "../../support/program.ts";
import { readSlowly } from "../../support/server/slow-reader.ts";
import { testSettings } from "../../support/settings.ts";

/** Most of it is for the removal of containers, which a busy daemon takes long for. */
const STOP_TIMEOUT_MS = 30_000;
/** How long a stop may take beyond its limit: the program's own exit, on a busy machine. */
const SLACK_MS = 20_000;

const started: { service: ServeProcess; client: Client }[] = [];

async function start(...options: string[]) {
  const service = await ServeProcess.start(["--stop-timeout", `${STOP_TIMEOUT_MS / 1000}s`, ...options]);
  const client = new Client(service.address);
  started.push({ service, client });
  return { service, client };
}

/** Stops a service like an operator. Returns how long it took. */
async function terminate(service: ServeProcess): Promise<{ exitCode: number | null; tookMs: number }> {
  const startedAt = performance.now();
  const { exitCode } = await service.stop("SIGTERM");
  return { exitCode, tookMs: performance.now() - startedAt };
}

afterEach(async () => {
  for (const { service, client } of started.splice(0)) {
    client.close();
    await service.dispose();
    await removeContainers(service.instance);
  }
});

test("SIGTERM with nothing to do ends the service at once", async () => {
  // Longer than a test may take: a stop that waits for all of it fails the test.
  const { service } = await start("--stop-timeout", "1h");
  expect(await terminate(service)).toMatchObject({ exitCode: 0 });
});

test("SIGTERM while sandboxes are busy ends everything in time and leaves no container", async () => {
  const { service, client } = await start();
  const sandboxes = await Promise.all([1, 2, 3].map(() => client.createSandbox()));
  const [first, second] = sandboxes.map(({ sandbox_id: id }) => id) as [string, string];
  const streaming = client.exec(first, "trap '' TERM; while :; do echo busy; sleep 0.1; done");
  const silent = client.exec(second, "sleep 600");
  const collected = failureOf(client.run(second, "sleep 600"));
  const watch = client.stream("SandboxService/WatchEvents");
  const watched = new Promise<number>((resolve) =>
    watch.on("error", ({ code }: { code: number }) => resolve(code)),
  );
  watch.resume();
  await streaming.until("busy");
  await silent.processId;
  await expectContainers(service.instance, 3);

  const end = await terminate(service);

  expect(end).toMatchObject({ exitCode: 0 });
  expect(end.tookMs).toBeLessThan(STOP_TIMEOUT_MS + SLACK_MS);
  expect(await containersOf(service.instance)).toEqual([]);
  expect((await failureOf(streaming.result)).code).toBe("UNAVAILABLE");
  expect((await failureOf(silent.result)).code).toBe("UNAVAILABLE");
  expect((await collected).code).toBe("UNAVAILABLE");
  expect(await watched).toBe(14);
});

test("SIGTERM during creates leaves no container", async () => {
  const { service, client } = await start();
  const creates = [0, 50, 100, 150, 200].map(async (delayMs) => {
    await sleep(delayMs);
    await client.createSandbox();
  });
  const outcomes = Promise.allSettled(creates);
  await sleep(230);
  const end = await terminate(service);
  expect(end).toMatchObject({ exitCode: 0 });
  expect(end.tookMs).toBeLessThan(STOP_TIMEOUT_MS + SLACK_MS);
  await outcomes;
  await expectNoContainers(service.instance);
});

test("with leaveSandboxes they stay, and their processes continue", async () => {
  const { service, client } = await start("--leave-sandboxes");
  const { sandbox_id: id } = await client.createSandbox();
  const detached = client.exec(id, "while :; do date +%s.%N >now; sleep 0.05; done", {
    on_disconnect: "ON_DISCONNECT_DETACH",
  });
  await detached.processId;

  const end = await terminate(service);

  expect(end).toMatchObject({ exitCode: 0 });
  expect(end.tookMs).toBeLessThan(STOP_TIMEOUT_MS + SLACK_MS);
  const [container, ...others] = await containersOf(service.instance);
  expect(others).toEqual([]);
  expect(container?.State).toBe("running");
  const { Processes: rows } = await docker.getContainer(container?.Id ?? "").top();
  expect(rows.flat().join("\n")).toContain("date +%s.%N");
});

test("a client that reads slowly gets only its share of the time", async () => {
  const settings = testSettings({ engine: "bubblewrap", stopTimeoutMs: 1 });
  const app = await startApp(settings, new MemoryLog());
  const client = new Client(app.address);
  try {
    const { sandbox_id: sandboxId } = await client.createSandbox();
    const { behind, status } = readSlowly(`http://${app.address}`, {
      sandboxId,
      command: { case: "shell", value: "yes" },
    });
    await behind;
    await app.stop();
    expect(await status).toBeUndefined();
  } finally {
    client.close();
    await app.stop();
  }
});
