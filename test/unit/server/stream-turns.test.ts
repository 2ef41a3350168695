import { once } from "node:events";
import http2 from "node:http2";
import { createClient } from "@connectrpc/connect";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ProcessService } from "../../../gen/ts/berth/v1/process_pb.js";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { Health } from "../../../gen/ts/grpc/health/v1/health_pb.js";
import type { Authenticator } from "../../../src/server/call.ts";
import type { Work } from "../../../src/server/fair-queue.ts";
import type { RpcLimits } from "../../../src/server/limits.ts";
import type { Routes } from "../../../src/server/routes.ts";
import { eventually } from "../../support/eventually.ts";
import { callsInFlight, startTestServer } from "../../support/server/test-server.ts";
import { TRANSPORTS } from "../../support/server/transports.ts";
import { uploadMethod } from "../../support/server/upload-service.ts";

// No turn ends by time, except when a test says so: vitest's own polls would advance it.
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance"] });
});
afterEach(() => {
  vi.useRealTimers();
});
const endTurns = () => vi.advanceTimersByTime(10);

const ANN = { headers: { authorization: "ann" } };
const BOB = { headers: { authorization: "bob" } };

/** Callers are their own tenants. */
const authenticator: Authenticator = {
  authenticate: async ({ headers }) => {
    const name = String(headers.authorization);
    return { owner: name, tenant: name, tokenId: name, tokenHash: undefined, scope: "user" };
  },
  recheck: () => undefined,
};

test.each(TRANSPORTS)(
  "over %s, streams that wait for their source delay no call",
  async (_name, transportTo) => {
    const source = Promise.withResolvers<void>();
    const routes: Routes = (router) => {
      router.service(SandboxService, { getStats: () => ({}) });
      router.service(ProcessService, {
        async *exec(_request, { signal }) {
          yield { event: { case: "started", value: { processId: "prc_1" } } };
          await source.promise;
          yield { event: { case: "output", value: { offset: 0n, data: new Uint8Array(1) } } };
          await new Promise((resolve) => signal.addEventListener("abort", resolve));
        },
      });
    };
    await using server = await startTestServer({ authenticator, routes });
    using transport = transportTo(server.url);
    const { getStats } = createClient(SandboxService, transport);
    const { exec } = createClient(ProcessService, transport);
    await getStats({}, BOB);
    const streams = [exec({}, ANN), exec({}, ANN)].map((stream) => stream[Symbol.asyncIterator]());
    for (const stream of streams) {
      expect((await stream.next()).value?.event.case).toBe("started");
      endTurns();
    }
    source.resolve();
    const read = Promise.all(streams.map((stream) => stream.next())).then(() => getStats({}, ANN));
    const calls = async () => {
      for (let count = 0; count < 50; count++) await getStats({}, BOB);
      return "they wait";
    };
    expect(await Promise.race([read.then(() => "they are read"), calls()])).toBe("they are read");
    for (const stream of streams) void stream.return?.();
  },
);

test.each(TRANSPORTS.slice(0, 3))(
  "over %s, uploads that wait for their caller delay no call",
  async (_name, transportTo) => {
    let received = 0;
    const routes: Routes = (router) => {
      router.service(SandboxService, { getStats: () => ({}) });
      router.rpc(uploadMethod, async (requests) => {
        for await (const _ of requests) received += 1;
        return { value: 0n };
      });
    };
    await using server = await startTestServer({ authenticator, routes });
    using transport = transportTo(server.url);
    const { getStats } = createClient(SandboxService, transport);
    await getStats({}, BOB);
    const more = Promise.withResolvers<void>();
    const end = Promise.withResolvers<void>();
    async function* chunks() {
      yield { value: new Uint8Array(1) };
      await more.promise;
      yield { value: new Uint8Array(1) };
      await end.promise;
    }
    const uploads: Promise<unknown>[] = [];
    for (const count of [1, 2]) {
      uploads.push(
        transport.stream(uploadMethod, undefined, undefined, ANN.headers, chunks()).catch(() => {}),
      );
      await eventually(() => received === count);
      endTurns();
    }
    more.resolve();
    for (let count = 0; count < 50; count++) await getStats({}, BOB);
    expect(received).toBe(4);
    end.resolve();
    await Promise.all(uploads);
  },
);

/** A server on which each tenant may begin one create in a second. The first two end when a test says so. */
async function startWithCreates(limits: Partial<RpcLimits> = {}) {
  const ends = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
  const creates = { begun: 0, finish: (index: 0 | 1) => ends[index].resolve() };
  const routes: Routes = (router) => {
    router.service(SandboxService, {
      getStats: () => ({}),
      createSandbox: async () => {
        await ends[creates.begun++]?.promise;
        return {};
      },
    });
  };
  const methodWork = new Map<string, Work>([["berth.v1.SandboxService/CreateSandbox", "engine"]]);
  const server = await startTestServer({ authenticator, routes, methodWork, limits });
  return { server, creates };
}

test.each(TRANSPORTS)(
  "over %s, the answer of a create does not wait for other creates",
  async (_name, transportTo) => {
    const { server, creates } = await startWithCreates();
    await using _server = server;
    using transport = transportTo(server.url);
    const { getStats, createSandbox } = createClient(SandboxService, transport);
    await getStats({}, BOB);
    const first = createSandbox({}, ANN);
    await eventually(() => creates.begun === 1);
    vi.advanceTimersByTime(1000);
    const second = createSandbox({}, ANN);
    await eventually(() => creates.begun === 2);
    creates.finish(0);
    const calls = async () => {
      for (let count = 0; count < 50; count++) await getStats({}, BOB);
      return "it waits";
    };
    expect(await Promise.race([first.then(() => "it is read"), calls()])).toBe("it is read");
    creates.finish(1);
    await second;
  },
);

test("a call that waits for its turn is not taken for one whose request does not arrive", async () => {
  const { server, creates } = await startWithCreates({ requestTimeoutMs: 40 });
  await using _server = server;
  const session = http2.connect(server.url);
  const call = async (method: string, { headers } = ANN, message = new Uint8Array(5)) => {
    const path = `/berth.v1.SandboxService/${method}`;
    const stream = session.request({
      ":method": "POST",
      ":path": path,
      "content-type": "application/grpc",
      ...headers,
    });
    if (message.length === 5) stream.end(message);
    else stream.write(message);
    const [trailers] = await once(stream.resume(), "trailers");
    return trailers["grpc-status"];
  };
  await call("GetStats", BOB);
  const answers = [call("CreateSandbox"), call("CreateSandbox")];
  await eventually(() => creates.begun === 1);
  const halfArrived = call("GetStats", ANN, new Uint8Array(4));
  await eventually(async () => (await callsInFlight(server)) === 3);
  vi.advanceTimersByTime(500);
  expect(await halfArrived).toBe("4");
  creates.finish(0);
  creates.finish(1);
  expect(await Promise.all(answers)).toEqual(["0", "0"]);
  session.destroy();
});

test.each(TRANSPORTS.slice(0, 1))(
  "over %s, a tenant whose streams are idle does not count as active",
  async (_name, transportTo) => {
    const source = Promise.withResolvers<void>();
    const hanging = Promise.withResolvers<void>();
    let begun = 0;
    const routes: Routes = (router) => {
      router.service(SandboxService, {
        getStats: async () => {
          begun += 1;
          await hanging.promise;
          return {};
        },
      });
      router.service(ProcessService, {
        async *exec() {
          yield { event: { case: "keepalive", value: {} } };
          await source.promise;
          yield { event: { case: "keepalive", value: {} } };
        },
      });
    };
    await using server = await startTestServer({ authenticator, routes });
    using transport = transportTo(server.url);
    const stream = createClient(ProcessService, transport).exec({}, BOB)[Symbol.asyncIterator]();
    await stream.next();
    vi.advanceTimersByTime(10_000);
    source.resolve();
    await stream.next();
    const { getStats } = createClient(SandboxService, transport);
    const calls = Array.from({ length: 5 }, () => getStats({}, ANN).catch(() => {}));
    // Probes have no tenant.
    for (let count = 0; count < 50; count++) await createClient(Health, transport).check({});
    expect(begun).toBe(5);
    hanging.resolve();
    await Promise.all(calls);
  },
);
