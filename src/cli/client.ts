import http from "node:http";
import type { SecureClientSessionOptions } from "node:http2";
import type { DescService } from "@bufbuild/protobuf";
import { type Client, createClient, type Interceptor, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { Http2Connection } from "../../clients/typescript/src/http2-connection.ts";
import type { FileService } from "../../gen/ts/berth/v1/file_pb.js";
import type { ProcessService } from "../../gen/ts/berth/v1/process_pb.js";
import type { RunService } from "../../gen/ts/berth/v1/run_pb.js";
import type { SandboxService } from "../../gen/ts/berth/v1/sandbox_pb.js";
import type { SessionService } from "../../gen/ts/berth/v1/session_pb.js";
import type { WorkspaceService } from "../../gen/ts/berth/v1/workspace_pb.js";
import type { ServiceAddress } from "./service-address.ts";

/** Clients for the services at an address. The first call connects. */
export interface ServiceClient {
  readonly address: ServiceAddress;
  readonly sandboxes: Client<typeof SandboxService>;
  readonly processes: Client<typeof ProcessService>;
  readonly files: Client<typeof FileService>;
  readonly sessions: Client<typeof SessionService>;
  readonly workspaces: Client<typeof WorkspaceService>;
  readonly runs: Client<typeof RunService>;
  /** Closes the connection and ends its calls. */
  close(): void;
}

/** To notice a service that is gone without closing the connection. */
const PING_INTERVAL_MS = 20_000;

/** A certificate to present, and its key, in PEM. */
export interface ClientCertificate {
  readonly cert: string;
  readonly key: string;
}

/** How to authenticate, and which certificates to trust. */
interface ConnectOptions {
  /** PEM certificates of the authorities to trust. Undefined: the public ones. */
  readonly ca?: string | undefined;
  readonly certificate?: ClientCertificate | undefined;
  /** Whether to trust any server, which must not get a token then. Default: no. */
  readonly trustAny?: boolean;
  /** Returns the token for a call. */
  readonly token?: (() => string | undefined) | undefined;
  /** The tenant to act in. Undefined: that of the token. */
  readonly tenant?: string | undefined;
}

/** Creates the clients for an address. */
export function connectTo(
  address: ServiceAddress,
  { ca, certificate, trustAny, token, tenant }: ConnectOptions = {},
): ServiceClient {
  const identify: Interceptor = (next) => (request) => {
    const current = token?.();
    if (current !== undefined) request.header.set("authorization", `Bearer ${current}`);
    if (tenant !== undefined) request.header.set("berth-tenant", tenant);
    return next(request);
  };
  const { transport, close } = address.isLocal
    ? toLocal(address, identify)
    : toRemote(address, identify, {
        ...(ca !== undefined && { ca }),
        ...certificate,
        ...(trustAny && { rejectUnauthorized: false }),
      });
  const client = <S extends DescService>(load: () => Promise<S>) => lazyClient(load, transport);
  return {
    address,
    sandboxes: client(() => import("../../gen/ts/berth/v1/sandbox_pb.js").then((it) => it.SandboxService)),
    processes: client(() => import("../../gen/ts/berth/v1/process_pb.js").then((it) => it.ProcessService)),
    files: client(() => import("../../gen/ts/berth/v1/file_pb.js").then((it) => it.FileService)),
    sessions: client(() => import("../../gen/ts/berth/v1/session_pb.js").then((it) => it.SessionService)),
    workspaces: client(() =>
      import("../../gen/ts/berth/v1/workspace_pb.js").then((it) => it.WorkspaceService),
    ),
    runs: client(() => import("../../gen/ts/berth/v1/run_pb.js").then((it) => it.RunService)),
    close,
  };
}

interface Connection {
  readonly transport: Transport;
  close(): void;
}

/** Over the loopback, compression costs more than it saves. */
const COMMON = { acceptCompression: [] };

/** Connect over HTTP/1.1: Node's HTTP/2, and the TLS that it loads, take a quarter of a short command's CPU time. */
function toLocal({ baseUrl, socketPath }: ServiceAddress, identify: Interceptor): Connection {
  const agent = new http.Agent({ keepAlive: true });
  const transport = createConnectTransport({
    ...COMMON,
    baseUrl,
    httpVersion: "1.1",
    nodeOptions: { agent, ...(socketPath !== undefined && { socketPath }) },
    interceptors: [identify],
  });
  return { transport, close: () => agent.destroy() };
}

/** gRPC, which every proxy in front of a service passes on. */
function toRemote(
  { baseUrl }: ServiceAddress,
  identify: Interceptor,
  tls: SecureClientSessionOptions,
): Connection {
  const manager = new Http2Connection(baseUrl, { pingIntervalMs: PING_INTERVAL_MS }, tls);
  const transport = createGrpcTransport({
    ...COMMON,
    baseUrl,
    sessionManager: manager,
    interceptors: [identify],
  });
  return { transport, close: () => manager.abort() };
}

type Method = (...given: readonly unknown[]) => Promise<unknown> | AsyncIterable<unknown>;

/**
 * A client of a service whose descriptor is loaded at the first call: most commands call one service, and each
 * descriptor takes some milliseconds to load.
 */
function lazyClient<S extends DescService>(load: () => Promise<S>, transport: Transport): Client<S> {
  let loading: Promise<Client<S>> | undefined;
  const methodNamed = (name: keyof Client<S>): Method => {
    return (...given) => {
      loading ??= load().then((service) => createClient(service, transport));
      const answer = loading.then((client) => (client[name] as Method)(...given));
      // A caller awaits the result, or, for a streaming method, iterates over it.
      return Object.assign(answer, {
        async *[Symbol.asyncIterator]() {
          yield* (await answer) as AsyncIterable<unknown>;
        },
      });
    };
  };
  return new Proxy({} as Client<S>, { get: (_, name) => methodNamed(name as keyof Client<S>) });
}
