import { expect, test } from "vitest";
import { toWireSandbox } from "../../../../src/rpc/convert/sandbox.ts";
import { toWireWorkspace } from "../../../../src/rpc/convert/workspace.ts";
import type { SandboxView } from "../../../../src/sandboxes/sandbox.ts";
import type { WorkspaceView } from "../../../../src/workspaces/workspace.ts";

// A retry with a known request id gets the answer that the service stored, perhaps before it was upgraded.

test("a sandbox without domains and secrets, as earlier versions stored it in answers", () => {
  const stored = {
    ...{ owner: "me", sandboxId: "box", generation: 1, state: "RUNNING", engine: "docker" },
    ...{ isolation: "CONTAINER", createTimeMs: 1, lastUsedTimeMs: 2, expireTimeMs: 3, activeOperations: 0 },
    spec: {
      ...{ image: "image", env: { A: "b" }, workingDir: "/workspace", user: "", network: "NONE", mounts: [] },
      resources: { memoryBytes: 1, cpuMillis: 2, pidsLimit: 3 },
      ...{ labels: {}, idleTimeoutMs: 4, commandTimeoutMs: 5, runtime: "" },
    },
  } as unknown as SandboxView;
  expect(() => toWireSandbox(stored)).not.toThrow();
  expect(toWireSandbox(stored).spec).toMatchObject({
    ...{ image: "image", env: { A: "b" }, egressDomains: [], secretEnv: {} },
  });
});

test("a workspace that does not say whether it has a shared directory, as when each had one", () => {
  const stored = {
    ...{ owner: "me", workspaceId: "job", path: "/w/job", traceRefs: [], sandboxId: "" },
    ...{ createTimeMs: 1, updateTimeMs: 2, quotaEnforcement: "NONE" },
  } as unknown as WorkspaceView;
  expect(toWireWorkspace(stored, ["trace"])).toMatchObject({
    ...{ workspaceId: "job", traceRefs: ["trace"], hasShared: true },
  });
});
