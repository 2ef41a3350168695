import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { expectNoContainers, useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { seconds } from "../../support/wire.ts";

const app = useApp();

afterEach(async () => {
  await expectNoContainers(app.instance);
  expect(await app.client.call("SandboxService/GetStats")).toMatchObject({
    total_sandboxes: 0,
    active_operations: 0,
  });
});

test("a deleted sandbox is removed, and stays readable with its cause", async () => {
  const { sandbox_id: id } = await app.client.createSandbox();
  await app.client.deleteSandbox(id);
  await expectNoContainers(app.instance);
  const gone = await app.client.getSandbox(id);
  expect(gone).toMatchObject({
    state: "SANDBOX_STATE_TERMINATED",
    expire_time: null,
    termination: { cause: "TERMINATION_CAUSE_DELETED", message: expect.stringMatching(/\w/) },
  });
});

test("deleting an already deleted sandbox, or one that never existed, succeeds", async () => {
  const { sandbox_id: id } = await app.client.createSandbox();
  await app.client.deleteSandbox(id);
  await app.client.deleteSandbox(id);
  await app.client.deleteSandbox("sbx_there-was-never-one");
});

test("concurrent deletes of one sandbox all return when it is removed", async () => {
  const { sandbox_id: id } = await app.client.createSandbox();
  await Promise.all(Array.from({ length: 10 }, () => app.client.deleteSandbox(id)));
  await expectNoContainers(app.instance);
  const events = await terminations(id);
  expect(events).toEqual(["SANDBOX_EVENT_TYPE_TERMINATED"]);
});

for (const afterMs of [5, 80, 200]) {
  test(`a delete ${afterMs} ms into the create ends it`, async () => {
    const id = `caller's-own-${afterMs}`;
    const creating = app.client.call("SandboxService/CreateSandbox", { sandbox_id: id });
    creating.catch(() => {});
    await sleep(afterMs);
    await app.client.deleteSandbox(id);
    const outcome = await creating.then(
      () => "created",
      () => failureOf(creating),
    );
    // A create that was complete before the delete has reported it.
    if (outcome !== "created") expect(outcome).toMatchObject({ code: "ABORTED", reason: "SANDBOX_DELETED" });
    const gone = await app.client.getSandbox(id);
    expect(gone).toMatchObject({ state: "SANDBOX_STATE_TERMINATED" });
    if (outcome !== "created") expect(gone.termination?.cause).toBe("TERMINATION_CAUSE_DELETED");
  });
}

test("a delete waits for a command that ends within the grace period", async () => {
  const { sandbox_id: id } = await app.client.createSandbox();
  const running = app.client.exec(id, "echo started; read -r go; echo done", { keep_stdin_open: true });
  await running.until("started");
  const deleting = app.client.call("SandboxService/DeleteSandbox", { sandbox_id: id, grace: seconds(60) });
  await eventually(async () => (await app.client.getSandbox(id)).state === "SANDBOX_STATE_DELETING");
  const refused = await failureOf(app.client.run(id, "true"));
  expect(refused).toMatchObject({ code: "FAILED_PRECONDITION", reason: "SANDBOX_NOT_RUNNING" });
  const go = { process_id: await running.processId, data: Buffer.from("go\n") };
  await app.client.call("ProcessService/WriteStdin", go);
  const { exit, stdout } = await running.result;
  expect(exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 0 });
  expect(stdout.toString()).toBe("started\ndone\n");
  await deleting;
});

test("a delete ends commands that exceed the grace period, and they report it", async () => {
  const { sandbox_id: id } = await app.client.createSandbox();
  const running = app.client.exec(id, "echo started; sleep 600");
  const reader = app.client.exec(id, ["cat"], { keep_stdin_open: true });
  const collected = app.client.run(id, "sleep 600");
  const started = await running.processId;
  await running.until("started");
  // More than a pipe holds, for a process that does not read.
  const stuck = app.client.exec(id, ["sleep", "600"], { keep_stdin_open: true });
  const write = app.client.call("ProcessService/WriteStdin", {
    process_id: await stuck.processId,
    data: Buffer.alloc(3_000_000),
  });
  write.catch(() => {});
  await reader.processId;
  await eventually(async () => (await app.client.getSandbox(id)).active_operations === 4);

  await app.client.call("SandboxService/DeleteSandbox", { sandbox_id: id, grace: seconds(0.3) });

  const terminated = {
    cause: "EXIT_CAUSE_SANDBOX_TERMINATED",
    exit_code: -1,
    message: expect.stringContaining("deleted"),
  };
  expect((await running.result).exit).toMatchObject(terminated);
  expect((await reader.result).exit).toMatchObject(terminated);
  expect((await stuck.result).exit).toMatchObject(terminated);
  expect((await collected).exit_status).toMatchObject(terminated);
  expect(["ABORTED", "FAILED_PRECONDITION"]).toContain((await failureOf(write)).code);
  // Its output stays readable.
  const { stdout } = await app.client.attach(started).result;
  expect(stdout.toString()).toBe("started\n");
  expect(await failureOf(app.client.run(id, "true"))).toMatchObject({
    code: "FAILED_PRECONDITION",
    reason: "SANDBOX_NOT_RUNNING",
  });
});

test("a second delete may shorten the first one's grace period", async () => {
  const { sandbox_id: id } = await app.client.createSandbox();
  const running = app.client.exec(id, "sleep 600");
  await running.processId;
  const patient = app.client.call("SandboxService/DeleteSandbox", { sandbox_id: id, grace: seconds(300) });
  await eventually(async () => (await app.client.getSandbox(id)).state === "SANDBOX_STATE_DELETING");
  await app.client.call("SandboxService/DeleteSandbox", { sandbox_id: id, grace: seconds(0) });
  await patient;
  expect((await running.result).exit.cause).toBe("EXIT_CAUSE_SANDBOX_TERMINATED");
});

test("a delete continues when its caller leaves", async () => {
  const { sandbox_id: id } = await app.client.createSandbox();
  const running = app.client.exec(id, "read -r go", { keep_stdin_open: true });
  const process_id = await running.processId;
  const abort = new AbortController();
  const deleting = app.client.call(
    "SandboxService/DeleteSandbox",
    { sandbox_id: id, grace: seconds(300) },
    { signal: abort.signal },
  );
  await eventually(async () => (await app.client.getSandbox(id)).state === "SANDBOX_STATE_DELETING");
  abort.abort();
  expect(await failureOf(deleting)).toMatchObject({ code: "CANCELLED" });
  await app.client.call("ProcessService/WriteStdin", { process_id, data: Buffer.from("go\n") });
  await eventually(async () => (await app.client.getSandbox(id)).state === "SANDBOX_STATE_TERMINATED");
});

test("the id of a deleted sandbox may be used again, in the next generation", async () => {
  const first = await app.client.call("SandboxService/CreateSandbox", { sandbox_id: "again" });
  expect(first.sandbox.generation).toBe(1);
  const taken = await failureOf(app.client.call("SandboxService/CreateSandbox", { sandbox_id: "again" }));
  expect(taken).toMatchObject({ code: "ALREADY_EXISTS", reason: "SANDBOX_EXISTS" });
  await app.client.output("again", "echo first >file");
  await app.client.deleteSandbox("again");

  const second = await app.client.call("SandboxService/CreateSandbox", { sandbox_id: "again" });
  expect(second.sandbox).toMatchObject({ sandbox_id: "again", generation: 2, termination: null });
  expect(await app.client.output("again", "ls")).toBe("");
  for (const refused of [
    app.client.run("again", "true", { generation: 1 }),
    app.client.call("SandboxService/KeepAliveSandbox", { sandbox_id: "again", generation: 1 }),
    app.client.call("SandboxService/PauseSandbox", { sandbox_id: "again", generation: 1 }),
    app.client.call("SandboxService/DeleteSandbox", { sandbox_id: "again", generation: 1 }),
  ]) {
    expect(await failureOf(refused)).toMatchObject({
      code: "FAILED_PRECONDITION",
      reason: "SANDBOX_REPLACED",
      message: expect.stringContaining("generation"),
    });
  }
  expect(await app.client.output("again", "echo fine", { generation: 2 })).toBe("fine\n");
  await app.client.deleteSandbox("again");
});

/** Types of the last events in a sandbox's life. */
async function terminations(sandboxId: string): Promise<string[]> {
  const watch = app.client.stream("SandboxService/WatchEvents", { sandbox_id: sandboxId });
  const types: string[] = [];
  watch.on("data", ({ event }) => types.push(event?.type ?? ""));
  watch.on("error", () => {});
  await eventually(() => types.includes("SANDBOX_EVENT_TYPE_TERMINATED"));
  await sleep(50);
  watch.cancel();
  return types.filter((type) => type === "SANDBOX_EVENT_TYPE_TERMINATED");
}
