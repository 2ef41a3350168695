import { once } from "node:events";
import http2 from "node:http2";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { Berth } from "../../../clients/typescript/src/node.ts";
import { connectTo } from "../../../src/cli/client.ts";
import { parseServiceAddress } from "../../../src/cli/service-address.ts";

const CLIENTS = {
  program: (address: string) => connectTo(parseServiceAddress(address)),
  package: (address: string) => Berth.connect(address).connection,
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
    await once(server.listen(0, "127.0.0.1"), "listening");
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const client = connect(`127.0.0.1:${port}`);
    onTestFinished(() => client.close());
    async function* endless() {
      yield { part: { case: "header" as const, value: { sandboxId: "box", path: "f" } } };
      await new Promise(() => {});
    }
    const call = client.files.uploadFile(endless(), { signal: leave.signal });
    await expect(call).rejects.toThrow("aborted");
    await over;
    expect(seen[0]).toBe("aborted");
    expect(seen).not.toContain("end");
  },
);
