import { Registry } from "prom-client";
import {
  formatListenAddress,
  type ListenAddress,
  parseListenAddress,
} from "../../../src/server/listen-address.ts";
import { createRpcServer, type RpcServer, type RpcServerOptions } from "../../../src/server/server.ts";
import { MemoryLog } from "../memory-log.ts";
import { HandlerRecord, testRoutes } from "./handlers.ts";

/** A server with the test handlers. `await using` stops it. */
export interface TestServer extends AsyncDisposable {
  readonly server: RpcServer;
  readonly address: ListenAddress;
  /** `127.0.0.1:1234` */
  readonly authority: string;
  /** `http://127.0.0.1:1234`, or `https:`. */
  readonly url: string;
  readonly port: number;
  readonly record: HandlerRecord;
  readonly log: MemoryLog;
  readonly metrics: Registry;
}

/** Starts a server on a free port of the loopback, unless the options say otherwise. */
export async function startTestServer(
  options: Partial<RpcServerOptions> = {},
  listen = "127.0.0.1:0",
): Promise<TestServer> {
  const record = new HandlerRecord();
  const log = new MemoryLog();
  const metrics = new Registry();
  const server = createRpcServer({
    listen: parseListenAddress(listen),
    routes: testRoutes(record),
    logger: log,
    metrics,
    ...options,
  });
  const address = await server.start();
  const authority = formatListenAddress(address);
  return {
    server,
    address,
    authority,
    url: `${options.tls ? "https" : "http"}://${authority}`,
    port: address.kind === "tcp" ? address.port : 0,
    record,
    log,
    metrics,
    [Symbol.asyncDispose]: () => server.stop({ graceMs: 0 }),
  };
}

/** How many calls are running, by the metrics of the server. */
export async function callsInFlight({ metrics }: TestServer): Promise<number> {
  const inFlight = await metrics.getSingleMetric("berth_rpc_in_flight")?.get();
  if (inFlight === undefined) throw new Error("the server does not count its calls");
  return inFlight.values.reduce((sum, { value }) => sum + Number(value), 0);
}
