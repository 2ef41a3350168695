import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { armFailpoints } from "../../../src/base/failpoints.ts";
import { directoryOf } from "../../support/workspaces.ts";
import { OWNER } from "../../unit/sandboxes/support.ts";
import { openWorkspaces } from "./support.ts";

const never = new AbortController().signal;
const named = (workspaceId: string) => ({ owner: OWNER, workspaceId });

test("what the server does not know outlives a fork in its place, even if the service crashes in it", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-foreign-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const crashed = await openWorkspaces(directory);
  await crashed.workspaces.create(named("source"));
  const foreign = path.join(directoryOf(path.join(directory, "workspaces"), "fork"), "foreign");
  await mkdir(foreign, { recursive: true });
  armFailpoints((name) => {
    if (name === "fork.intended") throw new Error("the service crashed");
  });
  onTestFinished(() => armFailpoints(() => {}));
  const fork = crashed.forks.fork(named("source"), named("fork"), { signal: never });
  const error = await fork.catch((thrown: unknown) => thrown);
  await crashed.close();
  const next = await openWorkspaces(directory);
  expect(existsSync(foreign)).toBe(true);
  expect(error).toMatchObject({ reason: "WORKSPACE_BROKEN" });
  await next.close();
});
