import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { create, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ErrorDetailSchema, ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import { GetSandboxRequestSchema, SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { startTestServer, type TestServer } from "../../support/server/test-server.ts";

const run = promisify(execFile);

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({ limits: { readMaxBytes: 100_000 } });
});
afterAll(() => server[Symbol.asyncDispose]());

describe.each(["1.1", "2"] as const)("a Connect client that reads by GET over HTTP/%s", (httpVersion) => {
  const clientOf = (useBinaryFormat: boolean) =>
    createClient(
      SandboxService,
      createConnectTransport({ baseUrl: server.url, httpVersion, useHttpGet: true, useBinaryFormat }),
    );

  test.each([true, false])("gets answers and errors (binary: %s)", async (binary) => {
    const client = clientOf(binary);
    let method: string | null | undefined;
    const onHeader = (header: Headers) => {
      method = header.get("x-method");
    };
    const headers = { "x-test": "method" };
    expect(await client.getStats({}, { headers, onHeader })).toMatchObject({ totalSandboxes: 3 });
    expect(method).toBe("GET");
    const failed = await client
      .getStats({}, { headers: { "x-test": "fail SANDBOX_NOT_FOUND" } })
      .catch((error: unknown) => ConnectError.from(error));
    expect(failed).toMatchObject({ code: Code.NotFound });
    expect((failed as ConnectError).findDetails(ErrorDetailSchema)).toMatchObject([
      { reason: ErrorReason.SANDBOX_NOT_FOUND },
    ]);
  });

  test("has its deadline enforced", async () => {
    const headers = { "x-test": "hang", "connect-timeout-ms": "100" };
    await expect(clientOf(false).getStats({}, { headers })).rejects.toMatchObject({
      code: Code.DeadlineExceeded,
    });
  });
});

describe.each(["--http1.1", "--http2-prior-knowledge"])("curl -G %s", (version) => {
  /** curl encodes the values of the query. */
  async function get(method: string, query: Record<string, string>, ...more: string[]) {
    const values = Object.entries(query).flatMap((entry) => ["--data-urlencode", entry.join("=")]);
    const url = `${server.url}/berth.v1.${method}`;
    const { stdout } = await run("curl", ["-sS", "-G", version, "-i", ...values, ...more, url]);
    const end = stdout.indexOf("\r\n\r\n");
    const [status = "", ...headers] = stdout.slice(0, end).toLowerCase().split("\r\n");
    return { status: status.split(" ")[1], headers, body: stdout.slice(end + 4) };
  }
  const getSandbox = (query: Record<string, string>) => get("SandboxService/GetSandbox", query);
  const json = (message: string) => ({ encoding: "json", message });

  test("reads, and the answer may not be cached", async () => {
    const { status, headers, body } = await getSandbox(json('{"sandboxId": "abc"}'));
    expect(status).toBe("200");
    expect(JSON.parse(body)).toMatchObject({ sandbox: { sandboxId: "3" } });
    expect(headers).toContain("cache-control: no-store");
  });

  test("accepts base64 and gzip", async () => {
    const bytes = toBinary(GetSandboxRequestSchema, create(GetSandboxRequestSchema, { sandboxId: "abcd" }));
    const proto = { encoding: "proto", base64: "1", message: Buffer.from(bytes).toString("base64url") };
    expect(await getSandbox(proto)).toMatchObject({ status: "200" });
    const message = gzipSync('{"sandboxId": "abcd"}').toString("base64url");
    const packed = await getSandbox({ encoding: "json", base64: "1", compression: "gzip", message });
    expect(JSON.parse(packed.body)).toMatchObject({ sandbox: { sandboxId: "4" } });
  });

  test("keeps every byte of a message that is not base64, and refuses JSON that is not UTF-8", async () => {
    const read = async (query: string) => {
      const url = `${server.url}/berth.v1.SandboxService/GetSandbox?${query}`;
      const { stdout } = await run("curl", ["-sS", version, url]);
      return JSON.parse(stdout.startsWith("{") ? stdout : JSON.stringify({ bytes: stdout.length })) as object;
    };
    const text = encodeURIComponent('{"sandboxId": "é+ "}');
    // Also behind more names than Node reads by default.
    for (const query of ["", "a&".repeat(1_000)])
      expect(await read(`${query}encoding=json&message=${text}`)).toMatchObject({
        sandbox: { sandboxId: "3" },
      });
    expect(await read("encoding=json&message=%7B%22sandboxId%22:%22%FF%22%7D")).toMatchObject({
      code: "invalid_argument",
      message: expect.stringContaining("The JSON is not UTF-8."),
    });
    // "é" in protobuf: a tag, its length, and its bytes.
    expect(await read("encoding=proto&message=%0A%02%C3%A9")).toEqual({ bytes: 5 });
  });

  test("follows the rules of a POST", async () => {
    const refusal = async (query: Record<string, string>) => {
      const { status, headers, body } = await getSandbox(query);
      expect(headers).toContain("cache-control: no-store");
      return { status, ...(JSON.parse(body) as object) };
    };
    expect(await refusal(json('{"sandbox": "abc"}'))).toMatchObject({
      status: "400",
      code: "invalid_argument",
      message: expect.stringContaining("GetSandboxRequest has no such field"),
    });
    const gzip = (text: string) => ({
      encoding: "json",
      base64: "1",
      compression: "gzip",
      message: gzipSync(text).toString("base64url"),
    });
    expect(await refusal(gzip(" ".repeat(200_000)))).toMatchObject({
      status: "429",
      message: expect.stringContaining("larger than the 100000 bytes"),
    });
    expect(await refusal(gzip(`{"sandboxId": [${"0,".repeat(40_000)}0]}`))).toMatchObject({
      status: "429",
      message: expect.stringContaining("more than the 8000 values"),
    });
    expect(await refusal({ ...json("é"), base64: "1" })).toMatchObject({
      status: "400",
      message: expect.stringContaining("is not base64"),
    });
    expect(await refusal({ ...json("{}"), compression: "br" })).toMatchObject({
      status: "501",
      message: expect.stringContaining("gzip"),
    });
  });

  test("gets an error for what is missing, and for a method that is not a read", async () => {
    const unreadable: Record<string, string>[] = [{ message: "{}" }, { encoding: "xml", message: "{}" }];
    for (const query of unreadable) {
      expect(await getSandbox(query)).toMatchObject({
        status: "415",
        body: expect.stringContaining("?encoding=json&message="),
      });
    }
    for (const method of ["SandboxService/DeleteSandbox", "SandboxService/WatchEvents"]) {
      expect(await get(method, json("{}"))).toMatchObject({
        status: "405",
        body: "Call this method by POST.\n",
      });
    }
  });

  test("is refused if a browser fetches for a page of another site", async () => {
    const fetched = (site: string) =>
      get("SandboxService/GetStats", json("{}"), "-H", `sec-fetch-site: ${site}`);
    expect(await fetched("cross-site")).toMatchObject({
      status: "403",
      body: "Pages of other sites may not call this server.\n",
    });
    for (const site of ["same-origin", "none"]) expect(await fetched(site)).toMatchObject({ status: "200" });
  });
});
