/** The client for Node and Deno: gRPC over HTTP/2. */
import { readFileSync } from "node:fs";
import net from "node:net";
import tls from "node:tls";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { DEFAULT_ADDRESS, type Endpoint, parseAddress } from "./address.ts";
import { BerthClient } from "./client.ts";
import type { ClientSettings, Link } from "./connection.ts";
import { Http2Connection } from "./http2-connection.ts";
import { AccessError, findAccess } from "./profile.ts";

export * from "./common.ts";

/** Detects a service that vanished without closing the connection. */
const PING_INTERVAL_MS = 20_000;
const PING_TIMEOUT_MS = 10_000;
/** Largest message, the same as the service's limit. */
const MAX_MESSAGE_BYTES = 64 * 1024 * 1024;

/** Options for TLS. */
export interface TlsSettings {
  /** The certificates to trust, in PEM. Default: those that Node trusts. */
  readonly ca?: string | Uint8Array | undefined;
  /**
   * The name that the service's certificate is for. Calls use it as their host, so the service must accept it (`berth
   * serve --allow-host`). Default: the address's host, or "localhost" for a Unix socket.
   */
  readonly serverName?: string | undefined;
}

/** How a client connects. */
export interface ConnectSettings extends ClientSettings {
  /**
   * Default: the token in `tokenFile`, in the profile, in the environment's BERTH_TOKEN, or in the file
   * BERTH_TOKEN_FILE, in this order; "" for none.
   */
  readonly token?: string | undefined;
  /** A file with the token, which is read once. */
  readonly tokenFile?: string | undefined;
  /**
   * A profile of ~/.config/berth/profiles.json, in place of an address: `{"work": {"address": …, "tls-ca": FILE,
   * "token": … or "token-file": FILE}}`. Default: the environment's BERTH_PROFILE, if neither an address nor
   * BERTH_ADDRESS is given.
   */
  readonly profile?: string | undefined;
  /** Turns on TLS, also for `HOST:PORT`. `https://…` always uses it. */
  readonly tls?: TlsSettings | boolean | undefined;
}

/** A client of a Berth service; see {@link BerthClient}. */
export class Berth extends BerthClient {
  /**
   * Prepares to call a service. The first call connects.
   * @param address "HOST:PORT", "unix:PATH", "http://…" or "https://…". Default: the environment's BERTH_ADDRESS,
   *   otherwise 127.0.0.1:7070.
   * @throws TypeError for an invalid address, certificate, token or profile
   */
  static connect(address: string | undefined = undefined, settings: ConnectSettings = {}): Berth {
    const access = findAccess({ ...settings, address }, process.env);
    const { tls: wanted = false } = settings;
    const secure = wanted === true || typeof wanted === "object";
    const endpoint = parseAddress(access.address ?? DEFAULT_ADDRESS, secure);
    if (secure && endpoint.baseUrl.startsWith("http://")) {
      throw new TypeError(`tls is given, and "${endpoint.address}" says to do without: write https://.`);
    }
    const { ca = access.tlsCa === undefined ? undefined : readCa(access.tlsCa), ...tls } =
      typeof wanted === "object" ? wanted : {};
    return new Berth(linkTo(endpoint, { ...tls, ca }), { ...settings, token: access.token });
  }
}

function linkTo(endpoint: Endpoint, { ca, serverName }: TlsSettings): Link {
  const { address, baseUrl, socketPath } = endpoint;
  const options = { ...(ca !== undefined && { ca: pem(ca) }), ...(serverName && { servername: serverName }) };
  const secure = baseUrl.startsWith("https:");
  const createConnection =
    socketPath === undefined
      ? undefined
      : () =>
          secure
            ? tls.connect({ path: socketPath, ALPNProtocols: ["h2"], servername: "localhost", ...options })
            : net.connect(socketPath);
  const sessionManager = new Http2Connection(
    baseUrl,
    { pingIntervalMs: PING_INTERVAL_MS, pingTimeoutMs: PING_TIMEOUT_MS },
    { ...options, ...(createConnection && { createConnection }) },
  );
  const transport = createGrpcTransport({
    baseUrl,
    sessionManager,
    readMaxBytes: MAX_MESSAGE_BYTES,
    writeMaxBytes: MAX_MESSAGE_BYTES,
    // Compressing loopback traffic costs more than it saves.
    acceptCompression: [],
  });
  return { address, transport, streamsRequests: true, close: () => sessionManager.abort() };
}

function readCa(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (cause) {
    throw new AccessError(`tls-ca of the profile: ${file} cannot be read`, { cause });
  }
}

function pem(ca: string | Uint8Array): string {
  const text = typeof ca === "string" ? ca : new TextDecoder().decode(ca);
  if (text.includes("-----BEGIN CERTIFICATE-----")) return text;
  throw new TypeError("tls.ca is not a certificate in PEM. It takes the content of a file, not its path.");
}
