import { parseListenAddress } from "../server/listen-address.ts";
import { UsageError } from "./exit.ts";

/** Where a service is reached. */
export interface ServiceAddress {
  /** As written by the user. */
  readonly text: string;
  readonly baseUrl: string;
  /** Path of the Unix socket to connect to instead of the URL's host. */
  readonly socketPath: string | undefined;
  /**
   * Whether it is a port or socket of this machine, written without `http://`. Then it is a service itself, not a proxy
   * that requires HTTP/2.
   */
  readonly isLocal: boolean;
  /** Whether calls go over a network, not to a port or socket of this machine. */
  readonly overNetwork: boolean;
}

const LOOPBACK = /^(127\.[\d.]+|::1|localhost|)$/;

/** The default address. */
export const DEFAULT_ADDRESS = "127.0.0.1:7070";

/**
 * Parses an address: `HOST:PORT`, `unix:PATH`, `http://…` or `https://…`.
 * @throws UsageError that says how to write it
 */
export function parseServiceAddress(text: string): ServiceAddress {
  if (/^https?:\/\//.test(text) && URL.canParse(text)) {
    const overNetwork = !LOOPBACK.test(new URL(text).hostname.replace(/^\[(.*)\]$/, "$1"));
    return { text, baseUrl: text.replace(/\/+$/, ""), socketPath: undefined, isLocal: false, overNetwork };
  }
  const address = read(text);
  if (address.kind === "unix") {
    return { text, baseUrl: "http://localhost", socketPath: address.path, isLocal: true, overNetwork: false };
  }
  const host = address.host.includes(":") ? `[${address.host}]` : address.host || "127.0.0.1";
  const isLocal = LOOPBACK.test(address.host);
  const baseUrl = `http://${host}:${address.port}`;
  return { text, baseUrl, socketPath: undefined, isLocal, overNetwork: !isLocal };
}

function read(text: string) {
  try {
    return parseListenAddress(text);
  } catch (error) {
    throw new UsageError(
      `"${text}" is not the address of a service; write 127.0.0.1:7070, unix:/run/berth.sock or https://berth.example.com`,
      { cause: error },
    );
  }
}
