import { setTimeout as sleep } from "node:timers/promises";
import { beforeAll, expect, test } from "vitest";
import { run, spec, useEngine } from "./support.ts";

// What holds on every engine is in test/contract/engine.
const { engine } = useEngine();
let ref = "";

beforeAll(async () => {
  ref = (await engine.create(spec())).ref;
});

test("a paused flow stops the writer and takes no memory; resumed, it brings the rest", async () => {
  let bytes = 0;
  const ended = Promise.withResolvers<Error | undefined>();
  const spawned = await engine.spawn(
    ref,
    { argv: ["sh", "-c", "head -c 200000000 /dev/zero; echo $? >/tmp/wrote"], stdin: false },
    {
      data(_, chunk) {
        bytes += chunk.length;
      },
      end: ended.resolve,
    },
  );
  spawned.pause();
  await sleep(300);
  const atPause = bytes;
  const memory = process.memoryUsage().rss;
  await sleep(700);
  expect(bytes).toBe(atPause);
  expect(process.memoryUsage().rss - memory).toBeLessThan(16 << 20);
  expect((await run(engine, ref, ["test", "-e", "/tmp/wrote"])).exitCode).toBe(1);
  spawned.resume();
  expect(await ended.promise).toBeUndefined();
  expect(await spawned.wait()).toBe(0);
  expect(bytes).toBe(200_000_000);
});

test("output that looks like Docker's own report stays output", async () => {
  const imitation =
    'OCI runtime exec failed: exec failed: exec: "x": executable file not found in $PATH: unknown\r\n';
  const outcome = await run(engine, ref, ["sh", "-c", 'printf %s "$1"; exit 126', "sh", imitation]);
  expect(outcome.exitCode).toBe(126);
  expect(outcome.stdout.toString()).toBe(imitation);
});
