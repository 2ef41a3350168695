/** The client for Node and Deno: gRPC over HTTP/2. */
import net from "node:net";
import tls from "node:tls";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { DEFAULT_ADDRESS, type Endpoint, parseAddress } from "./address.ts";
import { BerthClient } from "./client.ts";
import { type KeyPair, keyPairOf, type PemSource } from "./client-certificate.ts";
import type { ClientSettings, Link } from "./connection.ts";
import { Http2Connection } from "./http2-connection.ts";
import { type Access, AccessError, findAccess, readText } from "./profile.ts";

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
  /** The certificate to present to a service that requires one (`berth serve --tls-client-ca`), in PEM, with `key`. */
  readonly cert?: string | Uint8Array | undefined;
  /** The private key of `cert`, in PEM, without a passphrase. */
  readonly key?: string | Uint8Array | undefined;
  /** Files with the same, in place of `cert` and `key`. They may be replaced at any time: each new connection reads them. */
  readonly certFile?: string | undefined;
  readonly keyFile?: string | undefined;
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
  /** A file with the token. It may be replaced at any time: each call reads it. */
  readonly tokenFile?: string | undefined;
  /**
   * A profile of ~/.config/berth/profiles.json, in place of an address: `{"work": {"address": …, "tls-ca": FILE,
   * "client-cert": FILE, "client-key": FILE, "token": … or "token-file": FILE}}`. Default: the environment's BERTH_PROFILE, if neither an address nor
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
    const tls = typeof wanted === "object" ? wanted : {};
    const certificate = certificateOf(tls, access);
    if (certificate !== undefined && endpoint.baseUrl.startsWith("http://")) {
      throw new AccessError(
        `"${endpoint.address}" is called without TLS, and so without the certificate of the profile: write https://.`,
      );
    }
    if (access.tlsCa !== undefined && endpoint.baseUrl.startsWith("http://")) {
      throw new AccessError(
        `"${endpoint.address}" is called without TLS, and so without the tls-ca of the profile: write https://.`,
      );
    }
    const ca =
      tls.ca ?? (access.tlsCa === undefined ? undefined : readText("tls-ca of the profile", access.tlsCa));
    const authorities = ca === undefined ? {} : { ca: pem(ca) };
    const secrets = { authorities, certificate };
    return new Berth(linkTo(endpoint, secrets, tls.serverName), settings, access.token);
  }
}

/** What secures a connection. */
interface Secrets {
  readonly authorities: { readonly ca?: string };
  /** Returns the certificate to present on the next connection. */
  readonly certificate: (() => KeyPair) | undefined;
}

function linkTo(endpoint: Endpoint, { authorities, certificate }: Secrets, serverName?: string): Link {
  const { address, baseUrl, socketPath } = endpoint;
  const options = { ...authorities, ...(serverName && { servername: serverName }) };
  const secure = baseUrl.startsWith("https:");
  const openSecurely = () => {
    const { hostname, port } = new URL(baseUrl);
    const host = hostname.replace(/^\[(.*)\]$/, "$1");
    const place = socketPath === undefined ? { host, port: Number(port || 443) } : { path: socketPath };
    const name = socketPath === undefined ? host : "localhost";
    const servername = net.isIP(name) ? {} : { servername: name };
    return tls.connect({ ...place, ...servername, ALPNProtocols: ["h2"], ...options, ...certificate?.() });
  };
  const createConnection =
    secure && (socketPath !== undefined || certificate !== undefined)
      ? openSecurely
      : socketPath === undefined
        ? undefined
        : () => net.connect(socketPath);
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

/** Returns the certificate to present, checked, with its key: the given one, otherwise the profile's. */
function certificateOf(
  { cert, key, certFile, keyFile }: TlsSettings,
  { clientCert, clientKey }: Access,
): (() => KeyPair) | undefined {
  const own = pemOf("tls.cert", cert, certFile);
  const secret = pemOf("tls.key", key, keyFile);
  if (own && secret) return keyPairOf(own, secret);
  if (own || secret) {
    throw new AccessError("tls.cert and tls.key belong together, and only one of them is given.");
  }
  if (clientCert === undefined || clientKey === undefined) return undefined;
  return keyPairOf(
    { name: "client-cert of the profile", file: clientCert },
    { name: "client-key of the profile", file: clientKey },
  );
}

function pemOf(
  name: string,
  content: string | Uint8Array | undefined,
  file: string | undefined,
): PemSource | undefined {
  if (content !== undefined) return { name: `${name}, the content of a file,`, text: textOf(content) };
  return file === undefined ? undefined : { name: `${name}File`, file };
}

function textOf(content: string | Uint8Array): string {
  return typeof content === "string" ? content : new TextDecoder().decode(content);
}

function pem(ca: string | Uint8Array): string {
  const text = textOf(ca);
  if (text.includes("-----BEGIN CERTIFICATE-----")) return text;
  throw new TypeError("tls.ca is not a certificate in PEM. It takes the content of a file, not its path.");
}
