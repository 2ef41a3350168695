import { beforeAll, describe, test } from "vitest";
import { failureOf } from "../../../support/client.ts";
import { check, type Refusal, requestOf, useUnharmed } from "./support.ts";

const here = useUnharmed();
const { app } = here;

/** Processes in the sandbox. */
let ended = "";
let open = "";
let terminal = "";
beforeAll(async () => {
  ended = (await app.client.run(here.id, "printf 12345")).process_id;
  open = await app.client.exec(here.id, ["cat"], { keep_stdin_open: true }).processId;
  const size = { columns: 80, rows: 24 };
  terminal = await app.client.exec(here.id, ["sleep", "600"], { terminal: size }).processId;
});

describe("calls about a process refuse", () => {
  const state = { code: "FAILED_PRECONDITION", reason: "PROCESS_STATE" };
  const range = { code: "OUT_OF_RANGE", reason: "OFFSET_OUT_OF_RANGE" };
  const unknown = { code: "NOT_FOUND", reason: "PROCESS_NOT_FOUND", says: "prc_nothing" };
  const cases: readonly (Refusal & { readonly method: Parameters<typeof app.client.call>[0] })[] = [
    ...(["WriteStdin", "SignalProcess", "ResizeTerminal", "GetProcess"] as const).map((method) => ({
      method: `ProcessService/${method}` as const,
      because: "an unknown id",
      request: { process_id: "prc_nothing", signal: 15, columns: 80, rows: 24 },
      ...unknown,
    })),
    { method: "ProcessService/GetProcess", because: "no id", request: {}, says: "process_id" },
    {
      method: "ProcessService/SignalProcess",
      because: "signal 0",
      request: () => ({ process_id: open, signal: 0 }),
      says: "signal",
    },
    {
      method: "ProcessService/SignalProcess",
      because: "signal 65",
      request: () => ({ process_id: open, signal: 65 }),
      says: "signal",
    },
    {
      method: "ProcessService/SignalProcess",
      because: "signal -9",
      request: () => ({ process_id: open, signal: -9 }),
      says: "signal",
    },
    {
      method: "ProcessService/SignalProcess",
      because: "a process that has ended",
      request: () => ({ process_id: ended, signal: 15 }),
      says: "ended",
      ...state,
    },
    {
      method: "ProcessService/ResizeTerminal",
      because: "a process without a terminal",
      request: () => ({ process_id: open, columns: 80, rows: 24 }),
      says: "terminal",
      ...state,
    },
    {
      method: "ProcessService/ResizeTerminal",
      because: "no size",
      request: () => ({ process_id: terminal }),
      says: "columns",
    },
    {
      method: "ProcessService/ResizeTerminal",
      because: "a size that is too large",
      request: () => ({ process_id: terminal, columns: 80, rows: 10_001 }),
      says: "rows",
    },
    {
      method: "ProcessService/WriteStdin",
      because: "stdin of a process that has ended",
      request: () => ({ process_id: ended, data: Buffer.from("x") }),
      says: "ended",
      ...state,
    },
    {
      method: "ProcessService/WriteStdin",
      because: "bytes beyond a hole",
      request: () => ({ process_id: open, offset: 7, data: Buffer.from("x") }),
      says: "offset",
      ...range,
    },
    {
      method: "ProcessService/WriteStdin",
      because: "a negative offset",
      request: () => ({ process_id: open, offset: -1 }),
      says: "offset",
    },
    {
      method: "ProcessService/ListProcesses",
      because: "an unknown sandbox",
      request: { sandbox_id: "sbx_nothing" },
      says: "sbx_nothing",
      code: "NOT_FOUND",
      reason: "SANDBOX_NOT_FOUND",
    },
    {
      method: "ProcessService/ListProcesses",
      because: "a negative page",
      request: () => ({ sandbox_id: here.id, page_size: -1 }),
      says: "page_size",
    },
    {
      method: "ProcessService/ListProcesses",
      because: "a token that is none",
      request: () => ({ sandbox_id: here.id, page_token: "not a token" }),
      says: "page_token",
    },
  ];
  for (const refusal of cases) {
    test(`${refusal.method.split("/")[1]}: ${refusal.because}`, async () => {
      check(await failureOf(app.client.call(refusal.method, requestOf(refusal))), refusal);
    });
  }

  test("WriteStdin: stdin that was not kept open", async () => {
    const running = app.client.exec(here.id, "sleep 600");
    const request = { process_id: await running.processId, data: Buffer.from("x") };
    check(await failureOf(app.client.call("ProcessService/WriteStdin", request)), {
      says: "keep_stdin_open",
      ...state,
    });
    running.cancel();
  });

  test("WriteStdin: stdin that was closed", async () => {
    const running = app.client.exec(here.id, "cat; sleep 600", { keep_stdin_open: true });
    const process_id = await running.processId;
    await app.client.call("ProcessService/WriteStdin", { process_id, data: Buffer.from("x"), close: true });
    const request = { process_id, offset: 1, data: Buffer.from("y") };
    check(await failureOf(app.client.call("ProcessService/WriteStdin", request)), {
      says: "closed",
      ...state,
    });
    running.cancel();
  });

  test("AttachProcess: an offset beyond the end, a negative one, an unknown process", async () => {
    const beyond = await failureOf(app.client.attach(ended, { stdout: 6 }).result);
    check(beyond, { says: "stdout_offset", ...range });
    const other = await failureOf(app.client.attach(ended, { stderr: 1 }).result);
    check(other, { says: "stderr_offset", ...range });
    const negative = await failureOf(app.client.attach(ended, { stdout: -1 }).result);
    check(negative, { says: "stdout_offset" });
    check(await failureOf(app.client.attach("prc_nothing").result), unknown);
  });
});
