import type { HttpRequest } from "./http-message.ts";

/** How a client speaks to the port. */
export type RpcProtocol = "grpc" | "grpc-web" | "connect";

/** The protocol of a request, by its content type. */
export function protocolOf(request: HttpRequest): RpcProtocol {
  const type = request.headers["content-type"] ?? "";
  if (type.startsWith("application/grpc-web")) return "grpc-web";
  return type.startsWith("application/grpc") ? "grpc" : "connect";
}
