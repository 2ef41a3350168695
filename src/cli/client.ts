import net from "node:net";
import { type Client, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { Http2Connection } from "../../clients/typescript/src/http2-connection.ts";
import { FileService } from "../../gen/ts/berth/v1/file_pb.js";
import { ProcessService } from "../../gen/ts/berth/v1/process_pb.js";
import { RunService } from "../../gen/ts/berth/v1/run_pb.js";
import { SandboxService } from "../../gen/ts/berth/v1/sandbox_pb.js";
import { SessionService } from "../../gen/ts/berth/v1/session_pb.js";
import { WorkspaceService } from "../../gen/ts/berth/v1/workspace_pb.js";
import type { ServiceAddress } from "./service-address.ts";

/** A connection to a service; made by the first call. */
export interface ServiceClient {
  readonly address: ServiceAddress;
  readonly sandboxes: Client<typeof SandboxService>;
  readonly processes: Client<typeof ProcessService>;
  readonly files: Client<typeof FileService>;
  readonly sessions: Client<typeof SessionService>;
  readonly workspaces: Client<typeof WorkspaceService>;
  readonly runs: Client<typeof RunService>;
  /** Ends the connection, and calls with it. */
  close(): void;
}

/** Notices a service that vanished without a word. */
const PING_INTERVAL_MS = 20_000;

/** Who calls, and which service is trusted. */
export interface ConnectOptions {
  /** Certificates in PEM of the authorities to trust with TLS; undefined: the public ones. */
  readonly ca?: Buffer | undefined;
  readonly token?: string | undefined;
  /** The tenant to act in; undefined: the token's. */
  readonly tenant?: string | undefined;
}

/** Prepares to call the service at an address, over gRPC. */
export function connectTo(
  address: ServiceAddress,
  { ca, token, tenant }: ConnectOptions = {},
): ServiceClient {
  const { baseUrl, socketPath } = address;
  const manager = new Http2Connection(
    baseUrl,
    { pingIntervalMs: PING_INTERVAL_MS },
    {
      ...(socketPath !== undefined && { createConnection: () => net.connect(socketPath) }),
      ...(ca && { ca }),
    },
  );
  const transport = createGrpcTransport({
    baseUrl,
    sessionManager: manager,
    // Compressing what comes over the loopback costs more than it saves.
    acceptCompression: [],
    interceptors: [
      (next) => (request) => {
        if (token !== undefined) request.header.set("authorization", `Bearer ${token}`);
        if (tenant !== undefined) request.header.set("berth-tenant", tenant);
        return next(request);
      },
    ],
  });
  return {
    address,
    sandboxes: createClient(SandboxService, transport),
    processes: createClient(ProcessService, transport),
    files: createClient(FileService, transport),
    sessions: createClient(SessionService, transport),
    workspaces: createClient(WorkspaceService, transport),
    runs: createClient(RunService, transport),
    close: () => manager.abort(),
  };
}
