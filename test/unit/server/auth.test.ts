import { once } from "node:events";
import http2 from "node:http2";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import { ErrorDetailSchema, ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import { ProcessService } from "../../../gen/ts/berth/v1/process_pb.js";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { BerthError } from "../../../src/base/errors.ts";
import type { Authenticator, Credentials, Principal } from "../../../src/server/call.ts";
import { SECRET } from "../../support/server/handlers.ts";
import { startTestServer } from "../../support/server/test-server.ts";
import { TRANSPORTS } from "../../support/server/transports.ts";

/** Accepts callers who give their name, and records what it was asked. */
class ByName implements Authenticator {
  readonly asked: Credentials[] = [];

  async authenticate(credentials: Credentials): Promise<Principal> {
    this.asked.push(credentials);
    const name = credentials.headers.authorization?.replace("Bearer ", "");
    if (name === undefined) throw new BerthError("UNAUTHENTICATED", "Give a token.");
    if (name === "broken") throw new Error(SECRET);
    return { owner: name, tenant: name, tokenId: name, tokenHash: undefined, scope: "user" };
  }

  recheck(): undefined {}
}

describe.each(TRANSPORTS)("%s", (_name, transportTo) => {
  test("the caller's name reaches the handler", async () => {
    const authenticator = new ByName();
    await using server = await startTestServer({ authenticator });
    using transport = transportTo(server.url);
    await createClient(SandboxService, transport).getStats({}, { headers: { authorization: "Bearer ann" } });
    expect(server.record.owner).toBe("ann");
    expect(authenticator.asked).toMatchObject([
      { method: "berth.v1.SandboxService/GetStats", peer: expect.stringMatching(/^127\.0\.0\.1:\d+$/) },
    ]);
  });

  test("an unknown caller reaches no handler", async () => {
    await using server = await startTestServer({ authenticator: new ByName() });
    using transport = transportTo(server.url);
    const unary = () => createClient(SandboxService, transport).getStats({});
    const stream = () => createClient(ProcessService, transport).exec({})[Symbol.asyncIterator]().next();
    for (const call of [unary, stream]) {
      const error = await call().then(() => undefined, ConnectError.from);
      expect(Code[error?.code ?? 0]).toBe("Unauthenticated");
      expect(error?.rawMessage).toBe("Give a token.");
      expect(error?.findDetails(ErrorDetailSchema)[0]?.reason).toBe(ErrorReason.UNAUTHENTICATED);
    }
    expect(server.record).toMatchObject({ unary: 0, begun: 0 });
  });

  test("an authenticator that fails lets nobody in", async () => {
    await using server = await startTestServer({ authenticator: new ByName() });
    using transport = transportTo(server.url);
    const headers = { authorization: "Bearer broken" };
    const error = await createClient(SandboxService, transport)
      .getStats({}, { headers })
      .then(() => undefined, ConnectError.from);
    expect(Code[error?.code ?? 0]).toBe("Internal");
    expect(error?.rawMessage).toMatch(/^internal error \(id \w+\)/);
    expect(server.record.unary).toBe(0);
  });
});

test.each(["application/grpc", "application/grpc-web+proto", "application/proto"])(
  "a stranger is refused before the body comes: %s",
  async (type) => {
    await using server = await startTestServer({ authenticator: new ByName() });
    const session = http2.connect(server.url);
    const stream = session.request({
      ":method": "POST",
      ":path": "/berth.v1.SandboxService/GetStats",
      "content-type": type,
    });
    stream.on("error", () => {});
    const [headers] = await once(stream, "response");
    expect(headers[":status"]).toBe(type === "application/proto" ? 401 : 200);
    // The answer is complete although the request is not.
    await once(stream.resume(), "end");
    session.destroy();
  },
);
