import type { Transport } from "@connectrpc/connect";
import {
  type compressionGzip,
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
  Http2SessionManager,
} from "@connectrpc/connect-node";

/** A transport whose disposal closes its connection. */
export type DisposableTransport = Transport & Disposable;

export interface TransportSetup {
  readonly sendCompression?: typeof compressionGzip;
}

/** Creates a transport to a server at `url`. */
export type MakeTransport = (url: string, setup?: TransportSetup) => DisposableTransport;

/** Every transport of the library's client. */
export const TRANSPORTS: readonly (readonly [name: string, make: MakeTransport])[] = [
  ["gRPC", http2((options) => createGrpcTransport(options))],
  ["gRPC with JSON", http2((options) => createGrpcTransport({ ...options, useBinaryFormat: false }))],
  ["gRPC-Web over HTTP/2", http2((options) => createGrpcWebTransport(options))],
  ["gRPC-Web over HTTP/1.1", http1((options) => createGrpcWebTransport(options))],
  ["Connect over HTTP/2", http2((options) => createConnectTransport(options))],
  ["Connect over HTTP/1.1", http1((options) => createConnectTransport(options))],
  [
    "Connect with JSON over HTTP/1.1",
    http1((options) => createConnectTransport({ ...options, useBinaryFormat: false })),
  ],
];

function http2(
  make: (
    options: TransportSetup & { baseUrl: string; httpVersion: "2"; sessionManager: Http2SessionManager },
  ) => Transport,
): MakeTransport {
  return (url, setup = {}) => {
    const sessionManager = new Http2SessionManager(url);
    const transport = make({ baseUrl: url, httpVersion: "2", sessionManager, ...setup });
    return Object.assign(transport, { [Symbol.dispose]: () => sessionManager.abort() });
  };
}

function http1(
  make: (options: TransportSetup & { baseUrl: string; httpVersion: "1.1" }) => Transport,
): MakeTransport {
  return (url, setup = {}) =>
    Object.assign(make({ baseUrl: url, httpVersion: "1.1", ...setup }), { [Symbol.dispose]: () => {} });
}
