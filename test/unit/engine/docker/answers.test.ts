import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import path from "node:path";
import { Readable } from "node:stream";
import { expect, onTestFinished, test } from "vitest";
import { jsonLines } from "../../../../src/engine/docker/answers.ts";
import { Daemon } from "../../../../src/engine/docker/daemon.ts";
import { LongAnswerError } from "../../../../src/engine/docker/errors.ts";
import { Images } from "../../../../src/engine/docker/images.ts";
import { processorNowMs } from "../../../support/measure.ts";
import { newDataDir } from "../../../support/settings.ts";

async function daemonThat(answers: RequestListener): Promise<Daemon> {
  const socket = path.join(newDataDir(), "docker.sock");
  const server = createServer(answers).listen(socket);
  await once(server, "listening");
  const daemon = new Daemon({ host: `unix://${socket}`, callTimeoutMs: 60_000 });
  onTestFinished(() => {
    daemon.close();
    server.close();
    server.closeAllConnections();
  });
  return daemon;
}

test.each([
  ["an answer", 200, 128],
  ["an error", 500, 1],
])("%s is not read any further than its limit", async (_, status, mib) => {
  // What the streams and the kernel hold on the way has been sent too.
  const longest = mib + 32;
  let sent = 0;
  const daemon = await daemonThat((_request, response) => {
    response.writeHead(status);
    const send = () => {
      while (!response.destroyed && sent++ < longest) if (!response.write(Buffer.alloc(1 << 20))) return;
      response.end();
    };
    response.on("drain", send);
    send();
  });
  const asking = daemon.call("asking", (docker, abortSignal) => docker.listContainers({ abortSignal }));
  await expect(asking).rejects.toMatchObject({
    reason: "ENGINE_UNAVAILABLE",
    message: expect.stringContaining("longer than Berth reads while asking"),
    cause: expect.any(LongAnswerError),
  });
  expect(sent).toBeLessThan(longest);
});

test("an error has the daemon's status and words, and an answer without a body is a success", async () => {
  const daemon = await daemonThat(({ url }, response) => {
    const isRefused = url?.startsWith("/containers/refused");
    response.writeHead(isRefused ? 409 : 204).end(isRefused ? '{"message":"it is paused"}' : undefined);
  });
  const start = (id: string) => daemon.call("starting", (docker) => docker.getContainer(id).start());
  await expect(start("refused")).rejects.toMatchObject({ reason: "SANDBOX_NOT_RUNNING" });
  await expect(start("accepted")).resolves.toBeDefined();
});

test("names that others gave an image do not count among its settings", async () => {
  const names = Array.from({ length: 1000 }, (_, i) => `registry.example/${"n".repeat(200)}:${i}`);
  const found = { Id: "sha256:1", RepoTags: names, RepoDigests: names, Config: { User: "someone" } };
  const daemon = await daemonThat((_, response) => void response.end(JSON.stringify(found)));
  const logger = { debug() {}, info() {}, warn() {}, error() {} };
  const images = new Images(daemon, logger, { firstAnswerMs: 60_000, stallMs: 60_000 });
  await expect(images.facts("python")).resolves.toMatchObject({ id: "sha256:1", user: "someone" });
});

async function read(chunks: readonly string[]): Promise<unknown[]> {
  const values: unknown[] = [];
  for await (const value of jsonLines(Readable.from(chunks.map((chunk) => Buffer.from(chunk)))))
    values.push(value);
  return values;
}

test("lines are parsed wherever the connection splits them", async () => {
  await expect(read(['{"a":', '1}\n\n{"b', '":"é"}\n[', "2]\n3", "4"])).resolves.toEqual([
    { a: 1 },
    { b: "é" },
    [2],
    34,
  ]);
  await expect(read(["1\n2", "\n"])).resolves.toEqual([1, 2]);
});

test("a long line costs about as much as the same bytes in many lines", async () => {
  const pieces = Array.from({ length: 4000 }, () => "x".repeat(200));
  const cost = async (chunks: readonly string[]): Promise<number> => {
    const before = processorNowMs();
    await read(chunks);
    return processorNowMs() - before;
  };
  const [many, one] = [pieces.map((piece) => `"${piece}"\n`), ['"', ...pieces, '"\n']];
  await cost(many);
  expect(await cost(one)).toBeLessThan(10 * (await cost(many)));
});

test("a line that never ends is not kept", async () => {
  await expect(read(Array.from({ length: 20 }, () => "x".repeat(64 << 10)))).rejects.toThrow(LongAnswerError);
});
