// A server of Berth's port as the conformance suite starts it: its properties come on stdin, framed by their length,
// and where it listens goes to stdout in the same way.
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { Registry } from "prom-client";
import type { BerthError } from "../../src/base/errors.ts";
import type { Logger } from "../../src/base/logger.ts";
import { PlainHeaders } from "../../src/base/plain-headers.ts";
import type { Call } from "../../src/server/call.ts";
import { ErrorConverter, toConnectError } from "../../src/server/error-conversion.ts";
import { createRpcServer } from "../../src/server/server.ts";
import { messageType, type ServerCompatRequest } from "./messages.ts";
import { conformanceRoutes } from "./service.ts";

// As in src/main.ts.
globalThis.Headers = PlainHeaders;

const NOTHING = (): void => {};
const logger: Logger = { debug: NOTHING, info: NOTHING, warn: NOTHING, error: NOTHING };

/** Sends the errors of the suite's handlers as they are, and the server's own without the ErrorDetail that Berth adds. */
class PlainErrors extends ErrorConverter {
  protected override wireForm(error: BerthError): ConnectError {
    const { rawMessage, code } = toConnectError(error);
    return new ConnectError(rawMessage, code);
  }

  protected override handlerError(
    call: Call,
    thrown: unknown,
    signal: AbortSignal,
  ): BerthError | ConnectError {
    return thrown instanceof ConnectError && !signal.aborted
      ? thrown
      : super.handlerError(call, thrown, signal);
  }
}

async function readProperties(): Promise<ServerCompatRequest> {
  let bytes = Buffer.alloc(0);
  for await (const chunk of process.stdin) {
    bytes = Buffer.concat([bytes, chunk]);
    if (bytes.length >= 4 && bytes.length >= 4 + bytes.readUInt32BE()) break;
  }
  const end = 4 + bytes.readUInt32BE();
  return fromBinary(
    messageType("ServerCompatRequest"),
    bytes.subarray(4, end),
  ) as unknown as ServerCompatRequest;
}

const { useTls, serverCreds, messageReceiveLimit } = await readProperties();
const tls =
  useTls && serverCreds
    ? { cert: Buffer.from(serverCreds.cert), key: Buffer.from(serverCreds.key) }
    : undefined;
const server = createRpcServer({
  listen: { kind: "tcp", host: "127.0.0.1", port: 0 },
  routes: conformanceRoutes,
  logger,
  errors: new PlainErrors(logger),
  metrics: new Registry(),
  ...(tls && { tls }),
  ...(messageReceiveLimit > 0 && { limits: { readMaxBytes: messageReceiveLimit } }),
});
process.once("SIGTERM", () => {
  void server.stop({ graceMs: 0 }).then(() => process.exit());
});
const address = await server.start();
const answer = {
  host: "127.0.0.1",
  port: address.kind === "tcp" ? address.port : 0,
  pemCert: tls?.cert ?? new Uint8Array(),
};
const message = toBinary(
  messageType("ServerCompatResponse"),
  create(messageType("ServerCompatResponse"), answer),
);
const length = Buffer.alloc(4);
length.writeUInt32BE(message.length);
process.stdout.write(Buffer.concat([length, message]));
