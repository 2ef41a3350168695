import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { expectContainers, expectNoContainers } from "../support/app.ts";
import { ChildApp } from "../support/child-app.ts";
import { failureOf } from "../support/client.ts";
import { containersOf, docker, removeContainers } from "../support/docker.ts";
import type { TestSettings } from "../support/settings.ts";

const STOP_TIMEOUT_MS = 6_000;
/** What a stop may take beyond its bound: the program's own way out, on a busy machine. */
const SLACK_MS = 3_000;

const running: ChildApp[] = [];

async function startChild(changes: TestSettings = {}): Promise<ChildApp> {
  const app = await ChildApp.start({ stopTimeoutMs: STOP_TIMEOUT_MS, ...changes });
  running.push(app);
  return app;
}

afterEach(async () => {
  for (const app of running.splice(0)) {
    app.kill();
    await removeContainers(app.instance);
  }
});

test("SIGTERM with nothing to do ends the service at once", async () => {
  const app = await startChild();
  const end = await app.terminate();
  expect(end).toMatchObject({ exitCode: 0, left: [] });
  expect(end.tookMs).toBeLessThan(2_000);
});

test("SIGTERM while sandboxes are busy ends everything in time and leaves no container", async () => {
  const app = await startChild();
  const sandboxes = await Promise.all([1, 2, 3].map(() => app.client.createSandbox()));
  const [first, second] = sandboxes.map(({ sandbox_id: id }) => id) as [string, string];
  const streaming = app.client.exec(first, "trap '' TERM; while :; do echo busy; sleep 0.1; done");
  const silent = app.client.exec(second, "sleep 600");
  const collected = failureOf(app.client.run(second, "sleep 600"));
  const watch = app.client.stream("SandboxService/WatchEvents");
  const watched = new Promise<number>((resolve) =>
    watch.on("error", ({ code }: { code: number }) => resolve(code)),
  );
  watch.resume();
  await streaming.until("busy");
  await silent.processId;
  await expectContainers(app.instance, 3);

  const end = await app.terminate();

  expect(end).toMatchObject({ exitCode: 0, left: [] });
  expect(end.tookMs).toBeLessThan(STOP_TIMEOUT_MS + SLACK_MS);
  expect(await containersOf(app.instance)).toEqual([]);
  expect((await failureOf(streaming.result)).code).toBe("UNAVAILABLE");
  expect((await failureOf(silent.result)).code).toBe("UNAVAILABLE");
  expect((await collected).code).toBe("UNAVAILABLE");
  expect(await watched).toBe(14);
});

test("SIGTERM during creates leaves no container", async () => {
  const app = await startChild();
  const creates = [0, 50, 100, 150, 200].map(async (delayMs) => {
    await sleep(delayMs);
    await app.client.createSandbox();
  });
  const outcomes = Promise.allSettled(creates);
  await sleep(230);
  const end = await app.terminate();
  expect(end).toMatchObject({ exitCode: 0, left: [] });
  expect(end.tookMs).toBeLessThan(STOP_TIMEOUT_MS + SLACK_MS);
  await outcomes;
  await expectNoContainers(app.instance);
});

test("with leaveSandboxes they stay, and what runs in them goes on", async () => {
  const app = await startChild({ leaveSandboxes: true });
  const { sandbox_id: id } = await app.client.createSandbox();
  const detached = app.client.exec(id, "while :; do date +%s.%N >now; sleep 0.05; done", {
    on_disconnect: "ON_DISCONNECT_DETACH",
  });
  await detached.processId;

  const end = await app.terminate();

  expect(end).toMatchObject({ exitCode: 0, left: [id] });
  expect(end.tookMs).toBeLessThan(STOP_TIMEOUT_MS + SLACK_MS);
  const [container, ...others] = await containersOf(app.instance);
  expect(others).toEqual([]);
  expect(container?.State).toBe("running");
  const { Processes: rows } = await docker.getContainer(container?.Id ?? "").top();
  expect(rows.flat().join("\n")).toContain("date +%s.%N");
});
