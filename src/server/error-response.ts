import type http from "node:http";
import type { ConnectError } from "@connectrpc/connect";
import { codeToHttpStatus, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { statusTrailers } from "./grpc-response.ts";
import {
  endAfterRequest,
  endResponse,
  type HttpRequest,
  type HttpResponse,
  type RpcProtocol,
} from "./http-message.ts";

/** Sends a response that is only an error, in the form of its protocol. @param httpStatus of one over Connect. */
export async function sendError(
  request: HttpRequest,
  response: HttpResponse,
  protocol: RpcProtocol,
  error: ConnectError,
  httpStatus = codeToHttpStatus(error.code),
): Promise<void> {
  const status = statusTrailers(error, undefined);
  switch (protocol) {
    case "grpc":
      begin(response, 200, "application/grpc+proto");
      // Headers that end the stream leave no room for trailers.
      (response as http.ServerResponse).flushHeaders();
      response.addTrailers(status);
      endResponse(response);
      break;
    case "grpc-web":
      // gRPC-Web reads the status of a response without messages from its headers.
      begin(response, 200, "application/grpc-web+proto", status);
      endResponse(response);
      break;
    case "connect":
      begin(response, httpStatus, "application/json");
      await endAfterRequest(request, response, errorToJsonText(error));
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
