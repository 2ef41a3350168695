import { describe, test } from "vitest";
import { failureOf, type Request } from "../../../support/client.ts";
import { seconds } from "../../../support/wire.ts";
import { check, MIB, type Refusal, requestOf, TOO_LONG, useUnharmed } from "./support.ts";

const here = useUnharmed();
const { app } = here;

describe("Exec and RunCommand refuse", () => {
  const cases: readonly Refusal[] = [
    { because: "no command", request: {}, says: "command" },
    { because: "an empty line", request: { shell: "" }, says: "shell" },
    { because: "an empty argument list", request: { argv: { args: [] } }, says: "argv" },
    { because: "an empty program", request: { argv: { args: ["", "x"] } }, says: "argv" },
    { because: "NUL in the line", request: { shell: "echo a\0b" }, says: "shell" },
    { because: "NUL in an argument", request: { argv: { args: ["echo", "a\0b"] } }, says: "argv.args[1]" },
    { because: "a line that is too long", request: { shell: `: ${"x".repeat(131_072)}` }, says: "shell" },
    {
      because: "an argument list that is too long",
      request: { argv: { args: ["true", ...Array.from({ length: 20 }, () => "x".repeat(100_000))] } },
      says: "argv",
    },
    { because: "NUL in a variable", request: { shell: "true", env: { A: "\0" } }, says: 'env["A"]' },
    { because: "= in a variable's name", request: { shell: "true", env: { "A=B": "" } }, says: "env" },
    {
      because: "NUL in the working directory",
      request: { shell: "true", working_dir: "/a\0b" },
      says: "working_dir",
    },
    {
      because: "a missing working directory",
      request: { shell: "true", working_dir: "/not/there" },
      says: "working_dir",
    },
    {
      because: "a file as working directory",
      request: { shell: "true", working_dir: "/etc/passwd" },
      says: "working_dir",
    },
    {
      because: "a relative directory that leaves",
      request: { shell: "true", working_dir: "../etc" },
      says: "working_dir",
    },
    {
      because: "a directory of /proc",
      request: { shell: "true", working_dir: "/proc/self/fd/8" },
      says: "working_dir",
    },
    { because: "an unknown user", request: { shell: "true", user: "nobody-of-that-name" }, says: "user" },
    { because: "a negative timeout", request: { shell: "true", timeout: seconds(-1) }, says: "timeout" },
    { because: "a timeout over 24 days", request: { shell: "true", timeout: TOO_LONG }, says: "timeout" },
    { because: "a timeout of zero", request: { shell: "true", timeout: seconds(0) }, says: "timeout" },
    { because: "a negative generation", request: { shell: "true", generation: -1 }, says: "generation" },
    {
      because: "another generation",
      request: { shell: "true", generation: 2 },
      code: "FAILED_PRECONDITION",
      reason: "SANDBOX_REPLACED",
      says: "generation",
    },
    {
      because: "an unknown sandbox",
      request: { shell: "true", sandbox_id: "sbx_nothing" },
      code: "NOT_FOUND",
      reason: "SANDBOX_NOT_FOUND",
      says: "sbx_nothing",
    },
    { because: "no sandbox", request: { shell: "true", sandbox_id: "" }, says: "sandbox_id" },
    {
      because: "a request id with a control character",
      request: { shell: "true", request_id: "a\u0007" },
      says: "request_id",
    },
  ];
  for (const refusal of cases) {
    test(refusal.because, async () => {
      const request = { sandbox_id: here.id, ...requestOf(refusal) };
      check(await failureOf(app.client.call("ProcessService/RunCommand", request)), refusal);
      check(await failureOf(resultOf(request)), refusal);
    });
  }

  const execOnly: readonly Refusal[] = [
    { because: "a negative output limit", request: { output_limit_bytes: -1 }, says: "output_limit_bytes" },
    { because: "a negative grace", request: { disconnect_grace: seconds(-1) }, says: "disconnect_grace" },
    { because: "a grace over 24 days", request: { disconnect_grace: TOO_LONG }, says: "disconnect_grace" },
    { because: "an unknown behaviour on disconnect", request: { on_disconnect: 9 }, says: "on_disconnect" },
    {
      because: "a terminal that is too wide",
      request: { terminal: { columns: 10_001 } },
      says: "terminal.columns",
    },
    { because: "a terminal of negative height", request: { terminal: { rows: -1 } }, says: "terminal.rows" },
  ];
  for (const refusal of execOnly) {
    test(`${refusal.because} (Exec)`, async () => {
      const request = { sandbox_id: here.id, shell: "true", ...requestOf(refusal) };
      check(await failureOf(resultOf(request)), refusal);
    });
  }

  test("a higher output limit than allowed (RunCommand)", async () => {
    for (const size of [-1, 16 * MIB + 1]) {
      const failure = await failureOf(app.client.run(here.id, "true", { max_output_bytes: size }));
      check(failure, { says: "max_output_bytes" });
    }
  });

  async function resultOf(request: Request): Promise<unknown> {
    const { sandbox_id: sandboxId, ...more } = request;
    return app.client.exec(String(sandboxId), "true", { shell: undefined, ...more }).result;
  }
});
