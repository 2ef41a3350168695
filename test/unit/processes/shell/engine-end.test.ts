import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import type { SpawnedProcess } from "../../../../src/engine/port.ts";
import { endFromEngine } from "../../../../src/processes/shell/shell-job.ts";
import { connection, halt } from "../../../support/halt.ts";

test("output that arrived before the end that the engine reports is taken, also after a halt of the machine", async () => {
  const [near, far] = await connection();
  let output = "";
  let isOver = false;
  near.on("data", (chunk) => (output += chunk)).on("end", () => (isOver = true));
  const spawned = { wait: async () => 0 } as unknown as SpawnedProcess;
  const ending = endFromEngine(
    spawned,
    { isOver: () => isOver, isPaused: () => false },
    new AbortController().signal,
  );
  await setImmediate();
  far.end("last words");
  halt(1_000);
  expect(await ending).toEqual({ kind: "exited", code: 0 });
  expect({ output, isOver }).toEqual({ output: "last words", isOver: true });
});
