import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { scaled } from "../../support/scale.ts";
import { run, spec } from "../docker/support.ts";
import { useBubblewrap } from "./support.ts";

const engine = useBubblewrap();
const count = scaled(200, 20);

test(`${count} sandboxes at once each run a command of their own, and all go`, {
  timeout: 300_000,
}, async () => {
  const begun = performance.now();
  const made = await Promise.all(
    Array.from({ length: count }, (_, i) => engine.create(spec({ env: { MINE: String(i) } }))),
  );
  expect(await engine.list()).toHaveLength(count);
  const outcomes = await Promise.all(
    made.map(({ ref }) => run(engine, ref, ["sh", "-c", "echo $MINE >/tmp/f; cat /tmp/f"])),
  );
  expect(outcomes.map(({ exitCode, stdout }) => [exitCode, stdout.toString()])).toEqual(
    made.map((_, i) => [0, `${i}\n`]),
  );
  console.info(`${count} made, each with a command: ${Math.round(performance.now() - begun)} ms`);
  await Promise.all(made.map(({ ref }) => engine.remove(ref)));
  expect(await engine.list()).toEqual([]);
  expect(sandboxProcesses()).toEqual([]);
});

/** Programs that are children of this process and make or enter sandboxes. */
function sandboxProcesses(): string[] {
  return readdirSync("/proc").flatMap((name) => {
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "latin1");
      const [, command = "", state, parent] = /\((.*)\) (\S) (\d+)/s.exec(stat) ?? [];
      const mine = parent === String(process.pid) && state !== "Z";
      return mine && /^(bwrap|nsenter)$/.test(command) ? [command] : [];
    } catch {
      return [];
    }
  });
}
