import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import type { Obstacle, OutputSink, OutsideControl, ProcessName } from "../../../../src/engine/port.ts";
import { eventually } from "../../../support/eventually.ts";
import { spec, useEngine } from "./support.ts";

const { engine } = useEngine();

/** Prints its pid and start time, then repeatedly stops every process it sees except itself and process 1. */
const STOP_ALL = `read -r x </proc/$$/stat; set -- \${x##*) }; printf '%s:%s;' $$ \${20}
while :; do for p in /proc/[0-9]*; do p=\${p#/proc/}; [ $p = 1 ] || [ $p = $$ ] || kill -STOP $p; done; done 2>/dev/null`;

async function stopEverything(ref: string): Promise<ProcessName> {
  let said = "";
  const request = { argv: ["/bin/sh", "-c", STOP_ALL], stdin: false };
  await engine.spawn(ref, request, { data: (_, chunk) => (said += chunk), end() {} });
  await eventually(() => said.includes(";"));
  const [pid, startTime = ""] = said.slice(0, said.indexOf(";")).split(":");
  return { pid: Number(pid), startTime };
}

test("a start that is stopped halfway continues once nothing stops it", async () => {
  const { ref } = await engine.create(spec());
  onTestFinished(() => engine.remove(ref));
  const outside = (await engine.outside(ref)) as OutsideControl;
  // It may be stopped before or after it joins the container's control group, and on a slow machine sometimes not at
  // all.
  let stopped = 0;
  for (let round = 0; round < 200 && stopped < 10; round++) {
    const attacker = await stopEverything(ref);
    let output = "";
    const ended = Promise.withResolvers<void>();
    const sink: OutputSink = { data: (_, chunk) => (output += chunk), end: () => ended.resolve() };
    let hasStarted = false;
    const starting = engine.spawn(ref, { argv: ["echo", "started"], stdin: false }, sink).finally(() => {
      hasStarted = true;
    });
    starting.catch(() => {});
    let obstacle: Obstacle | undefined;
    for (let look = 0; look < 1_000 && obstacle === undefined && !hasStarted; look++) {
      await sleep(50);
      obstacle = await outside.obstacle(60_000);
    }
    if (obstacle !== undefined && !hasStarted) {
      expect(obstacle).toBe("stopped");
      stopped++;
    }
    await outside.killTree(attacker);
    await expect(starting).resolves.toBeDefined();
    (await starting).resume();
    // On a busy machine the signal may come when the start is over and the program has not ended. Nothing is to
    // continue that by itself.
    await outside.continueStarts(60_000);
    await ended.promise;
    expect(output).toBe("started\n");
  }
  expect(stopped).toBe(10);
}, 300_000);
