import { mkdtempSync } from "node:fs";
import { readFile, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestApp, type TestApp } from "../../support/app.ts";
import { type Client, failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { newDataDir } from "../../support/settings.ts";
import { SmallDisk } from "../../support/small-disk.ts";
import { clientWith, TokensFile } from "../../support/tokens.ts";

type Line = Readonly<Record<string, unknown>>;

const auditLog = path.join(mkdtempSync(path.join(newDataDir(), "audit-")), "audit.jsonl");
const tokens = new TokensFile();
const clients: Client[] = [];
let running: TestApp;
let texts: { readonly user: string; readonly reader: string; readonly admin: string };

beforeAll(async () => {
  texts = {
    user: await tokens.add("acme"),
    reader: await tokens.add("acme", { scope: "read-only" }),
    admin: await tokens.add("ops", { scope: "admin" }),
  };
  running = await startTestApp({ engine: "bubblewrap", tokens: tokens.path, auditLog });
});

afterAll(async () => {
  for (const client of clients) client.close();
  await running.stop();
});

function connect(token: string, headers: Readonly<Record<string, string>> = {}): Client {
  const client = clientWith(running.app.address, token, headers);
  clients.push(client);
  return client;
}

/** The lines of a method, as soon as there are `count`. */
function lines(method: string, count: number, file = auditLog): Promise<Line[]> {
  return eventually(
    async () => {
      // The rest is a line that is being written.
      const all = (await readFile(file, "utf8")).split("\n").slice(0, -1);
      const found = all
        .map((line): Line => JSON.parse(line))
        .filter((line) => String(line.method).endsWith(method));
      return found.length >= count && found;
    },
    { describe: () => method },
  );
}

const idOf = (token: string): string => token.split("_")[1] ?? "";

test("a change is recorded with who did it, from where, to what, and how it ended; contents are not", async () => {
  const client = connect(texts.user);
  const made = await client.createSandbox({ env: { PLAIN: "env-kept-out" } });
  const { processId } = client.exec(made.sandbox_id, "cat; echo argv-kept-out", {
    stdin: Buffer.from("stdin-kept-out"),
    request_id: "again-1",
  });
  const id = await processId;
  await client.call("FileService/WriteFile", {
    sandbox_id: made.sandbox_id,
    path: "path-kept-out",
    content: Buffer.from("content-kept-out"),
  });
  const failure = await failureOf(
    client.call("ProcessService/SignalProcess", { process_id: "prc_missing", signal: 15 }),
  );
  expect(failure.code).toBe("NOT_FOUND");
  await client.call("SandboxService/DeleteSandbox", { sandbox_id: made.sandbox_id });

  const [created] = await lines("/CreateSandbox", 1);
  expect(created).toEqual({
    time: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    event: "call",
    tenant: "acme",
    acted_in: "acme",
    token: idOf(texts.user),
    scope: "user",
    peer: expect.stringContaining("127.0.0.1"),
    protocol: "grpc",
    method: "berth.v1.SandboxService/CreateSandbox",
    ids: { sandbox_id: [made.sandbox_id] },
    decision: "allowed",
    code: "OK",
    duration_ms: expect.any(Number),
  });
  expect((await lines("/Exec", 1))[0]).toMatchObject({
    ids: { sandbox_id: [made.sandbox_id], process_id: [id] },
    request_id: "again-1",
  });
  expect((await lines("/SignalProcess", 1))[0]).toMatchObject({
    ids: { process_id: ["prc_missing"] },
    decision: "allowed",
    code: "NOT_FOUND",
    reason: "PROCESS_NOT_FOUND",
  });
  await lines("/DeleteSandbox", 1);
  expect(await readFile(auditLog, "utf8")).not.toMatch(/kept-out|ListSandboxes/);
  expect(await readFile(auditLog, "utf8")).not.toContain(texts.user.split("_")[2]);
  expect((await stat(auditLog)).mode & 0o777).toBe(0o600);
});

test("calls refused for their token or scope are recorded; reads are not", async () => {
  await connect(texts.reader).call("SandboxService/ListSandboxes");
  const unknown = await failureOf(connect("berth_none_none").call("SandboxService/ListSandboxes"));
  expect(unknown.code).toBe("UNAUTHENTICATED");
  const page = await fetch(`http://${running.app.address}/metrics`);
  expect(page.status).toBe(401);
  const headers = { authorization: `Bearer ${texts.reader}` };
  const forbidden = await fetch(`http://${running.app.address}/metrics`, { headers });
  expect(forbidden.status).toBe(403);
  const beyond = await failureOf(connect(texts.reader).createSandbox());
  expect(beyond.code).toBe("PERMISSION_DENIED");

  // Lines are in order, so the earlier ones are there as well.
  const created = await eventually(async () =>
    (await lines("/CreateSandbox", 0)).find(({ decision }) => decision === "refused"),
  );
  const who = { tenant: "acme", token: idOf(texts.reader), scope: "read-only" };
  expect(created).toMatchObject({ ...who, code: "PERMISSION_DENIED", reason: "TOKEN_SCOPE" });
  expect(await lines("/ListSandboxes", 0)).toEqual([
    expect.objectContaining({ decision: "refused", code: "UNAUTHENTICATED", reason: "UNAUTHENTICATED" }),
  ]);
  const refused = await lines("/metrics", 0);
  expect(refused).toEqual([
    expect.objectContaining({ decision: "refused", code: "401" }),
    expect.objectContaining({ ...who, decision: "refused", code: "403" }),
  ]);
  expect(refused[0]).not.toHaveProperty("token");
});

test("a caller whose token may not act in the tenant that it names is recorded", async () => {
  const page = await fetch(`http://${running.app.address}/metrics`, {
    headers: { authorization: `Bearer ${texts.user}`, "berth-tenant": "ops" },
  });
  expect(page.status).toBe(403);
  const elsewhere = connect(texts.user, { "berth-tenant": "ops" });
  const failure = await failureOf(elsewhere.call("SandboxService/GetSandbox", { sandbox_id: "any" }));
  expect(failure.reason).toBe("TOKEN_SCOPE");
  const who = { tenant: "acme", token: idOf(texts.user), scope: "user", decision: "refused" };
  // Lines are in order, so the page's is there as well.
  expect(await lines("/GetSandbox", 1)).toEqual([
    expect.objectContaining({ ...who, code: "PERMISSION_DENIED", reason: "TOKEN_SCOPE" }),
  ]);
  expect((await lines("/metrics", 1)).at(-1)).toMatchObject({ ...who, code: "403" });
});

test("an admin acting in another tenant is recorded with both tenants", async () => {
  const admin = connect(texts.admin, { "berth-tenant": "acme" });
  await admin.call("SandboxService/DeleteSandbox", { sandbox_id: "not-there" });
  const deleted = await eventually(async () =>
    (await lines("/DeleteSandbox", 1)).find(({ tenant }) => tenant === "ops"),
  );
  expect(deleted).toMatchObject({ acted_in: "acme", scope: "admin", ids: { sandbox_id: ["not-there"] } });
});

test("a full disk stops no call; lost records are counted and reported", { timeout: 700_000 }, async () => {
  const disk = await SmallDisk.make(4);
  try {
    await writeFile(disk.reach("filler"), Buffer.alloc(16 << 20)).catch((error: NodeJS.ErrnoException) => {
      expect(error.code).toBe("ENOSPC");
    });
    const app = await startTestApp({ engine: "bubblewrap", auditLog: disk.reach("audit.jsonl") });
    try {
      // As long as a line's ids may be, so that the buffer is soon full.
      const sandboxId = "€".repeat(256);
      let calls = 0;
      const metrics = async () => (await fetch(`http://${app.app.address}/metrics`)).text();
      const lost = async () => Number(/^berth_audit_lines_lost (\d+)/m.exec(await metrics())?.[1]);
      await eventually(
        async () => {
          await Promise.all(
            Array.from({ length: 500 }, () =>
              failureOf(app.client.call("SandboxService/DeleteSandbox", { sandbox_id: sandboxId })),
            ),
          );
          calls += 500;
          return (await lost()) > 0;
        },
        // A busy machine takes minutes for so many calls.
        { timeoutMs: 600_000, describe: () => calls },
      );
      const ready = await (await fetch(`http://${app.app.address}/readyz`)).text();
      expect(ready).toMatch(/The audit log has lost \d+ lines/);
      expect(app.log.errors.map(({ message }) => message)).toEqual([
        "the audit log cannot be written; its lines wait, and are lost beyond a limit",
      ]);
    } finally {
      app.log.lines.splice(0);
      await app.stop();
    }
  } finally {
    await disk.remove();
  }
});
