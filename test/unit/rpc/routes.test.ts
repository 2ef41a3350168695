import type { DescMethod } from "@bufbuild/protobuf";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { RunService } from "../../../gen/ts/berth/v1/run_pb.js";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { SessionService } from "../../../gen/ts/berth/v1/session_pb.js";
import { WorkspaceService } from "../../../gen/ts/berth/v1/workspace_pb.js";
import { METHOD_WORK } from "../../../src/rpc/routes.ts";
import { FairQueue } from "../../../src/server/fair-queue.ts";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance", "setTimeout", "clearTimeout", "setImmediate"] });
});
afterEach(() => {
  vi.useRealTimers();
});

function call(tenant: string, { parent, name }: DescMethod) {
  const principal = { owner: tenant, tenant, tokenId: "", tokenHash: undefined, scope: "user" } as const;
  return { principal, method: `${parent.typeName}/${name}`, signal: new AbortController().signal };
}

test.each([
  ["CreateSandbox", SandboxService.method.createSandbox, 1000],
  ["EnsureWorkspaceSandbox", WorkspaceService.method.ensureWorkspaceSandbox, 1000],
  ["CreateSessions", SessionService.method.createSessions, 1000],
  ["ReinitializeSession", SessionService.method.reinitializeSession, 1000],
  ["StartRun", RunService.method.startRun, 1000],
  ["CreateRun", RunService.method.createRun, 10],
] as const)(
  "%s: a tenant's next call starts after the turn that its work has",
  async (_name, method, turnMs) => {
    const queue = new FairQueue(METHOD_WORK);
    queue.enter(call("bob", method));
    expect(queue.enter(call("ann", method))).toBe(undefined);
    let began = false;
    queue.enter(call("ann", method))?.then(() => {
      began = true;
    });
    await vi.advanceTimersByTimeAsync(turnMs - 1);
    expect(began).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(began).toBe(true);
  },
);
