import type http from "node:http";
import type { ConnectError } from "@connectrpc/connect";
import { errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { statusTrailers } from "./grpc-status.ts";
import { endResponse, type HttpRequest, type HttpResponse } from "./http-message.ts";
import { requestEnd } from "./late-body.ts";
import type { RpcProtocol } from "./rpc-protocol.ts";

/** Ends a call to a method that the server does not have, as its protocol wants it. */
export async function sendUnimplemented(
  request: HttpRequest,
  response: HttpResponse,
  protocol: RpcProtocol,
  error: ConnectError,
): Promise<void> {
  const status = statusTrailers(error, undefined);
  switch (protocol) {
    case "grpc":
      begin(response, 200, "application/grpc+proto");
      // Headers that go with the end of the stream leave no place for trailers.
      (response as http.ServerResponse).flushHeaders();
      response.addTrailers(status);
      endResponse(response);
      break;
    case "grpc-web":
      // gRPC-Web takes the status of a response without messages from its headers.
      begin(response, 200, "application/grpc-web+proto", status);
      endResponse(response);
      break;
    case "connect":
      await requestEnd(request);
      if (request.aborted) return;
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
