import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { expectNoContainers, useApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { inSeconds, type Sandbox, seconds } from "../../support/wire.ts";

const app = useApp();

afterEach(() => expectNoContainers(app.instance));

function ended(id: string): Promise<Sandbox> {
  return eventually(async () => {
    const sandbox = await app.client.getSandbox(id);
    return sandbox.state === "SANDBOX_STATE_TERMINATED" ? sandbox : undefined;
  });
}

/** Changes a sandbox's idle timeout. Set short from the start, it would pass before a busy machine uses the sandbox. */
const setIdleTimeout = (id: string, timeout: number) =>
  app.client.call("SandboxService/UpdateSandbox", {
    sandbox_id: id,
    update_mask: { paths: ["idle_timeout"] },
    idle_timeout: seconds(timeout),
  });

test("an unused sandbox expires when its idle timeout has passed, not before", async () => {
  const { sandbox_id: id } = await app.client.createSandbox({ idle_timeout: seconds(1) });
  const { last_used_time, termination } = await ended(id);
  expect(termination).toMatchObject({ cause: "TERMINATION_CAUSE_IDLE_TIMEOUT" });
  expect(termination?.message).toContain("idle_timeout");
  const idle = inSeconds(termination?.time) - inSeconds(last_used_time);
  expect(idle).toBeGreaterThan(0.999);
  expect(idle).toBeLessThan(60);
});

test("a sandbox in use stays, however long; its idle time starts when the use ends", async () => {
  const { sandbox_id: id } = await app.client.createSandbox();
  const running = app.client.exec(id, "read -r go; echo done", { keep_stdin_open: true });
  const process_id = await running.processId;
  await setIdleTimeout(id, 0.5);
  await sleep(2_000);
  expect(await app.client.getSandbox(id)).toMatchObject({ expire_time: null, active_operations: 1 });
  await app.client.call("ProcessService/WriteStdin", { process_id, data: Buffer.from("go\n") });
  const { stdout, exit } = await running.result;
  expect(stdout.toString()).toBe("done\n");
  expect(exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 0 });
  const { create_time, last_used_time, termination } = await ended(id);
  expect(termination?.cause).toBe("TERMINATION_CAUSE_IDLE_TIMEOUT");
  expect(inSeconds(last_used_time) - inSeconds(create_time)).toBeGreaterThan(2);
  expect(inSeconds(termination?.time) - inSeconds(last_used_time)).toBeGreaterThan(0.499);
});

test("a detached process keeps its sandbox just as an attached one does", async () => {
  const { sandbox_id: id } = await app.client.createSandbox();
  const running = app.client.exec(id, "sleep 1.5", { on_disconnect: "ON_DISCONNECT_DETACH" });
  const processId = await running.processId;
  await setIdleTimeout(id, 0.5);
  running.cancel();
  const { exit } = await app.client.attach(processId).result;
  expect(exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 0 });
  await ended(id);
});

test("every use and every keep-alive restarts the idle time", async () => {
  const { sandbox_id: id } = await app.client.createSandbox({ idle_timeout: seconds(600) });
  let before = 0;
  for (let i = 0; i < 4; i++) {
    await sleep(50);
    if (i % 2 === 0) await app.client.output(id, "true");
    else await app.client.call("SandboxService/KeepAliveSandbox", { sandbox_id: id });
    const { last_used_time, expire_time } = await app.client.getSandbox(id);
    expect(inSeconds(last_used_time)).toBeGreaterThan(before);
    expect(inSeconds(expire_time) - inSeconds(last_used_time)).toBeCloseTo(600, 1);
    before = inSeconds(last_used_time);
  }
  await setIdleTimeout(id, 0.5);
  // Neither reading nor updating it counts as use.
  expect((await ended(id)).last_used_time).toEqual(expect.objectContaining({ seconds: Math.floor(before) }));
});

test("a sandbox ends at its max_lifetime although it is in use, and its commands report it", async () => {
  const { sandbox_id: id } = await app.client.createSandbox({ max_lifetime: seconds(600) });
  const running = app.client.exec(id, "sleep 600");
  await running.processId;
  // With such a short lifetime from the start, a command could not start in time on a busy machine.
  await app.client.call("SandboxService/UpdateSandbox", {
    sandbox_id: id,
    update_mask: { paths: ["max_lifetime"] },
    max_lifetime: seconds(1),
  });
  const { create_time, termination } = await ended(id);
  expect(termination).toMatchObject({ cause: "TERMINATION_CAUSE_MAX_LIFETIME" });
  expect(termination?.message).toContain("max_lifetime");
  expect(inSeconds(termination?.time) - inSeconds(create_time)).toBeLessThan(300);
  expect((await running.result).exit.cause).toBe("EXIT_CAUSE_SANDBOX_TERMINATED");
});

test("a sandbox ends at the max_lifetime it was created with", async () => {
  const { sandbox_id: id } = await app.client.createSandbox({ max_lifetime: seconds(1) });
  expect((await ended(id)).termination).toMatchObject({ cause: "TERMINATION_CAUSE_MAX_LIFETIME" });
});

test("UpdateSandbox moves a deadline, nearer and farther", async () => {
  const { sandbox_id: id } = await app.client.createSandbox();
  // In use, it does not expire before its deadline has moved.
  const running = app.client.exec(id, ["cat"], { keep_stdin_open: true });
  const process_id = await running.processId;
  expect((await setIdleTimeout(id, 1)).sandbox.spec.idle_timeout).toEqual(seconds(1));
  await setIdleTimeout(id, 600);
  await app.client.call("ProcessService/WriteStdin", { process_id, close: true });
  await running.result;
  await sleep(1_500);
  expect((await app.client.getSandbox(id)).state).toBe("SANDBOX_STATE_RUNNING");
  await setIdleTimeout(id, 0.1);
  expect((await ended(id)).termination?.cause).toBe("TERMINATION_CAUSE_IDLE_TIMEOUT");
});

test("a paused sandbox expires too", async () => {
  const { sandbox_id: id } = await app.client.createSandbox();
  await app.client.call("SandboxService/PauseSandbox", { sandbox_id: id });
  await setIdleTimeout(id, 0.5);
  expect((await ended(id)).termination?.cause).toBe("TERMINATION_CAUSE_IDLE_TIMEOUT");
});
