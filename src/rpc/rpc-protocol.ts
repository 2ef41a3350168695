/** How a client speaks to the port. */
export type RpcProtocol = "grpc" | "grpc-web" | "connect";
