import { mkdtempSync } from "node:fs";
import path from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { Berth } from "../../../clients/typescript/src/node.ts";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES, testsInTurn } from "../../support/engines.ts";
import { writeSecrets } from "../../support/secrets.ts";
import { newDataDir } from "../../support/settings.ts";
import { withTimeEnough } from "../../support/time-enough.ts";
import { type BashData, type PythonData, Worker } from "../../support/worker.ts";

const KEY = "hunter22";
const PEM = '-- it\'s a "key" --\nab\\cd\tef\n-- end --';
const AFTER = "of the next interpreter";

describe.each(ENGINES)("on $name, a secret of a session", ({ name, settings }) => {
  const it = testsInTurn(name);
  const file = path.join(mkdtempSync(path.join(newDataDir(), "secrets-")), "secrets.yaml");
  const keep = (changes: Readonly<Record<string, string>> = {}) =>
    writeSecrets(file, { key: KEY, pem: PEM, sandbox: "of the sandbox", ...changes });
  const app = useApp({ ...settings, secrets: keep() });
  const secrets = (redact: boolean, env: Readonly<Record<string, string>> = { S: "key" }) => ({
    secrets: { env, redact },
  });

  beforeEach(() => {
    keep();
  });

  test("is in its interpreter from its start to its end, and the session shows only its name", async () => {
    const worker = new Worker(app.client, "starts");
    const made = await worker.create("bash", { env: { S: "plain" } }, secrets(false));
    expect(made).toMatchObject({ failure: null, session: { secrets: { env: { S: "key" }, redact: false } } });
    expect((await worker.bash("echo $S")).stdout).toBe(`${KEY}\n`);
    keep({ key: AFTER });
    expect((await worker.bash("echo $S")).stdout).toBe(`${KEY}\n`);
    expect(await worker.bash("exit 3")).toMatchObject({ session_lost: true });
    expect(await worker.bash("echo $S")).toMatchObject({ stdout: `${AFTER}\n`, session_restarted: true });
    expect(JSON.stringify(await worker.list())).not.toMatch(RegExp(`${KEY}|${AFTER}`));
  });

  it("stays when the session is reinitialized, unless others are given", async () => {
    const worker = new Worker(app.client, "again");
    await worker.create("python", undefined, secrets(false));
    const read = async (variable: string) => {
      const code = `import os; os.environ.get("${variable}")`;
      return (await worker.execute<PythonData>("python:run", { code })).data.result;
    };
    const same = await worker.reinitialize("python", { env: { A: "b" } });
    expect(same.session?.secrets).toEqual({ env: { S: "key" }, redact: false });
    expect(await read("S")).toBe(`'${KEY}'`);
    await worker.reinitialize("python", undefined, secrets(true, { T: "key" }));
    expect([await read("A"), await read("S"), await read("T")]).toEqual(["'b'", null, "'[redacted]'"]);
    await worker.reinitialize("python", undefined, secrets(false, {}));
    expect(await read("T")).toBeNull();
  });

  it("overrides the sandbox's secrets, and the session's own variables override both", async () => {
    const worker = new Worker(app.client, "over");
    const { sandbox_id } = await app.client.createSandbox({ secret_env: { A: "sandbox", B: "sandbox" } });
    await worker.create("bash", { env: { A: "plain" } }, { sandbox_id, ...secrets(false, { C: "key" }) });
    expect((await worker.bash("echo $A, $B, $C")).stdout).toBe(`plain, of the sandbox, ${KEY}\n`);
    await worker.reinitialize("bash", undefined, secrets(true, { A: "key" }));
    expect((await worker.bash("echo $A, $B")).stdout).toBe("[redacted], [redacted]\n");
  });

  test("is redacted in bash's output, wherever that is split, and in its directory", async () => {
    const worker = new Worker(app.client, "redacts");
    await worker.create("bash", undefined, secrets(true, { S: "key", PEM: "pem" }));
    const command =
      'mkdir "/tmp/$S"; cd "/tmp/$S"; echo "$PEM"; printf hunt; sleep 0.2; printf "er22 c"; printf "%s" "$S" >&2; printf hunter2';
    const items = await worker.follow("bash:run", { command });
    const out = (stream: string) =>
      items
        .filter(({ output }) => output?.stream === `OUTPUT_STREAM_${stream}`)
        .map(({ output }) => output?.data.toString())
        .join("");
    expect(out("STDOUT")).toBe("[redacted]\n[redacted] chunter2");
    expect(out("STDERR")).toBe("[redacted]");
    expect(await worker.bash('echo "$S"')).toMatchObject({ stdout: "[redacted]\n", cwd: "/tmp/[redacted]" });
    // A possible start of a secret in the output does not delay the end of a call.
    expect(await worker.bash("printf hunter2")).toMatchObject({ stdout: "hunter2", exit_code: 0 });
    expect(await worker.bash("printf hunter2; exit 4")).toMatchObject({ stdout: "hunter2", exit_code: 4 });
    const late = await withTimeEnough(
      0.3,
      (timeout) => worker.execute<BashData>("bash:run", { command: "printf hunter2; sleep 600", timeout }),
      ({ data }) => data.stdout !== "",
    );
    expect(late).toMatchObject({ code: 5006, data: { stdout: "hunter2" } });
  });

  it("is redacted in Python's result, also in a literal of it", async () => {
    const worker = new Worker(app.client, "literals");
    await worker.create("python", undefined, secrets(true, { S: "key", PEM: "pem" }));
    const run = async (code: string) => (await worker.execute<PythonData>("python:run", { code })).data;
    const env = "import os; pem = os.environ['PEM']; key = os.environ['S'];";
    expect((await run(`${env} [key, pem, {'a': key}]`)).result).toBe(
      "['[redacted]', '[redacted]', {'a': '[redacted]'}]",
    );
    const { error, stdout } = await run(`${env} print(pem, key)\nraise ValueError(f"no {key} in {pem!r}")`);
    expect(stdout).toBe("[redacted] [redacted]\n");
    expect(error).toMatchObject({ value: "no [redacted] in '[redacted]'" });
    expect(JSON.stringify(error)).not.toMatch(/hunter22|ab\\/);
  });

  it("does not show its beginning where Python's result is cut", async () => {
    const worker = new Worker(app.client, "cut");
    await worker.create("python", undefined, secrets(true, { S: "key" }));
    const code = `
import os
class Long:
    def __repr__(self): return "-" * (256 * 1024 - 7) + os.environ["S"] + "more"
Long()`;
    const { data } = await worker.execute<PythonData>("python:run", { code });
    expect(data.result?.length).toBe(256 * 1024 - 7 + "...".length);
    expect(data.result?.slice(-6)).toBe("---...");
  });

  it("reaches programs of a code session", async () => {
    const worker = new Worker(app.client, "code");
    await worker.create("code", undefined, secrets(true));
    const run = (code: string) => worker.execute("code:execute", { code, language: "bash" });
    expect((await run('echo "$S ${#S}"')).data).toMatchObject({ stdout: "[redacted] 8\n" });
  });

  it("that does not exist fails as for a command, and is named", async () => {
    const worker = new Worker(app.client, "missing");
    const { status, failure } = await worker.create("bash", undefined, secrets(false, { S: "other" }));
    const { sandbox_id } = await app.client.createSandbox();
    const command = { sandbox_id, shell: "true", secret_env: { S: "other" } };
    const ofCommand = await failureOf(app.client.call("ProcessService/RunCommand", command));
    expect(status).toBe("SESSION_RESULT_STATUS_FAILED");
    expect(failure).toMatchObject({
      message: ofCommand.message,
      detail: { reason: "ERROR_REASON_SECRET_NOT_FOUND", metadata: { secret: "other" } },
    });
    expect(await worker.list()).toEqual([]);
  });

  it("that was removed keeps a lost interpreter from restarting until it is back", async () => {
    const worker = new Worker(app.client, "gone");
    await worker.create("bash", undefined, secrets(false));
    writeSecrets(file, { other: "x" });
    expect((await worker.bash("echo $S; exit")).stdout).toBe(`${KEY}\n`);
    expect(await failureOf(worker.bash("echo $S"))).toMatchObject({ reason: "SECRET_NOT_FOUND" });
    keep();
    expect((await worker.bash("echo $S")).stdout).toBe(`${KEY}\n`);
  });

  it("is refused if it would have no effect, before anything ends", async () => {
    const worker = new Worker(app.client, "refused");
    const refusal = { detail: { reason: "ERROR_REASON_INVALID_ARGUMENT", metadata: { field: "secrets" } } };
    expect((await worker.create("files", undefined, secrets(true))).failure).toMatchObject(refusal);
    const { session } = await worker.create("files");
    const reset = worker.reinitialize("files", undefined, secrets(false));
    expect(await failureOf(reset)).toMatchObject({ reason: "INVALID_ARGUMENT" });
    expect((await worker.list()).map(({ session_id: id }) => id)).toEqual([session?.session_id]);
    const malformed: readonly Readonly<Record<string, string>>[] = [{ "A=B": "key" }, { S: "" }];
    for (const env of malformed) {
      expect(await failureOf(worker.create("bash", undefined, secrets(true, env)))).toMatchObject({
        reason: "INVALID_ARGUMENT",
        message: expect.stringContaining("resources[0].secrets.env"),
      });
    }
  });

  it("works in the TypeScript client", async () => {
    await using berth = Berth.connect(app.app.address);
    await using worker = berth.sessions.worker(`client-${name}`);
    const [made] = await worker.create({
      resourceType: "bash",
      secrets: { env: { S: "key" }, redact: true },
    });
    expect(made?.session?.secrets).toEqual({ env: { S: "key" }, redact: true });
    const run = async () => (await worker.execute("bash:run", { command: "echo $S" })).data;
    expect(await run()).toMatchObject({ stdout: "[redacted]\n" });
    await worker.reinitialize("bash", undefined, { secrets: { env: { S: "key" } } });
    expect(await run()).toMatchObject({ stdout: `${KEY}\n` });
  });
});
