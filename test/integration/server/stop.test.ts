import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import net from "node:net";
import { json } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { Registry } from "prom-client";
import { describe, expect, test } from "vitest";
import { ErrorDetailSchema, ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import { FileService } from "../../../gen/ts/berth/v1/file_pb.js";
import { ProcessService } from "../../../gen/ts/berth/v1/process_pb.js";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { BerthError } from "../../../src/base/errors.ts";
import type { Routes } from "../../../src/server/routes.ts";
import { createRpcServer } from "../../../src/server/server.ts";
import { eventually } from "../../support/eventually.ts";
import { MemoryLog } from "../../support/memory-log.ts";
import { GrpcJs, grpcFailure } from "../../support/server/grpc-js.ts";
import { readSlowly } from "../../support/server/slow-reader.ts";
import { startTestServer } from "../../support/server/test-server.ts";
import { TRANSPORTS } from "../../support/server/transports.ts";

const shell = (line: string) => ({ command: { case: "shell" as const, value: line } });

/** Longer than a test may take: a stop that waits for all of it fails its test. */
const LONG_GRACE = { graceMs: 3_600_000 };

describe.each(TRANSPORTS)("%s", (_name, transportTo) => {
  test("running calls finish within the grace period, and the stop waits no longer", async () => {
    const { server, url, record } = await startTestServer();
    using transport = transportTo(url);
    const client = createClient(SandboxService, transport);
    const call = client.getStats({}, { headers: { "x-test": "sleep 300" } });
    await eventually(() => record.unary === 1);
    const stopping = server.stop(LONG_GRACE);
    expect(await call).toMatchObject({ totalSandboxes: 3 });
    await stopping;
  });

  test.each(["hang", "flood", "ignore"])(
    "calls that outlast the grace period end in UNAVAILABLE: %s",
    async (order) => {
      const { server, url, record } = await startTestServer();
      using transport = transportTo(url);
      const client = createClient(ProcessService, transport);
      let failure: unknown;
      const stream = (async () => {
        for await (const _ of client.exec(shell(order)));
      })().catch((error: unknown) => {
        failure = error;
      });
      await eventually(() => record.open === 1);
      // Node counts a timer from the beginning of the event loop's turn, so only another timer shows that it was waited
      // for.
      let isOver = false;
      setTimeout(() => {
        isOver = true;
      }, 200);
      await server.stop({ graceMs: 200 });
      await stream;
      expect(isOver).toBe(true);
      const error = ConnectError.from(failure);
      expect(Code[error.code]).toBe("Unavailable");
      expect(error.findDetails(ErrorDetailSchema)[0]).toMatchObject({
        reason: ErrorReason.SHUTTING_DOWN,
        retryAfter: { seconds: 1n },
      });
      if (order === "hang") {
        expect(record.abortReason).toBeInstanceOf(BerthError);
        expect(record.abortReason).toMatchObject({ reason: "SHUTTING_DOWN" });
      }
      record.letGo.resolve();
      await eventually(() => record.open === 0);
    },
  );

  test("a client that keeps sending after its refusal does not delay it", async () => {
    const routes: Routes = (router) =>
      router.rpc(FileService.method.uploadFile, async (parts) => {
        for await (const _ of parts) throw new BerthError("SANDBOX_NOT_FOUND", "There is none.");
        return {};
      });
    const { server, url } = await startTestServer({ routes });
    using transport = transportTo(url);
    const leave = new AbortController();
    async function* parts() {
      yield {};
      await once(leave.signal, "abort");
    }
    const error = await createClient(FileService, transport).uploadFile(parts()).catch(ConnectError.from);
    expect(error).toMatchObject({ code: Code.NotFound });
    await server.stop(LONG_GRACE);
    leave.abort();
  });

  test("watches do not delay it", async () => {
    const { server, url, record } = await startTestServer();
    using transport = transportTo(url);
    let failure: unknown;
    const stream = (async () => {
      for await (const _ of createClient(SandboxService, transport).watchEvents({}));
    })().catch((error: unknown) => {
      failure = error;
    });
    await eventually(() => record.open === 1);
    await server.stop(LONG_GRACE);
    await stream;
    expect(Code[ConnectError.from(failure).code]).toBe("Unavailable");
    expect(record.open).toBe(0);
  });
});

test("a reader that stopped does not delay it", async () => {
  const { server, authority, record } = await startTestServer();
  using client = new GrpcJs(authority);
  const stream = client.serverStream(ProcessService.method.exec, shell("flood"));
  stream.on("error", () => {});
  await once(stream, "data");
  stream.pause();
  await sleep(200);
  await server.stop({ graceMs: 100 });
  await eventually(() => record.open === 0);
});

test("a client that reads slowly gets its output to the end, and why it ended", async () => {
  const statusOf = async () => {
    const { server, url, record } = await startTestServer();
    // What is on its way when the call ends takes longer than one attempt to flush it.
    const { status } = readSlowly(url, shell("flood"));
    await eventually(() => record.open === 1);
    await server.stop({ graceMs: 100 });
    return status;
  };
  // On a busy machine it may read too slowly.
  await expect.poll(statusOf, { timeout: 120_000 }).toBe("14");
});

test("a client that reads slowly delays it only up to its limit", async () => {
  const { server, url, record } = await startTestServer();
  const { behind, status } = readSlowly(url, shell("flood"));
  await behind;
  await server.stop({ graceMs: 0, flushMs: 0 });
  expect(await status).toBeUndefined();
  await eventually(() => record.open === 0);
});

test("idle connections of both kinds are closed at once", async () => {
  const { server, url, port } = await startTestServer();
  const agent = new http.Agent({ keepAlive: true });
  const request = http.get(`${url}/healthz`, { agent });
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  response.resume();
  await once(response, "end");
  const session = http2.connect(url);
  await once(session, "remoteSettings");
  const goaway = once(session, "goaway");
  // A connection whose protocol is not known yet.
  const undecided = net.connect(port, "127.0.0.1");
  undecided.on("error", () => {});
  await once(undecided, "connect");
  undecided.write("PR");
  await sleep(50);
  await server.stop(LONG_GRACE);
  await goaway;
  await eventually(() => session.closed && undecided.closed);
  agent.destroy();
});

test("no new connection, and no new call on an old one, while calls finish", async () => {
  const { server, url, port, authority, record } = await startTestServer();
  using client = new GrpcJs(authority);
  const running = client.unary(SandboxService.method.getStats, {}, { header: { "x-test": "sleep 400" } });
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const slow = http.request(`${url}/berth.v1.SandboxService/GetStats`, {
    agent,
    method: "POST",
    headers: { "content-type": "application/json", "x-test": "sleep 400" },
  });
  const answer = once(slow, "response");
  slow.end("{}");
  await eventually(() => record.unary === 2);
  const stopping = server.stop(LONG_GRACE);
  const refused = net.connect(port, "127.0.0.1");
  const [error] = await once(refused, "error");
  expect(error).toMatchObject({ code: "ECONNREFUSED" });
  expect(await grpcFailure(client.unary(SandboxService.method.getStats, {}))).toMatchObject({
    code: "UNAVAILABLE",
  });
  await running;
  const [response] = (await answer) as [http.IncomingMessage];
  expect(response.resume()).toMatchObject({ statusCode: 200, headers: { connection: "close" } });
  await stopping;
  expect(record.unary).toBe(2);
  agent.destroy();
});

test("an answer over HTTP/1 that its client has not read yet arrives to its end", async () => {
  // More than the buffers of the kernel hold.
  const sandboxId = "x".repeat(32 << 20);
  const { server, url } = await startTestServer({
    routes: (router) => router.service(SandboxService, { getSandbox: () => ({ sandbox: { sandboxId } }) }),
  });
  const request = http.request(`${url}/berth.v1.SandboxService/GetSandbox`, {
    agent: new http.Agent({ keepAlive: true }),
    method: "POST",
    headers: { "content-type": "application/json" },
  });
  request.end("{}");
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  const stopping = server.stop(LONG_GRACE);
  const answer = await json(response).catch((error: unknown) => error);
  expect(answer).toMatchObject({ sandbox: { sandboxId: expect.any(String) } });
  await stopping;
});

test("a signal ends the grace period early", async () => {
  const { server, authority, record } = await startTestServer();
  using client = new GrpcJs(authority);
  const call = grpcFailure(
    client.unary(SandboxService.method.getStats, {}, { header: { "x-test": "hang" } }),
  );
  await eventually(() => record.unary === 1);
  const controller = new AbortController();
  const stopping = server.stop({ ...LONG_GRACE, signal: controller.signal });
  await sleep(100);
  controller.abort();
  await stopping;
  expect(await call).toMatchObject({ code: "UNAVAILABLE" });
  const already = await startTestServer();
  await already.server.stop({ ...LONG_GRACE, signal: AbortSignal.abort() });
});

test("a second stop does nothing, and neither does one before a start", async () => {
  const idle = createRpcServer({
    listen: { kind: "tcp", host: "127.0.0.1", port: 0 },
    routes: () => {},
    logger: new MemoryLog(),
    metrics: new Registry(),
  });
  await idle.stop({ graceMs: 100 });
  await expect(idle.start()).rejects.toMatchObject({ reason: "SHUTTING_DOWN" });
  const { server, port } = await startTestServer();
  await Promise.all([server.stop({ graceMs: 100 }), server.stop({ graceMs: 100 })]);
  await server.stop({ graceMs: 100 });
  // The port is free again.
  await using again = await startTestServer({}, `127.0.0.1:${port}`);
  expect(again.port).toBe(port);
});
