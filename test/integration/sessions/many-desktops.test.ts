import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { TestDesktop } from "../../support/desktop.ts";
import { eventually } from "../../support/eventually.ts";
import { Worker } from "../../support/worker.ts";

const GIB = 2 ** 30;
const DESKTOPS = 10;

const app = useApp({ engine: "docker" });

/** Bytes that programs can use without swapping. */
function availableMemory(): number {
  const found = /^MemAvailable:\s+(\d+) kB$/m.exec(readFileSync("/proc/meminfo", "utf8"));
  return Number(found?.[1]) * 1024;
}

test("ten desktops work at once, each with its own programs, and little memory", async () => {
  const before = availableMemory();
  const desktops = Array.from(
    { length: DESKTOPS },
    (_, index) => new TestDesktop(new Worker(app.client, `user ${index}`)),
  );
  const sandboxes = await Promise.all(
    desktops.map(async ({ worker }) => {
      const { session, failure } = await worker.create("vm");
      expect(failure).toBeNull();
      return session?.sandbox_id ?? "";
    }),
  );
  await Promise.all(
    desktops.map(async (desktop, index) => {
      await desktop.open("xterm -e sh -c 'cat > typed'", (window) => window.class === "XTerm");
      await desktop.do("type", { text: `I am ${index}.\n` });
      const sandboxId = sandboxes[index] ?? "";
      // The window appears before the shell in it has created the file.
      await eventually(
        async () => (await app.client.output(sandboxId, "cat typed || true")) === `I am ${index}.\n`,
      );
      const { picture } = await desktop.screenshot();
      expect([picture.width, picture.height]).toEqual([1920, 1080]);
    }),
  );
  const used = before - availableMemory();
  console.log(`ten desktops with an xterm each: ${(used / GIB).toFixed(1)} GiB`);
  expect(used).toBeLessThan(8 * GIB);
  await Promise.all(desktops.map((desktop) => desktop.worker.destroy("vm")));
  const { total_sandboxes: left } = await app.client.call("SandboxService/GetStats", {});
  expect(left).toBe(0);
});
