import { expect, test } from "vitest";
import { recordingDir } from "../../../src/sessions/types/vm/recording.ts";

test.each([
  [
    "in the working directory",
    "/workspace/app",
    "/workspace",
    "vm_ann_001_0a1b2c3d",
    "/workspace/app/recordings/vm_ann_001_0a1b2c3d",
  ],
  [
    "anywhere, where all files stay",
    "/tmp",
    "/",
    "vm_ann_001_0a1b2c3d",
    "/tmp/recordings/vm_ann_001_0a1b2c3d",
  ],
  [
    "in the workspace, where the directory is elsewhere",
    "/tmp",
    "/workspace",
    "vm_1",
    "/workspace/recordings/vm_1",
  ],
  ["not next to it", "/workspaces", "/workspace", "vm_1", "/workspace/recordings/vm_1"],
  [
    "in one directory, whatever the worker is called",
    "/w",
    "/w",
    "vm_../a b\n_001_1f",
    "/w/recordings/vm_.._a_b__001_1f",
  ],
])("a recording is %s", (_, workingDir, keptDir, sessionId, directory) => {
  expect(recordingDir(workingDir, keptDir, sessionId)).toBe(directory);
});

test("the name of its directory is short enough for a file system, and ends like the session's id", () => {
  const name = recordingDir("/w", "/w", `vm_${"worker".repeat(100)}_001_0a1b2c3d`).slice(
    "/w/recordings/".length,
  );
  expect(name.length).toBeLessThanOrEqual(255);
  expect(name).toMatch(/_001_0a1b2c3d$/);
});
