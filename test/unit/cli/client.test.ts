import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import type { AddressInfo, Server } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { Berth } from "../../../clients/typescript/src/node.ts";
import { connectTo } from "../../../src/cli/client.ts";
import { parseServiceAddress } from "../../../src/cli/service-address.ts";

/** Never ends. */
async function* endless() {
  yield { part: { case: "header" as const, value: { sandboxId: "box", path: "f" } } };
  await new Promise(() => {});
}

const CLIENTS = {
  program: (port: number) => connectTo(parseServiceAddress(`http://127.0.0.1:${port}`)),
  package: (port: number) => Berth.connect(`127.0.0.1:${port}`).connection,
};

test.each(Object.entries(CLIENTS))(
  "%s: an upload that is broken off is reset, and never looks whole, while the connection stays",
  async (_client, connect) => {
    const seen: string[] = [];
    const server = http2.createServer();
    const over = new Promise<void>((resolve) => {
      server.on("stream", (stream) => {
        stream.on("error", () => {});
        stream.on("end", () => seen.push(stream.aborted ? "end of a reset stream" : "end"));
        stream.on("aborted", () => seen.push("aborted"));
        stream.on("close", resolve);
        stream.once("data", () => leave.abort());
        stream.resume();
      });
    });
    const leave = new AbortController();
    const port = await portOf(server);
    const client = connect(port);
    onTestFinished(() => client.close());
    const call = client.files.uploadFile(endless(), { signal: leave.signal });
    await expect(call).rejects.toThrow("aborted");
    await over;
    expect(seen[0]).toBe("aborted");
    expect(seen).not.toContain("end");
  },
);

test.each(["the port", "the socket"])(
  "program, to %s of a service on this machine: an upload that is broken off never looks whole",
  async (way) => {
    const seen = Promise.withResolvers<boolean>();
    const leave = new AbortController();
    const server = http.createServer((request) => {
      request.on("error", () => {});
      request.on("close", () => seen.resolve(request.complete));
      request.once("data", () => leave.abort());
      request.resume();
    });
    const dir = mkdtempSync(path.join(tmpdir(), "berth-client-"));
    onTestFinished(() => rmSync(dir, { recursive: true }));
    const socket = path.join(dir, "socket");
    const address =
      way === "the socket" ? `unix:${await listening(server, socket)}` : `127.0.0.1:${await portOf(server)}`;
    const client = connectTo(parseServiceAddress(address));
    onTestFinished(() => client.close());
    const call = client.files.uploadFile(endless(), { signal: leave.signal });
    await expect(call).rejects.toThrow("aborted");
    expect(await seen.promise).toBe(false);
  },
);

test("the connections to a service on this machine end with the client, and calls with them", async () => {
  const server = http.createServer(() => {});
  const asked = once(server, "request");
  const client = connectTo(parseServiceAddress(`127.0.0.1:${await portOf(server)}`));
  const call = client.sandboxes.listSandboxes({});
  call.catch(() => {});
  await asked;
  client.close();
  await expect(call).rejects.toMatchObject({ cause: { code: "ECONNRESET" } });
});

async function portOf(server: Server): Promise<number> {
  await once(server.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

async function listening(server: Server, socket: string): Promise<string> {
  await once(server.listen(socket), "listening");
  onTestFinished(() => void server.close());
  return socket;
}
