import type { ConnectError } from "@connectrpc/connect";
import { errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import type { RpcProtocol } from "./call.ts";
import { endResponse, type HttpResponse } from "./http-message.ts";

/** Ends a call to a method that the server does not have, as its protocol wants it. */
export function sendUnimplemented(response: HttpResponse, protocol: RpcProtocol, error: ConnectError): void {
  const status = Object.fromEntries(setTrailerStatus(new Headers(), error));
  switch (protocol) {
    case "grpc":
      begin(response, 200, "application/grpc+proto");
      response.addTrailers(status);
      endResponse(response);
      break;
    case "grpc-web":
      // gRPC-Web takes the status of a response without messages from its headers.
      begin(response, 200, "application/grpc-web+proto", status);
      endResponse(response);
      break;
    case "connect":
      begin(response, 404, "application/json");
      endResponse(response, errorToJsonText(error));
      break;
  }
}

function begin(response: HttpResponse, status: number, type: string, headers: Record<string, string> = {}) {
  response.statusCode = status;
  response.setHeader("content-type", type);
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
}

function errorToJsonText(error: ConnectError): string {
  return Buffer.from(errorToJsonBytes(error, undefined)).toString();
}
