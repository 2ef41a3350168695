import { createHash } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { runPlain } from "../../../../src/engine/kubernetes/process.ts";
import { openApi } from "../../../support/kubernetes-api.ts";

test("an API server without TLS must be intended", async () => {
  await expect(openApi("{ server: 'http://127.0.0.1:8001' }")).rejects.toMatchObject({
    reason: "INVALID_ARGUMENT",
    message: expect.stringContaining("http://127.0.0.1:8001 has no TLS. If that is intended, set"),
  });
  const intended = await openApi("{ server: 'http://127.0.0.1:8001', insecure-skip-tls-verify: true }");
  expect(intended.server).toBe("http://127.0.0.1:8001");
  expect((await openApi("{ server: 'https://127.0.0.1:6443' }")).server).toBe("https://127.0.0.1:6443");
});

/** A short frame of a WebSocket's server: an operation, and what it carries. */
const frame = (operation: number, payload: Buffer): Buffer =>
  Buffer.concat([Buffer.of(0x80 | operation, payload.length), payload]);
const message = (channel: number, text: string): Buffer =>
  frame(2, Buffer.concat([Buffer.of(channel), Buffer.from(text)]));

test("output that arrives together with the acceptance of an exec is not lost", async () => {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", (request) => {
      const key = /sec-websocket-key: (.+)\r\n/i.exec(request.toString())?.[1];
      const accept = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
      const lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        `Sec-WebSocket-Accept: ${accept}`,
        "Sec-WebSocket-Protocol: v5.channel.k8s.io",
      ];
      // In one packet, as a service reads it that was busy meanwhile.
      socket.end(
        Buffer.concat([
          Buffer.from(`${lines.join("\r\n")}\r\n\r\n`),
          message(1, "done"),
          message(3, '{"status":"Success"}'),
          frame(8, Buffer.alloc(0)),
        ]),
      );
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const api = await openApi(`{ server: 'http://127.0.0.1:${port}', insecure-skip-tls-verify: true }`);
  expect(await runPlain(api, "pod", ["true"], AbortSignal.timeout(30_000))).toMatchObject({
    stdout: "done",
    status: { status: "Success" },
  });
});
