import { afterEach, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import type { Request } from "../../support/client.ts";
import { failureOf } from "../../support/client.ts";
import { containerOf } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { MISSING_IMAGE } from "../../support/images.ts";
import { type SandboxEvent, seconds, type WatchEventsResponse } from "../../support/wire.ts";

const app = useApp();
const open: Watch[] = [];

afterEach(() => {
  for (const watch of open.splice(0)) watch.cancel();
});

/** Collects a stream of events. */
class Watch {
  readonly items: WatchEventsResponse[] = [];
  readonly #call;

  constructor(request: Request) {
    this.#call = app.client.stream("SandboxService/WatchEvents", request);
    this.#call.on("data", (item) => this.items.push(item));
    this.#call.on("error", () => {});
    open.push(this);
  }

  get events(): SandboxEvent[] {
    return this.items.flatMap(({ event }) => event ?? []);
  }

  get types(): string[] {
    return this.events.map(({ type }) => type.replace("SANDBOX_EVENT_TYPE_", ""));
  }

  until(type: string): Promise<SandboxEvent> {
    return eventually(() => this.events.find((event) => event.type === `SANDBOX_EVENT_TYPE_${type}`), {
      describe: () => this.types,
    });
  }

  cancel(): void {
    this.#call.cancel();
  }
}

test("a sandbox's whole life is reported in order, with growing sequences, the same to early and late watchers", async () => {
  const { client } = app;
  const early = new Watch({ sandbox_id: "life" });
  await client.call("SandboxService/CreateSandbox", { sandbox_id: "life" });
  const name = { sandbox_id: "life" };
  await client.call("SandboxService/PauseSandbox", name);
  await client.call("SandboxService/PauseSandbox", name);
  await client.call("SandboxService/ResumeSandbox", name);
  await client.call("SandboxService/UpdateSandbox", { ...name, update_mask: { paths: ["labels"] } });
  await client.deleteSandbox("life");
  await early.until("TERMINATED");

  expect(early.types).toEqual([
    "CREATING",
    "RUNNING",
    "PAUSED",
    "RESUMED",
    "UPDATED",
    "DELETING",
    "TERMINATED",
  ]);
  const sequences = early.events.map(({ sequence }) => sequence);
  expect(sequences).toEqual([...new Set(sequences)].sort((a, b) => a - b));
  for (const event of early.events) expect(event).toMatchObject({ sandbox_id: "life", generation: 1 });
  for (const type of ["DELETING", "TERMINATED"]) {
    expect((await early.until(type)).termination).toMatchObject({ cause: "TERMINATION_CAUSE_DELETED" });
  }

  const late = new Watch({ sandbox_id: "life" });
  await late.until("TERMINATED");
  expect(late.events).toEqual(early.events);

  // Continues where an earlier watch stopped.
  const resumed = new Watch({ sandbox_id: "life", after_sequence: sequences[3] });
  await resumed.until("TERMINATED");
  expect(resumed.events).toEqual(early.events.slice(4));
});

test("a watcher of one sandbox gets no other's events, and a general one gets all", async () => {
  const { client } = app;
  const [{ sandbox_id: a }, { sandbox_id: b }] = await Promise.all([
    client.createSandbox(),
    client.createSandbox(),
  ]);
  const onlyA = new Watch({ sandbox_id: a });
  const all = new Watch({});
  await Promise.all([client.deleteSandbox(a), client.deleteSandbox(b)]);
  await onlyA.until("TERMINATED");
  await eventually(() =>
    [a, b].every((one) => all.events.filter(({ sandbox_id: id }) => id === one).length === 4),
  );
  expect(new Set(onlyA.events.map(({ sandbox_id: id }) => id))).toEqual(new Set([a]));
  expect(all.events.filter(({ sandbox_id: id }) => id === a)).toEqual(onlyA.events);
  expect(all.events.map(({ sequence }) => sequence)).toEqual(all.events.map((_, index) => index + 1));
});

test("each kind of end has its cause", async () => {
  const { client } = app;
  const failed = failureOf(
    client.call("SandboxService/CreateSandbox", { sandbox_id: "bad", spec: { image: MISSING_IMAGE } }),
  );
  const { sandbox_id: idle } = await client.createSandbox({ idle_timeout: seconds(0.2) });
  const { sandbox_id: old } = await client.createSandbox({ max_lifetime: seconds(0.2) });
  const { sandbox_id: killed } = await client.createSandbox();
  const { sandbox_id: removed } = await client.createSandbox();
  await (await containerOf(app.instance, killed)).kill();
  await (await containerOf(app.instance, removed)).remove({ force: true });
  await failed;
  const causes = {
    bad: "CREATE_FAILED",
    [idle]: "IDLE_TIMEOUT",
    [old]: "MAX_LIFETIME",
    [killed]: "EXITED",
    [removed]: "REMOVED_EXTERNALLY",
  };
  for (const [id, cause] of Object.entries(causes)) {
    const { termination } = await new Watch({ sandbox_id: id }).until("TERMINATED");
    expect([id, termination?.cause]).toEqual([id, `TERMINATION_CAUSE_${cause}`]);
    expect(termination?.message).toMatch(/\w+ .*\w/);
    expect((await client.getSandbox(id)).termination).toEqual(termination);
  }
});
