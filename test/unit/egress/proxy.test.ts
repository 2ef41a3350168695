import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { expect, onTestFinished, test } from "vitest";
import { EgressProxy, type ProxyLimits } from "../../../src/egress/proxy.ts";

/** A proxy that can reach nothing, and connections of owners to it. */
async function openProxy(limits: Partial<ProxyLimits>) {
  const dir = mkdtempSync(path.join(tmpdir(), "berth-proxy-"));
  const proxy = new EgressProxy(undefined, limits);
  const owners: string[] = [];
  const server = createServer({ allowHalfOpen: true }, (socket) =>
    proxy.serve(socket, { owner: owners.shift() ?? "", rules: [] }),
  );
  const sockets: Socket[] = [];
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
    proxy.close();
    rmSync(dir, { recursive: true });
  });
  const place = path.join(dir, "socket");
  server.listen(place);
  await once(server, "listening");
  return async (owner: string): Promise<Socket> => {
    owners.push(owner);
    const served = once(server, "connection");
    const socket = connect(place);
    sockets.push(socket);
    await served;
    return socket;
  };
}

test("one tenant's connections leave room for another's", async () => {
  const connectAs = await openProxy({ maxConnections: 20 });
  const flood: Socket[] = [];
  for (let i = 0; i < 30; i++) flood.push(await connectAs("noisy"));
  const refused = await Promise.race(flood.map((socket) => once(socket, "data")));
  expect(String(refused)).toMatch(/^HTTP\/1\.1 503 /);
  const quiet = await connectAs("quiet");
  quiet.end("GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n");
  expect(await text(quiet)).toMatch(/^HTTP\/1\.1 403 /);
});

test("a client beyond the limit reads why it is refused after all of a large request", async () => {
  const connectAs = await openProxy({ maxConnections: 1 });
  await connectAs("first");
  const socket = await connectAs("second");
  // More than the buffers of the kernel take.
  const body = Buffer.alloc(16 * 1024 * 1024);
  socket.write(
    `POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: ${body.length}\r\n\r\n`,
  );
  const failure = await new Promise<unknown>((resolve) => socket.once("error", resolve).write(body, resolve));
  expect(failure ?? undefined).toBeUndefined();
  expect(await text(socket)).toMatch(/^HTTP\/1\.1 503 .*limit of connections/s);
});

test("a header that comes too slowly ends its connection", async () => {
  const connectAs = await openProxy({ headersMs: 300 });
  const socket = await connectAs("slow");
  // It may write once more after the proxy has closed.
  socket.on("error", () => {});
  socket.write("GET http://example.com/ HTTP/1.1\r\n");
  const timer = setInterval(() => socket.write("X: y\r\n"), 50);
  onTestFinished(() => clearInterval(timer));
  await expect.poll(() => socket.destroyed).toBe(true);
});
