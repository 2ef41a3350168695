import type http2 from "node:http2";
import net from "node:net";
import { type Client, createClient } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
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

/** A connection on which a call that is broken off never looks whole. */
class Connection extends Http2SessionManager {
  override async request(
    ...given: Parameters<Http2SessionManager["request"]>
  ): Promise<http2.ClientHttp2Stream> {
    const stream = await super.request(...given);
    // The library closes the stream of such a call, and Node ends a closed stream in order before it resets it: the
    // service could take half an upload for a whole one. A stream destroyed for an error is reset alone.
    const close = stream.close.bind(stream);
    stream.close = (code, callback) => {
      // Without a callback it is Node that closes the streams of a connection which broke.
      if (!code || !callback || stream.closed || stream.destroyed) return close(code, callback);
      stream.once("close", callback);
      stream.destroy(new Error(`the call was broken off (HTTP/2 error ${code})`));
    };
    return stream;
  }
}

/**
 * Prepares to call the service at an address, over gRPC.
 * @param ca certificates in PEM of the authorities to trust with TLS; undefined: the public ones
 */
export function connectTo(address: ServiceAddress, ca?: Buffer): ServiceClient {
  const { baseUrl, socketPath } = address;
  const manager = new Connection(
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
