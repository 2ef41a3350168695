import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const SOAK = fileURLToPath(new URL("../../../bench/soak.ts", import.meta.url));

test("after many short-lived sandboxes the service is back where it began: descriptors, sandboxes, operations, rows", async () => {
  // If something is left, it exits with 1, and prints what.
  const args = [SOAK, "--engine", "bubblewrap", "--lives", "20"];
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 570_000 });
  expect(stdout).toContain("20 lives on bubblewrap");
  expect(stdout).toContain("| sandboxes, operations | 0, 0 | 0, 0 |");
  expect(stdout).toContain("| rows of live sandboxes | 0 | 0 |");
}, 600_000);
