import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import { isExiting } from "../../../../src/engine/outside/host-process.ts";

test("a killed process is exiting from then on, also while it takes the signal", async () => {
  // It takes the signal at any of these looks.
  for (let count = 0; count < 150; count++) {
    const child = spawn("sleep", ["600"]);
    await once(child, "spawn");
    const { pid = 0 } = child;
    expect(isExiting(pid)).toBe(false);
    child.kill("SIGKILL");
    const looks = Array.from({ length: 12 }, () => isExiting(pid));
    expect(looks).not.toContain(false);
    await once(child, "exit");
  }
});
