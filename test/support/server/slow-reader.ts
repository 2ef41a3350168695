import { once } from "node:events";
import http2 from "node:http2";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { ExecRequestSchema } from "../../../gen/ts/berth/v1/process_pb.js";
import { grpcFrame } from "./http.ts";

const REQUEST = {
  ":method": "POST",
  ":path": "/berth.v1.ProcessService/Exec",
  "content-type": "application/grpc",
  te: "trailers",
};
/** How long the client rests after each piece of at most 16 KiB. */
const REST_MS = 60;
/** Takes it half a second. By then the server has as much waiting for it as it ever has, which takes it seconds. */
const BEHIND_BYTES = 128 * 1024;

/** Calls Exec with a client that reads slowly. The command's output has to be a flood. */
export function readSlowly(
  url: string,
  command: MessageInitShape<typeof ExecRequestSchema>,
): {
  /** Resolves when it is seconds behind. */
  readonly behind: Promise<void>;
  /** Resolves with the status of the call. Undefined: the connection ended before that arrived. */
  readonly status: Promise<string | undefined>;
} {
  const session = http2.connect(url, { settings: { initialWindowSize: 16_384 } });
  session.on("error", () => {});
  const stream = session.request(REQUEST);
  stream.on("error", () => {});
  let trailers: http2.IncomingHttpHeaders = {};
  stream.on("trailers", (received) => {
    trailers = received;
  });
  const { promise: behind, resolve } = Promise.withResolvers<void>();
  let readBytes = 0;
  stream.on("data", ({ length }: Buffer) => {
    readBytes += length;
    if (readBytes >= BEHIND_BYTES) resolve();
    stream.pause();
    setTimeout(() => stream.resume(), REST_MS);
  });
  const status = once(stream, "close").then(() => {
    session.destroy();
    return trailers["grpc-status"] as string | undefined;
  });
  stream.end(grpcFrame(toBinary(ExecRequestSchema, create(ExecRequestSchema, command))));
  return { behind, status };
}
