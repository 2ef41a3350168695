import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import type { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { ProcessService } from "../../../gen/ts/berth/v1/process_pb.js";
import { lend } from "../../../src/base/lent-bytes.ts";
import { MemoryBudget } from "../../../src/base/memory-budget.ts";
import type { Call } from "../../../src/server/call.ts";
import { CallContext } from "../../../src/server/call-context.ts";
import { ConnectStreamResponse } from "../../../src/server/connect-response.ts";
import { GrpcResponse } from "../../../src/server/grpc-response.ts";
import type { HttpRequest, HttpResponse } from "../../../src/server/http-message.ts";
import { makeCertificate } from "../../support/certificate.ts";

/** More than the kernel takes for a client that does not read. */
const PIECE_BYTES = 16 << 20;
const PIECES = 3;

/** Sends the same memory several times, with other bytes each time, as soon as it comes back. */
async function respond(request: HttpRequest, response: HttpResponse): Promise<void> {
  const call = { signal: AbortSignal.timeout(60_000), protocol: "connect" } as unknown as Call;
  const context = new CallContext(ProcessService.method.exec, call, request);
  request.resume();
  const direct =
    "stream" in response
      ? new GrpcResponse(response, context)
      : new ConnectStreamResponse(request, response, context, "application/connect+proto");
  const memory = Buffer.alloc(PIECE_BYTES);
  for (let count = 1; count <= PIECES; count++) {
    const { promise, resolve } = Promise.withResolvers<void>();
    lend(memory.fill(count), resolve);
    void direct.send([memory], new MemoryBudget(Number.POSITIVE_INFINITY));
    await promise;
  }
  direct.complete();
}

interface Connection {
  readonly body: Readable;
}

async function overHttp1(server: http.Server | https.Server, get: typeof http.get): Promise<Connection> {
  await once(server.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const request = get({
    host: "127.0.0.1",
    port,
    agent: false,
    rejectUnauthorized: false,
  } as http.RequestOptions);
  const [body] = (await once(request, "response")) as [http.IncomingMessage];
  return { body };
}

async function overHttp2(
  server: http2.Http2Server,
  settings: http2.ClientSessionOptions,
): Promise<Connection> {
  await once(server.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => void server.close());
  const session = http2.connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, settings);
  onTestFinished(() => session.destroy());
  const body = session.request({ ":method": "POST" }, { endStream: true });
  await once(body, "response");
  return { body };
}

test.each<[string, () => Promise<Connection>]>([
  ["HTTP/1.1", () => overHttp1(http.createServer(respond), http.get)],
  [
    "HTTP/1.1 and TLS",
    async () => {
      const directory = mkdtempSync(path.join(tmpdir(), "berth-test-"));
      onTestFinished(() => rmSync(directory, { recursive: true }));
      const { cert, key } = await makeCertificate(directory, "server");
      const files = { cert: readFileSync(cert), key: readFileSync(key) };
      return overHttp1(https.createServer(files, respond), https.get);
    },
  ],
  ["HTTP/2", () => overHttp2(http2.createServer(respond), {})],
])("lent bytes come back only when they are sent, over %s", async (_, connect) => {
  const { body } = await connect();
  // The client reads nothing for a while: what is not sent by now has to stay as it is.
  await sleep(200);
  const counts = new Map<number, number>();
  for await (const data of body as AsyncIterable<Buffer>) {
    for (const byte of data) counts.set(byte, (counts.get(byte) ?? 0) + 1);
  }
  // Prefixes and trailers of the protocols have a few bytes of their own.
  for (let count = 1; count <= PIECES; count++) {
    expect(counts.get(count)).toBeGreaterThanOrEqual(PIECE_BYTES);
    expect(counts.get(count)).toBeLessThan(PIECE_BYTES + 100);
  }
});
