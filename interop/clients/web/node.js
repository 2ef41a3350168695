// Usage: node.js TRANSPORT ADDRESS SANDBOX CELL ARGUMENT
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { createConnectTransport as createFetchTransport } from "@connectrpc/connect-web";
import { call } from "./call.js";

const [name, address, ...rest] = process.argv.slice(2);
const baseUrl = `http://${address}`;
const transports = {
  "connect-es gRPC": () => createGrpcTransport({ baseUrl }),
  "connect-es": () => createConnectTransport({ baseUrl, httpVersion: "2", useHttpGet: true }),
  "connect-web": () => createFetchTransport({ baseUrl, useHttpGet: true }),
};
console.log(JSON.stringify(await call(transports[name](), ...rest)));
// HTTP/2 sessions stay open for a while.
process.exit();
