import { setTimeout as sleep } from "node:timers/promises";
import { queryObjects } from "node:v8";
import { beforeAll, expect, test } from "vitest";
import { DockerEngine } from "../../../../src/engine/docker/engine.ts";
import { DockerLink } from "../../../support/docker-link.ts";
import { newInstance } from "../../../support/settings.ts";
import { run, silent, spec, useEngine } from "./support.ts";

// What every engine must pass is in test/contract/engine.
const { engine } = useEngine();
let ref = "";

beforeAll(async () => {
  ref = (await engine.create(spec())).ref;
});

test("a paused flow stops the writer and takes no memory; resumed, it delivers the rest", async () => {
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

test("a write to stdin that had to wait leaves nothing behind", async () => {
  const ended = Promise.withResolvers<Error | undefined>();
  const spawned = await engine.spawn(ref, { argv: ["cat"], stdin: true }, { data() {}, end: ended.resolve });
  const write = async (times: number): Promise<void> => {
    for (let i = 0; i < times; i++) await spawned.writeStdin(Buffer.alloc(256 * 1024));
  };
  await write(1);
  const before = queryObjects(Promise, { format: "count" });
  await write(200);
  expect(queryObjects(Promise, { format: "count" }) - before).toBeLessThan(100);
  spawned.closeStdin();
  await ended.promise;
});

test("output that looks like Docker's own report stays output", async () => {
  const imitation =
    'OCI runtime exec failed: exec failed: exec: "x": executable file not found in $PATH: unknown\r\n';
  const outcome = await run(engine, ref, ["sh", "-c", 'printf %s "$1"; exit 126', "sh", imitation]);
  expect(outcome.exitCode).toBe(126);
  expect(outcome.stdout.toString()).toBe(imitation);
});

test("a connection that Docker closes with unread stdin loses no output", async () => {
  const link = await DockerLink.open({ unread: true });
  const through = new DockerEngine({ instance: newInstance(), logger: silent, host: link.host });
  try {
    for (let i = 0; i < 10; i++) {
      const ended = Promise.withResolvers<Error | undefined>();
      const chunks: Buffer[] = [];
      const argv = ["sh", "-c", `until [ -e /tmp/go-${i} ]; do sleep 0.05; done; echo done; exit 3`];
      const sink = { data: (_: unknown, chunk: Buffer) => chunks.push(chunk), end: ended.resolve };
      const input = Buffer.alloc(i % 2 === 0 ? 0 : 1_000_000);
      const spawned = await through.spawn(ref, { argv, stdin: true, input }, sink);
      const written = spawned.writeStdin(Buffer.alloc(2_000_000)).catch(() => {});
      // The connection may close while the output that has arrived is not read yet, as on a busy machine.
      if (i % 3 === 0) spawned.pause();
      // If it ended before, nothing might be unread.
      expect((await run(engine, ref, ["touch", `/tmp/go-${i}`])).exitCode).toBe(0);
      expect(await ended.promise).toBeUndefined();
      expect(Buffer.concat(chunks).toString()).toBe("done\n");
      expect(await spawned.wait()).toBe(3);
      await written;
    }
  } finally {
    await through.close();
    await link.close();
  }
});
