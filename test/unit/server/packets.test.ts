import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import { type AddressInfo, Socket } from "node:net";
import { expect, onTestFinished, test, vi } from "vitest";
import { ProcessService } from "../../../gen/ts/berth/v1/process_pb.js";
import { MemoryBudget } from "../../../src/base/memory-budget.ts";
import type { Call } from "../../../src/server/call.ts";
import { CallContext } from "../../../src/server/call-context.ts";
import { ConnectStreamResponse } from "../../../src/server/connect-response.ts";
import type { DirectResponse } from "../../../src/server/direct-response.ts";
import { GrpcResponse } from "../../../src/server/grpc-response.ts";
import type { HttpRequest, HttpResponse } from "../../../src/server/http-message.ts";

const MEMORY = new MemoryBudget(Number.POSITIVE_INFINITY);

type Answer = (response: DirectResponse, raw: HttpResponse & { stream?: http2.ServerHttp2Stream }) => void;

const piece = (text: string): readonly Uint8Array[] => [Buffer.from(text)];

/** Serves one request, and returns the pieces of the body as they arrived, and how often the server wrote. */
async function serve(
  version: "HTTP/1.1" | "HTTP/2",
  answer: Answer,
  onPiece: (text: string) => void = () => {},
) {
  const respond = (request: HttpRequest, response: HttpResponse): void => {
    const call = { signal: AbortSignal.timeout(60_000), protocol: "connect" } as unknown as Call;
    const context = new CallContext(ProcessService.method.exec, call, request);
    request.resume();
    request.once("end", () =>
      answer(
        version === "HTTP/2"
          ? new GrpcResponse(response, context)
          : new ConnectStreamResponse(request, response, context, "application/connect+proto"),
        response,
      ),
    );
  };
  // Every write to a socket ends up here, with HTTP/1.1.
  const write = vi.spyOn(Socket.prototype as unknown as { _writeGeneric(): void }, "_writeGeneric");
  onTestFinished(() => write.mockRestore());
  const server = version === "HTTP/2" ? http2.createServer(respond) : http.createServer(respond);
  await once(server.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => void server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const pieces: string[] = [];
  const take = (data: Buffer): void => {
    pieces.push(data.toString("latin1"));
    onPiece(pieces.join(""));
  };
  if (version === "HTTP/2") {
    const session = http2.connect(url);
    onTestFinished(() => session.destroy());
    const stream = session.request({ ":method": "POST" });
    stream.end();
    for await (const data of stream) take(data);
  } else {
    const response = await fetch(url, { method: "POST", body: "x" });
    for await (const data of response.body ?? []) take(Buffer.from(data));
  }
  const isServers = (socket: unknown): boolean => (socket as { server?: unknown }).server != null;
  return { pieces, writes: write.mock.contexts.filter(isServers).length };
}

const AT_ONCE: Answer = (response) => {
  void response.send(piece("started"), MEMORY);
  void response.send(piece("more"), MEMORY);
  response.complete(piece("over"));
};

test.each(["HTTP/1.1", "HTTP/2"] as const)(
  "what a client that has left did not get takes no memory, over %s",
  async (version) => {
    const memory = new MemoryBudget(Number.POSITIVE_INFINITY);
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    const answer: Answer = (response, raw) => {
      void response.send([Buffer.alloc(300_000)], memory);
      expect(memory.heldBytes).toBeGreaterThan(200_000);
      raw.once("close", resolve);
      // Before it is written.
      (raw.stream ?? raw.socket)?.destroy();
    };
    await serve(version, answer).catch(() => {});
    await closed;
    expect(memory.heldBytes).toBe(0);
  },
);

test("data that is available at once is sent in one packet, over HTTP/1.1", async () => {
  const { pieces, writes } = await serve("HTTP/1.1", AT_ONCE);
  expect(pieces.join("")).toMatch(/^startedmoreover.*\{\}$/s);
  expect(writes).toBe(1);
});

test("data that is available at once is sent in one frame, over HTTP/2", async () => {
  expect((await serve("HTTP/2", AT_ONCE)).pieces).toEqual(["startedmoreover"]);
});

test.each(["HTTP/1.1", "HTTP/2"] as const)(
  "nothing waits for more than a moment, over %s",
  async (version) => {
    let go: ((text: string) => void) | undefined;
    const seen: string[] = [];
    const { pieces } = await serve(
      version,
      (response) => {
        void response.send(piece("started"), MEMORY);
        go = (text) => {
          if (text === "started") void response.send(piece("more"), MEMORY);
          if (text === "startedmore") response.complete(piece("over"));
          seen.push(text);
        };
      },
      (text) => go?.(text),
    );
    expect(seen.slice(0, 2)).toEqual(["started", "startedmore"]);
    expect(pieces.join("")).toMatch(/^startedmoreover/);
  },
);
