// What the page of a browser runs: `interopCall` makes one call, over fetch.
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { call } from "./call.js";

globalThis.interopCall = (protocol, address, ...rest) => {
  const baseUrl = `http://${address}`;
  const transport =
    protocol === "grpc-web"
      ? createGrpcWebTransport({ baseUrl })
      : createConnectTransport({ baseUrl, useHttpGet: true });
  return call(transport, ...rest);
};
