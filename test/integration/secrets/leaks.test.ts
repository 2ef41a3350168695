import { mkdtempSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { startTestApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { newDataDir } from "../../support/settings.ts";
import { type PythonData, Worker } from "../../support/worker.ts";

/** Values that must stay where their caller put them. */
const KNOWN = {
  plain: "known-in-plain-env",
  ofCommand: "known-in-env-of-a-command",
  reference: "known-by-reference",
  stdin: "known-in-stdin",
  file: "known-in-a-file",
  argument: "known-in-argv",
  line: "known-in-a-line",
  output: "known-in-the-output",
  session: "known-in-env-of-a-session",
  code: "known-in-params-of-a-tool",
  run: "known-in-a-run",
};
const ALL = Object.values(KNOWN);

/** The known values in a text. */
function knownIn(text: string): string[] {
  return ALL.filter((known) => text.includes(known) || text.includes(Buffer.from(known).toString("base64")));
}

/** Every file below a directory. */
function filesBelow(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name));
}

describe.each(ENGINES)("on $name", ({ settings: engine }) => {
  test("a known secret reaches no log, audit, events, metrics, errors or the store", async () => {
    const directory = mkdtempSync(path.join(newDataDir(), "leaks-"));
    const dataDir = newDataDir();
    const auditLog = path.join(directory, "audit.jsonl");
    const secrets = path.join(directory, "secrets.yaml");
    writeFileSync(secrets, `secrets: {key: ${KNOWN.reference}}`, { mode: 0o600 });
    const settings = { ...engine, dataDir, auditLog, auditReads: true, secrets };
    const running = await startTestApp(settings);
    const { client, log } = running;
    const seen: unknown[] = [];
    const fail = async (call: Promise<unknown>) => seen.push(await failureOf(call));
    try {
      const events = client.stream("SandboxService/WatchEvents", {});
      events.on("error", () => {});
      events.on("data", (event: unknown) => seen.push(event));
      const made = await client.createSandbox({ env: { P: KNOWN.plain }, secret_env: { R: "key" } });
      const sandboxId = made.sandbox_id;
      const common = {
        env: { C: KNOWN.ofCommand },
        stdin: Buffer.from(KNOWN.stdin),
        request_id: "again",
      };
      const exec = client.exec(
        sandboxId,
        `cat; echo ${KNOWN.line} $P $C; printf 'known-in-%s' the-output`,
        common,
      );
      expect((await exec.result).stdout.toString()).toContain(KNOWN.output);
      seen.push(
        (await client.call("ProcessService/GetProcess", { process_id: await exec.processId })).process
          .exit_status,
      );
      const collected = await client.call("ProcessService/RunCommand", {
        ...{ sandbox_id: sandboxId, ...common, redact_secrets: true },
        argv: { args: ["sh", "-c", 'echo "$R" "$1"', "sh", KNOWN.argument] },
      });
      expect(collected.stdout.toString()).toBe(`[redacted] ${KNOWN.argument}\n`);
      // Longer than the part of an output that the database keeps itself.
      await client.exec(sandboxId, 'for i in $(seq 2000); do echo "$R"; done', {
        redact_secrets: true,
        on_disconnect: "ON_DISCONNECT_DETACH",
      }).result;
      await client.call("FileService/WriteFile", {
        ...{ sandbox_id: sandboxId, path: "file", content: Buffer.from(KNOWN.file) },
        request_id: "file",
      });
      await fail(
        client.call("ProcessService/RunCommand", { ...common, sandbox_id: sandboxId, shell: "true" }),
      );
      const refused = { ...common, sandbox_id: sandboxId, request_id: "" };
      await fail(
        client.call("ProcessService/RunCommand", { ...refused, shell: KNOWN.line, working_dir: "/none" }),
      );
      await fail(
        client.call("ProcessService/RunCommand", { ...refused, shell: KNOWN.line, user: "nobody-here" }),
      );
      await fail(
        client.call("ProcessService/RunCommand", { ...refused, shell: "x", secret_env: { R: "other" } }),
      );
      await fail(
        client.call("ProcessService/RunCommand", { ...refused, sandbox_id: "none", shell: KNOWN.line }),
      );
      await client.call("RunService/CreateRun", {
        name: KNOWN.run,
        sandbox_spec: { env: { P: KNOWN.plain } },
      });
      const session = { fields: { env: { structValue: { fields: { S: { stringValue: KNOWN.session } } } } } };
      await client.call("SessionService/CreateSessions", {
        ...{ request_id: "sessions", worker_id: "w" },
        resources: [
          { resource_type: "bash", config: session, secrets: { env: { R: "key" }, redact: false } },
          { resource_type: "python", secrets: { env: { R: "key" }, redact: true } },
        ],
      });
      const used = await client.call("SessionService/ExecuteTool", {
        ...{ request_id: "tool", worker_id: "w", tool: "bash:run" },
        params: { fields: { command: { stringValue: `echo ${KNOWN.code} $S $R` } } },
      });
      expect(JSON.stringify(used)).toContain(`${KNOWN.code} ${KNOWN.session} ${KNOWN.reference}`);
      const worker = new Worker(client, "w");
      const raise = "import os; print(os.environ['R']); raise ValueError(os.environ['R'])";
      const raised = await worker.execute<PythonData>("python:run", { code: raise });
      expect(raised.data).toMatchObject({ stdout: "[redacted]\n", error: { value: "[redacted]" } });
      seen.push(raised);
      // Its owner sees its settings, and the names of its secrets.
      expect(knownIn(JSON.stringify(await worker.list()))).toEqual([KNOWN.session]);
      const secretsOf = (env: Readonly<Record<string, string>>) => ({ secrets: { env, redact: false } });
      const unstarted = await worker.create("bash", undefined, secretsOf({ R: "other" }), { worker_id: "x" });
      expect(unstarted.failure?.detail).toMatchObject({ reason: "ERROR_REASON_SECRET_NOT_FOUND" });
      // The loader prints where it looks for its library, and that output goes into the error.
      const broken = await worker.create(
        "python",
        { env: { PYTHONHOME: "/none" } },
        secretsOf({ PYTHONPATH: "key" }),
        { worker_id: "y" },
      );
      expect(broken.failure?.detail).toMatchObject({ reason: "ERROR_REASON_SESSION_START_FAILED" });
      seen.push(unstarted, broken);
      seen.push(await client.call("SandboxService/GetStats", {}));
      seen.push(await (await fetch(`http://${running.app.address}/metrics`)).text());
      events.cancel();
      // Background writes are complete when that of the last command is.
      await eventually(() => filesBelow(path.join(dataDir, "transcripts")).length > 0);
      const stored = filesBelow(dataDir).filter((file) => path.basename(file).startsWith("berth.db"));
      expect(stored.flatMap((file) => knownIn(readFileSync(file, "latin1")))).toEqual([]);
    } finally {
      await running.stop();
    }
    expect(seen.length).toBeGreaterThan(8);
    expect(knownIn(JSON.stringify(seen))).toEqual([]);
    expect(knownIn(JSON.stringify(log.lines))).toEqual([]);
    expect(readFileSync(auditLog, "utf8")).toContain("ProcessService/Exec");
    for (const file of [auditLog, ...filesBelow(dataDir)]) {
      // Transcripts contain the tenants' own output, unchanged.
      if (file.includes("/transcripts/")) {
        expect(statSync(file).mode & 0o077, file).toBe(0);
        expect(readFileSync(file, "latin1")).not.toContain(KNOWN.reference);
      } else expect(knownIn(readFileSync(file, "latin1")), file).toEqual([]);
    }
  });
});
