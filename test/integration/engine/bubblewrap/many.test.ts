import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { scaled } from "../../../support/scale.ts";
import { run, spec } from "../docker/support.ts";
import { useBubblewrap } from "./support.ts";

const engine = useBubblewrap();
const count = scaled(200, 20);

test(`${count} sandboxes at once each run a command of their own, and all are removed`, {
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
  expect(sandboxProcesses().filter((command) => command === "bwrap")).toHaveLength(2 * count);
  console.info(`${count} made, each with a command: ${Math.round(performance.now() - begun)} ms`);
  await Promise.all(made.map(({ ref }) => engine.remove(ref)));
  expect(await engine.list()).toEqual([]);
  await expect.poll(sandboxProcesses).toEqual([]);
});

/** The live processes that this process's launchers started, and their descendants. */
function sandboxProcesses(): string[] {
  const all = readdirSync("/proc").flatMap((name) => {
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "latin1");
      const [, command = "", state, parent] = /\((.*)\) (\S) (\d+)/s.exec(stat) ?? [];
      return state === "Z" ? [] : [{ pid: Number(name), parent: Number(parent), command }];
    } catch {
      return [];
    }
  });
  const below = (pids: readonly number[]): typeof all => {
    const children = all.filter(({ parent }) => pids.includes(parent));
    return children.length === 0 ? [] : [...children, ...below(children.map(({ pid }) => pid))];
  };
  const launchers = all.filter(({ parent, command }) => parent === process.pid && command === "xargs");
  expect(launchers.length).toBeGreaterThan(0);
  return below(launchers.map(({ pid }) => pid)).map(({ command }) => command);
}
