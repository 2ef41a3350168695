import { describe, test } from "vitest";
import { failureOf, type Request } from "../../../support/client.ts";
import { seconds } from "../../../support/wire.ts";
import { check, type Refusal, requestOf, TOO_LONG, useUnharmed } from "./support.ts";

const here = useUnharmed();
const { app } = here;

describe("calls about a sandbox refuse", () => {
  const unknown = { code: "NOT_FOUND", reason: "SANDBOX_NOT_FOUND", says: "sbx_nothing" };
  const mask = (...paths: string[]): Request => ({ update_mask: { paths } });
  const cases: readonly (Refusal & { readonly method: Parameters<typeof app.client.call>[0] })[] = [
    ...(
      [
        "GetSandbox",
        "GetSandboxUsage",
        "KeepAliveSandbox",
        "PauseSandbox",
        "ResumeSandbox",
        "UpdateSandbox",
      ] as const
    ).map((method) => ({
      method: `SandboxService/${method}` as const,
      because: "an unknown id",
      request: { sandbox_id: "sbx_nothing", ...(method === "UpdateSandbox" && mask("labels")) },
      ...unknown,
    })),
    ...(["GetSandbox", "GetSandboxUsage", "KeepAliveSandbox", "PauseSandbox", "DeleteSandbox"] as const).map(
      (method) => ({
        method: `SandboxService/${method}` as const,
        because: "no id",
        request: {},
        says: "sandbox_id",
      }),
    ),
    {
      method: "SandboxService/GetSandbox",
      because: "another generation",
      request: () => ({ sandbox_id: here.id, generation: 9 }),
      code: "FAILED_PRECONDITION",
      reason: "SANDBOX_REPLACED",
      says: "generation",
    },
    {
      method: "SandboxService/GetSandboxUsage",
      because: "another generation",
      request: () => ({ sandbox_id: here.id, generation: 9 }),
      code: "FAILED_PRECONDITION",
      reason: "SANDBOX_REPLACED",
      says: "generation",
    },
    {
      method: "SandboxService/DeleteSandbox",
      because: "a negative grace",
      request: () => ({ sandbox_id: here.id, grace: seconds(-1) }),
      says: "grace",
    },
    {
      method: "SandboxService/DeleteSandbox",
      because: "a grace over 24 days",
      request: () => ({ sandbox_id: here.id, grace: TOO_LONG }),
      says: "grace",
    },
    {
      method: "SandboxService/DeleteSandbox",
      because: "another generation",
      request: () => ({ sandbox_id: here.id, generation: 9 }),
      code: "FAILED_PRECONDITION",
      reason: "SANDBOX_REPLACED",
      says: "generation",
    },
    {
      method: "SandboxService/UpdateSandbox",
      because: "no mask",
      request: () => ({ sandbox_id: here.id, labels: { a: "b" } }),
      says: "update_mask",
    },
    {
      method: "SandboxService/UpdateSandbox",
      because: "a field that cannot change",
      request: () => ({ sandbox_id: here.id, ...mask("image") }),
      says: /update_mask.*image.*labels/,
    },
    {
      method: "SandboxService/UpdateSandbox",
      because: "a field that does not exist",
      request: () => ({ sandbox_id: here.id, ...mask("labels", "no_such_field") }),
      says: /update_mask.*no_such_field/,
    },
    {
      method: "SandboxService/UpdateSandbox",
      because: "a reserved label",
      request: () => ({ sandbox_id: here.id, ...mask("labels"), labels: { "berth.owner": "me" } }),
      says: "labels",
    },
    {
      method: "SandboxService/UpdateSandbox",
      because: "a negative timeout",
      request: () => ({ sandbox_id: here.id, ...mask("idle_timeout"), idle_timeout: seconds(-1) }),
      says: "idle_timeout",
    },
    {
      method: "SandboxService/ListSandboxes",
      because: "a negative page",
      request: { page_size: -1 },
      says: "page_size",
    },
    {
      method: "SandboxService/ListSandboxes",
      because: "a token that is none",
      request: { page_token: "%%%" },
      says: "page_token",
    },
    {
      method: "SandboxService/ListSandboxes",
      because: "a state that does not exist",
      request: { states: [77] },
      says: "states",
    },
  ];
  for (const refusal of cases) {
    test(`${refusal.method.split("/")[1]}: ${refusal.because}`, async () => {
      check(await failureOf(app.client.call(refusal.method, requestOf(refusal))), refusal);
    });
  }

  test("WatchEvents: a sequence beyond the newest, and a negative one", async () => {
    const watch = async (request: Request): Promise<unknown> => {
      const items: unknown[] = [];
      for await (const item of app.client.stream("SandboxService/WatchEvents", request)) items.push(item);
      return items;
    };
    check(await failureOf(watch({ after_sequence: 1_000_000 })), {
      says: "after_sequence",
      code: "OUT_OF_RANGE",
      reason: "OFFSET_OUT_OF_RANGE",
    });
    check(await failureOf(watch({ after_sequence: -1 })), {
      says: "after_sequence",
    });
  });

  test("a request id that was used for another request", async () => {
    const request = { request_id: "used", sandbox_id: here.id, ...mask("labels"), labels: { a: "b" } };
    await app.client.call("SandboxService/UpdateSandbox", request);
    const other = { ...request, labels: { a: "c" } };
    check(await failureOf(app.client.call("SandboxService/UpdateSandbox", other)), {
      code: "ALREADY_EXISTS",
      reason: "REQUEST_ID_REUSED",
      says: "request_id",
    });
  });
});
