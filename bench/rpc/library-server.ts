import http2 from "node:http2";
import type { AddressInfo } from "node:net";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { SandboxService } from "../../gen/ts/berth/v1/sandbox_pb.js";
import { makeAnswer } from "./answer.ts";

// The Connect library without anything around it.
const handler = connectNodeAdapter({
  compressMinBytes: 1 << 20,
  routes: (router) => router.service(SandboxService, { getStats: makeAnswer }),
});
const server = http2.createServer(handler as Parameters<typeof http2.createServer>[0] & typeof handler);
server.listen(0, "127.0.0.1", () => process.send?.((server.address() as AddressInfo).port));
