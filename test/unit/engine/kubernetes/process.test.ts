import { expect, test } from "vitest";
import type { WebSocket } from "ws";
import { BerthError, hasReason } from "../../../../src/base/errors.ts";
import { runPlain, spawnInPod } from "../../../../src/engine/kubernetes/process.ts";
import { SPAWN_EXIT } from "../../../../src/engine/kubernetes/scripts.ts";
import { keptBytes } from "../../../support/kept-bytes.ts";
import { openApi, serveApi } from "../../../support/kubernetes-api.ts";

const CHUNK = Buffer.alloc(32 * 1024, "x");
const MANY = 128;
const GIVEN_UP = 1_500;

function send(socket: WebSocket, channel: number, data: Buffer): void {
  socket.send(Buffer.concat([Buffer.of(channel), data]));
}

/** The nonce of the start, from the request that the script in a pod reads. */
function startNonceIn(request: Buffer): string {
  const [, first, second] = /^\0set -- '\w+''\w+' '(\w+)''(\w+)' /.exec(request.toString()) ?? [];
  return `${first}${second}`;
}

test("what a pod writes before a process starts is read slowly beyond a bound, and arrives once it has started", async () => {
  let drains = 0;
  let stops = 0;
  const cluster = await serveApi(
    (_, response) => void response.end("{}"),
    (socket) =>
      socket.once("message", (request: Buffer) => {
        for (let i = 0; i < MANY; i++) send(socket, 2, CHUNK);
        send(socket, 1, Buffer.from(`${startNonceIn(request)}S7;`));
      }),
  );
  let bytes = 0;
  const arrived = Promise.withResolvers<void>();
  const data = (_stream: string, chunk: Buffer): void => {
    bytes += chunk.length;
    if (bytes === MANY * CHUNK.length) arrived.resolve();
  };
  const drain = (): (() => void) => {
    drains++;
    return () => void stops++;
  };
  const spawned = await spawnInPod({
    ...{ api: await openApi(cluster), pod: "pod", user: "", setsHome: false, signal: undefined },
    request: { argv: ["true"], stdin: false },
    sink: { data, end() {} },
    leftovers: { sandbox: "pod", drain, keep: ({ destroy }) => destroy() },
    whyLost: async () => new BerthError("ENGINE_UNAVAILABLE", "The streams broke."),
  });
  await arrived.promise;
  expect({ drains, stops }).toEqual({ drains: 1, stops: 1 });
  spawned.close();
});

test("a wait for a process's end that is given up takes no memory", async () => {
  const cluster = await serveApi(
    (_, response) => void response.end("{}"),
    (socket) =>
      socket.once("message", (request: Buffer) => {
        send(socket, 1, Buffer.from(`${startNonceIn(request)}S7;`));
      }),
  );
  const spawned = await spawnInPod({
    ...{ api: await openApi(cluster), pod: "pod", user: "", setsHome: false, signal: undefined },
    request: { argv: ["cat"], stdin: true },
    sink: { data() {}, end() {} },
    leftovers: { sandbox: "pod", drain: () => () => {}, keep: ({ destroy }) => destroy() },
    whyLost: async () => new BerthError("ENGINE_UNAVAILABLE", "The streams broke."),
  });
  const giveUp = async (): Promise<void> => {
    for (let i = 0; i < GIVEN_UP; i++) {
      const abort = new AbortController();
      const waiting = spawned.wait(abort.signal).catch((error: unknown) => error);
      abort.abort();
      expect(hasReason(await waiting, "CANCELED")).toBe(true);
    }
  };
  await giveUp();
  const before = await keptBytes();
  await giveUp();
  expect((await keptBytes()) - before).toBeLessThan(GIVEN_UP * 100);
  spawned.close();
});

test("a process whose shell in the pod ends without reporting its end is lost", async () => {
  // Root in the sandbox can replace the shell, and knows its exit code.
  const causes = [{ reason: "ExitCode", message: String(SPAWN_EXIT) }];
  const status = JSON.stringify({ status: "Failure", reason: "NonZeroExitCode", details: { causes } });
  const cluster = await serveApi(
    (_, response) => void response.end("{}"),
    (socket) =>
      socket.once("message", (request: Buffer) => {
        send(socket, 1, Buffer.from(`${startNonceIn(request)}S7;`));
        send(socket, 3, Buffer.from(status));
        socket.close();
      }),
  );
  const over = Promise.withResolvers<Error | undefined>();
  const spawned = await spawnInPod({
    ...{ api: await openApi(cluster), pod: "pod", user: "", setsHome: false, signal: undefined },
    request: { argv: ["true"], stdin: false },
    sink: { data() {}, end: over.resolve },
    leftovers: { sandbox: "pod", drain: () => () => {}, keep: ({ destroy }) => destroy() },
    whyLost: async () => new BerthError("ENGINE_UNAVAILABLE", "Its end is lost."),
  });
  expect(await over.promise).toMatchObject({ message: "Its end is lost." });
  await expect(spawned.wait()).rejects.toThrow("Its end is lost.");
});

test("one of Berth's own commands is given up when it prints without end", async () => {
  let printed = 0;
  const cluster = await serveApi(
    (_, response) => void response.end("{}"),
    (socket) => {
      const print = (): void => {
        if (printed >= 1_000 * CHUNK.length) {
          socket.close();
          return;
        }
        printed += CHUNK.length;
        socket.send(Buffer.concat([Buffer.of(1), CHUNK]), (error) => {
          if (error == null) print();
        });
      };
      print();
    },
  );
  const { status } = await runPlain(await openApi(cluster), "pod", ["true"]);
  expect(status).toBeUndefined();
  expect(printed).toBeLessThan(1_000 * CHUNK.length);
});

test("of one of Berth's own commands only some thousands of tiny pieces are taken", async () => {
  const pieces = 10_000;
  const cluster = await serveApi(
    (_, response) => void response.end("{}"),
    (socket) => {
      for (let i = 0; i < pieces; i++) send(socket, 1, Buffer.from("x"));
      socket.close();
    },
  );
  const { stdout } = await runPlain(await openApi(cluster), "pod", ["true"]);
  expect(stdout.length).toBeGreaterThan(0);
  expect(stdout.length).toBeLessThan(pieces);
});
