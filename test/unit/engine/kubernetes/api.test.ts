import { createHash } from "node:crypto";
import { once } from "node:events";
import { copyFile, mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, connect, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import type { TLSSocket } from "node:tls";
import { expect, onTestFinished, test, vi } from "vitest";
import { WebSocketServer } from "ws";
import { runPlain } from "../../../../src/engine/kubernetes/process.ts";
import { makeCertificate } from "../../../support/certificate.ts";
import { openApi, serveApi } from "../../../support/kubernetes-api.ts";

test("an API server without TLS must be intended", async () => {
  await expect(openApi("{ server: 'http://127.0.0.1:8001' }")).rejects.toMatchObject({
    reason: "INVALID_ARGUMENT",
    message: expect.stringContaining("http://127.0.0.1:8001 has no TLS. If that is intended, set"),
  });
  const intended = await openApi("{ server: 'http://127.0.0.1:8001', insecure-skip-tls-verify: true }");
  expect(intended.server).toBe("http://127.0.0.1:8001");
  expect((await openApi("{ server: 'https://127.0.0.1:6443' }")).server).toBe("https://127.0.0.1:6443");
});

/** Starts a server on this machine for the time of the test. Returns its port. */
async function listen(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

async function temporaryDirectory(): Promise<string> {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-api-"));
  onTestFinished(() => rm(directory, { recursive: true }));
  return directory;
}

test("renewed certificates are used, those of the service and those that it trusts", async () => {
  const directory = await temporaryDirectory();
  const file = (name: string): string => path.join(directory, name);
  for (const name of ["service-1", "service-2", "server-1", "server-2"])
    await makeCertificate(directory, name);
  const context = async (generation: number) => ({
    cert: await readFile(file(`server-${generation}.pem`)),
    key: await readFile(file(`server-${generation}.key`)),
  });
  const use = async (generation: number): Promise<void> => {
    await copyFile(file(`service-${generation}.pem`), file("client.crt"));
    await copyFile(file(`service-${generation}.key`), file("client.key"));
    await copyFile(file(`server-${generation}.pem`), file("ca.crt"));
  };
  await use(1);
  const seen: unknown[] = [];
  const connections = new Set<unknown>();
  const server = createHttpsServer(
    { ...(await context(1)), requestCert: true, rejectUnauthorized: false },
    ({ url, socket }, response) => {
      response.end("{}");
      // A slow call also asks for the version.
      if (url === "/version") return;
      seen.push((socket as TLSSocket).getPeerCertificate().subject.CN);
      connections.add(socket.remotePort);
    },
  );
  const port = await listen(server);
  const api = await openApi(
    `{ server: 'https://127.0.0.1:${port}', certificate-authority: ${file("ca.crt")} }`,
    `{ client-certificate: ${file("client.crt")}, client-key: ${file("client.key")} }`,
  );
  const ask = () => api.call("GET", "api/v1/pods", "asking");
  await ask();
  await ask();
  expect(connections.size).toBe(1);
  await use(2);
  server.setSecureContext(await context(2));
  await ask();
  expect(seen).toEqual(["service-1", "service-1", "service-2"]);
});

test("calls and processes use the proxy of the kubeconfig", async () => {
  const { cert, key } = await makeCertificate(await temporaryDirectory(), "server");
  const server = createHttpsServer(
    { cert: await readFile(cert), key: await readFile(key) },
    (_, response) => {
      response.end("{}");
    },
  );
  new WebSocketServer({ server });
  const port = await listen(server);
  const asked: (string | undefined)[] = [];
  const proxy = createHttpServer().on("connect", (request, socket) => {
    asked.push(request.url);
    const onward = connect(port, "127.0.0.1", () => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      onward.pipe(socket).pipe(onward);
    });
    for (const end of [onward, socket]) end.on("error", () => {});
  });
  const proxyUrl = `http://127.0.0.1:${await listen(proxy)}`;
  const api = await openApi(
    `{ server: 'https://127.0.0.1:${port}', certificate-authority: ${cert}, proxy-url: '${proxyUrl}' }`,
  );
  const socket = await api.connect("exec", "starting a process");
  onTestFinished(() => socket.terminate());
  await api.call("GET", "version", "asking");
  expect(asked.slice(0, 2)).toEqual(Array(2).fill(`127.0.0.1:${port}`));
});

test("a watch that is not answered in time fails, and its request ends", async () => {
  const asked = Promise.withResolvers<void>();
  let isOpen = true;
  const cluster = await serveApi((_, response) => {
    response.once("close", () => {
      isOpen = false;
    });
    asked.resolve();
  });
  const api = await openApi(cluster);
  const late = new AbortController();
  vi.spyOn(AbortSignal, "timeout").mockReturnValue(late.signal);
  onTestFinished(() => void vi.restoreAllMocks());
  const watched = api.watch("api/v1/pods", {}, new AbortController().signal).next();
  const failed = expect(watched).rejects.toMatchObject({
    reason: "ENGINE_UNAVAILABLE",
    message: expect.stringContaining("did not answer in time"),
  });
  await asked.promise;
  late.abort();
  await failed;
  await expect.poll(() => isOpen).toBe(false);
});

/** A short frame of a WebSocket's server: an operation, and what it carries. */
const frame = (operation: number, payload: Buffer): Buffer =>
  Buffer.concat([Buffer.of(0x80 | operation, payload.length), payload]);
const message = (channel: number, text: string): Buffer =>
  frame(2, Buffer.concat([Buffer.of(channel), Buffer.from(text)]));

/** The API server escapes this, which callers may put into variables. */
const ESCAPED = "\\u003c";

test("large objects are listed in smaller pages", async () => {
  const items = Array.from(
    { length: 12 },
    (_, i) => `{"id":${i},"text":"${ESCAPED.repeat(i < 6 ? 350_000 : 1)}"}`,
  );
  const asked: number[] = [];
  const cluster = await serveApi(({ url }, response) => {
    const query = new URL(url ?? "", "http://api").searchParams;
    const [from, limit] = [Number(query.get("continue") ?? 0), Number(query.get("limit"))];
    asked.push(limit);
    const next = from + limit < items.length ? `"continue":"${from + limit}",` : "";
    const page = items.slice(from, from + limit);
    response.end(`{"metadata":{${next}"resourceVersion":"5"},"items":[${page}]}`);
  });
  const api = await openApi(cluster);
  const listed = api.list("api/v1/pods", "listing pods", ({ id }: { id: number }) => id);
  await expect(listed).resolves.toEqual({ items: items.map((_, i) => i), resourceVersion: "5" });
  expect(asked[0]).toBe(50);
  expect(asked).toContain(1);
  // Pages grow once objects are small again.
  expect(asked.at(-1)).toBeGreaterThan(1);
});

test("the chunks of a large object of a watch are each searched for its end once", async () => {
  const text = "x".repeat(1 << 20);
  const line = `${JSON.stringify({ type: "MODIFIED", object: { text } })}\n`;
  const cluster = await serveApi(async (_, response) => {
    // In chunks of this size, as over TLS.
    for (let at = 0; at < line.length; at += 4096) {
      response.write(line.slice(at, at + 4096));
      await new Promise((resolve) => setImmediate(resolve));
    }
    response.end();
  });
  const api = await openApi(cluster);
  const split = vi.spyOn(String.prototype, "split");
  onTestFinished(() => split.mockRestore());
  const { signal } = new AbortController();
  const objects: unknown[] = [];
  for await (const { object } of api.watch("api/v1/pods", {}, signal)) objects.push(object);
  const searched = split.mock.contexts.reduce<number>((sum, of) => sum + String(of).length, 0);
  expect(objects).toEqual([{ text }]);
  expect(searched).toBeLessThan(2 * line.length);
});

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
  const port = await listen(server);
  const api = await openApi(`{ server: 'http://127.0.0.1:${port}', insecure-skip-tls-verify: true }`);
  expect(await runPlain(api, "pod", ["true"], AbortSignal.timeout(30_000))).toMatchObject({
    stdout: "done",
    status: { status: "Success" },
  });
});
