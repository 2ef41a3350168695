import http from "node:http";
import { describe, expect, test } from "vitest";
import { failureOf } from "../../../support/client.ts";
import { check, MIB, useUnharmed } from "./support.ts";

const here = useUnharmed();
const { app } = here;

describe("the port refuses", () => {
  test("a message of 5 MiB", async () => {
    const call = app.client.run(here.id, "cat", { stdin: Buffer.alloc(5 * MIB) });
    check(await failureOf(call), {
      code: "RESOURCE_EXHAUSTED",
      reason: "MESSAGE_TOO_LARGE",
      says: String(4 * MIB),
    });
  });

  test("bytes that are not a message", async () => {
    const broken = Buffer.from("0affffffffffffffffffffff", "hex");
    const failure = await failureOf(app.client.raw("/berth.v1.SandboxService/GetSandbox", broken));
    expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", reason: "INVALID_ARGUMENT" });
    expect(failure.message).toMatch(/\w{4}/);
  });

  test("text that is not UTF-8", async () => {
    const broken = Buffer.from([0x0a, 0x02, 0xc3, 0x28]);
    const failure = await failureOf(app.client.raw("/berth.v1.SandboxService/GetSandbox", broken));
    expect(["INVALID_ARGUMENT", "NOT_FOUND"]).toContain(failure.code);
  });

  test("unknown methods and services", async () => {
    for (const path of ["/berth.v1.SandboxService/FlySandbox", "/berth.v1.FlyingService/Fly"]) {
      const failure = await failureOf(app.client.raw(path, Buffer.alloc(0)));
      expect(failure).toMatchObject({ code: "UNIMPLEMENTED", message: expect.stringContaining("Fly") });
    }
  });

  test("a foreign Host and a foreign Origin", async () => {
    const path = "/berth.v1.SandboxService/GetStats";
    const json = { "content-type": "application/json" };
    expect(await post(path, json)).toMatchObject({ status: 200 });
    expect(await post(path, { ...json, host: "evil.example:7070" })).toMatchObject({
      status: 403,
      body: expect.stringContaining("evil.example"),
    });
    expect(await post(path, { ...json, origin: "https://evil.example" })).toMatchObject({
      status: 403,
      body: expect.stringContaining("evil.example"),
    });
  });

  test("a form that a web page could post", async () => {
    const answer = await post("/berth.v1.SandboxService/GetStats", { "content-type": "text/plain" });
    expect(answer).toMatchObject({ status: 415, body: expect.stringContaining("application/json") });
  });
});

function post(path: string, headers: http.OutgoingHttpHeaders): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const request = http.request(
      `http://${app.app.address}${path}`,
      { method: "POST", headers },
      (response) => {
        let body = "";
        response.setEncoding("utf8").on("data", (text) => {
          body += text;
        });
        response.on("end", () => resolve({ status: response.statusCode ?? 0, body }));
      },
    );
    request.on("error", reject);
    request.end("{}");
  });
}
