import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { RequestedSpec } from "../../../src/sandboxes/spec.ts";
import { eventually } from "../../support/eventually.ts";
import { OWNER } from "../../unit/sandboxes/support.ts";
import { openWorkspaces } from "./support.ts";

const SPEC: RequestedSpec = {};
const never = new AbortController().signal;

let directory = "";
let service: Awaited<ReturnType<typeof openWorkspaces>>;
beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), "berth-locks-"));
  service = await openWorkspaces(directory);
});
afterAll(async () => {
  await service.close();
  await rm(directory, { recursive: true, force: true });
});

test("a workspace whose sandbox is slow to create or remove blocks no other workspace, and no call but its own", async () => {
  const { workspaces, ensurer, engine } = service;
  const named = (workspaceId: string) => ({ owner: OWNER, workspaceId });
  const cleanup = { force: true, graceMs: 0, requestId: "" };
  await ensurer.ensure(named("removed"), SPEC, never);
  const held = Promise.withResolvers<void>();
  let waiting = 0;
  engine.before = async (step) => {
    if (step !== "create" && step !== "remove") return;
    waiting++;
    await held.promise;
  };
  const made = ensurer.ensure(named("made"), SPEC, never);
  const removed = workspaces.cleanup(named("removed"), cleanup);
  const added = workspaces.addReference(named("made"), "late");
  let late = false;
  added.finally(() => {
    late = true;
  });
  const others = async (): Promise<string> => {
    await eventually(() => waiting === 2);
    engine.before = async () => {};
    await ensurer.ensure(named("other"), SPEC, never);
    await workspaces.addReference(named("other"), "trace");
    await workspaces.removeReference(named("other"), "trace");
    await ensurer.stop(named("other"), 0);
    await workspaces.cleanup(named("other"), cleanup);
    await workspaces.get(named("made"), { measure: false, signal: never });
    await workspaces.list(OWNER, "", 10);
    return "passed";
  };
  // Against hangs only.
  const waited = sleep(120_000, "waited", { ref: false });
  expect(await Promise.race([others().catch(() => "waited"), waited])).toBe("passed");
  // Calls for the same workspace wait.
  expect(late).toBe(false);
  held.resolve();
  expect((await made).sandbox?.state).toBe("RUNNING");
  expect((await removed).workspace).toBeUndefined();
  await added;
  expect(workspaces.references(named("made"))).toEqual(["late"]);
});
