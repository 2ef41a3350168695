import type { HttpRequest } from "./http-message.ts";

/** How a client speaks to the port. */
export type RpcProtocol = "grpc" | "grpc-web" | "connect";

/** The protocol of a request, by its content type. */
export function protocolOf(request: HttpRequest): RpcProtocol {
  const type = contentTypeOf(request);
  if (type.startsWith("application/grpc-web")) return "grpc-web";
  return type.startsWith("application/grpc") ? "grpc" : "connect";
}

/** The content type of a request; that of gRPC without parameters such as `charset`, which have no meaning there. */
export function contentTypeOf({ headers }: HttpRequest): string {
  const type = headers["content-type"] ?? "";
  if (type === "application/grpc" || !/^application\/grpc/i.test(type)) return type;
  return (type.split(";", 1)[0] ?? "").trimEnd().toLowerCase();
}
