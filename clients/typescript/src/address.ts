/** Where clients look for a service by default. */
export const DEFAULT_ADDRESS = "127.0.0.1:7070";

/** The address of a service. */
export interface Endpoint {
  /** As the user wrote it. */
  readonly address: string;
  /** Without a slash at its end. */
  readonly baseUrl: string;
  /** The Unix socket to connect to instead of the URL's host. */
  readonly socketPath?: string;
}

/**
 * Reads an address: `HOST:PORT`, `unix:PATH`, `http://…` or `https://…`. With `secure`, `HOST:PORT` uses TLS.
 * @throws TypeError that says how to write it
 */
export function parseAddress(address: string, secure: boolean): Endpoint {
  const socketPath = /^unix:(?:\/\/)?(.+)$/.exec(address)?.[1];
  if (socketPath !== undefined)
    return { address, baseUrl: `${secure ? "https" : "http"}://localhost`, socketPath };
  const text = /^https?:\/\//.test(address)
    ? address
    : `${secure ? "https" : "http"}://${address.replace(/^:/, "127.0.0.1:")}`;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  // Without a port, it is more likely a typing error than port 80. Another scheme would become the host: "grpc://…".
  const whole = text === address || (/:\d+$/.test(address) && url?.pathname === "/");
  if (url === undefined || !whole || url.search !== "" || url.hash !== "" || url.username !== "") {
    throw new TypeError(
      `"${address}" is not an address: write "127.0.0.1:7070", "[::1]:7070", "unix:/run/berth.sock" or "https://berth.example:443".`,
    );
  }
  return { address, baseUrl: text.replace(/\/+$/, "") };
}
