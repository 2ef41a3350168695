import net from "node:net";
import { BerthError } from "../base/errors.ts";

/** An address to listen on. */
export type ListenAddress =
  | {
      readonly kind: "tcp";
      /** A host name or IP address without brackets. Empty: all interfaces. */
      readonly host: string;
      /** 0: any free port. */
      readonly port: number;
    }
  | { readonly kind: "unix"; readonly path: string };

/** `sockaddr_un` has 108 bytes, including the closing NUL. */
const MAX_UNIX_PATH_BYTES = 107;

const FORMS =
  'write it as "127.0.0.1:7070", "[::1]:7070", ":7070" (every interface) or "unix:/run/berth.sock"';

/**
 * Parses a listen address: `HOST:PORT`, `[IPV6]:PORT`, `:PORT` or `unix:PATH` (also `unix:///PATH`, as gRPC clients
 * write it).
 *
 * @throws BerthError `INVALID_ARGUMENT` that says what is wrong and how to write it
 */
export function parseListenAddress(text: string): ListenAddress {
  if (text.startsWith("unix:")) return parseUnix(text);
  const match = /^(?:\[([^\]]*)\]|([^:[\]]*)):([^:]*)$/.exec(text);
  if (!match) throw notAnAddress(`"${text}" is not an address; ${FORMS}`);
  const [, bracketed, plain = "", portText = ""] = match;
  if (bracketed !== undefined && !net.isIPv6(bracketed)) {
    throw notAnAddress(`"${bracketed}" is not an IPv6 address; ${FORMS}`);
  }
  if (bracketed === undefined && !isHostName(plain)) {
    throw notAnAddress(`"${plain}" is not a host name or IP address; ${FORMS}`);
  }
  const port = Number(portText);
  if (!/^\d{1,5}$/.test(portText) || port > 65_535) {
    throw notAnAddress(`"${portText}" is not a port (0 to 65535); ${FORMS}`);
  }
  return { kind: "tcp", host: bracketed ?? plain, port };
}

function parseUnix(text: string): ListenAddress {
  const path = text.startsWith("unix:///") ? text.slice("unix://".length) : text.slice("unix:".length);
  if (path === "" || path.startsWith("//") || path.includes("\0")) {
    throw notAnAddress(`"${text}" names no socket file; ${FORMS}`);
  }
  const bytes = Buffer.byteLength(path);
  if (bytes > MAX_UNIX_PATH_BYTES) {
    throw notAnAddress(
      `the socket path has ${bytes} bytes, and the system takes at most ${MAX_UNIX_PATH_BYTES}; choose a shorter one`,
    );
  }
  return { kind: "unix", path };
}

function notAnAddress(problem: string): BerthError {
  return new BerthError("INVALID_ARGUMENT", problem);
}

function isHostName(text: string): boolean {
  if (text === "") return true;
  if (/^[\d.]+$/.test(text)) return net.isIPv4(text);
  return text.length <= 253 && /^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$/.test(text);
}

/** Formats an address so that {@link parseListenAddress} can parse it. */
export function formatListenAddress(address: ListenAddress): string {
  if (address.kind === "unix") return `unix:${address.path}`;
  return `${address.host.includes(":") ? `[${address.host}]` : address.host}:${address.port}`;
}

/** Whether only programs on this machine can reach the address. */
export function isLocalAddress(address: ListenAddress): boolean {
  return address.kind === "unix" || isLoopbackName(address.host);
}

/** Created at the first use, which clients' commands do not wait for. */
let loopback: net.BlockList | undefined;

function isLoopback(address: string, family: "ipv4" | "ipv6"): boolean {
  if (loopback === undefined) {
    loopback = new net.BlockList();
    loopback.addSubnet("127.0.0.0", 8, "ipv4");
    loopback.addAddress("::1", "ipv6");
  }
  return loopback.check(address, family);
}

/** Whether a host name or IP address (without brackets) means this machine's loopback. */
export function isLoopbackName(name: string): boolean {
  if (net.isIPv4(name)) return isLoopback(name, "ipv4");
  if (net.isIPv6(name)) return isLoopback(name, "ipv6");
  const lower = name.toLowerCase();
  return lower === "localhost" || lower.endsWith(".localhost");
}
