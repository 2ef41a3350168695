import { execFileSync } from "node:child_process";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmdirSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { Berth } from "../../../clients/typescript/src/node.ts";
import { startTestApp, type TestApp } from "../../support/app.ts";
import { type Client, failureOf } from "../../support/client.ts";
import { DESKTOP_ENGINES } from "../../support/desktop.ts";
import { writeSecrets } from "../../support/secrets.ts";
import { newDataDir, type TestSettings } from "../../support/settings.ts";
import { clientWith, TokensFile } from "../../support/tokens.ts";
import { followTurns } from "../../support/turns.ts";
import { Worker } from "../../support/worker.ts";

const open: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

const directory = mkdtempSync(path.join(newDataDir(), "secrets-"));

const secretsFile = (secrets: Readonly<Record<string, string>>): string =>
  writeSecrets(path.join(directory, "secrets.yaml"), secrets);

async function serve(settings: TestSettings): Promise<TestApp> {
  const running = await startTestApp({ engine: "bubblewrap", ...settings });
  open.push(() => {
    // The unreadable secret is logged as an error, which is expected here.
    running.log.lines.splice(0);
    return running.stop();
  });
  return running;
}

/** The output of a command with a secret in $S. */
async function run(client: Client, sandboxId: string, more: object = {}, shell = 'printf %s "$S"') {
  const result = await client.call("ProcessService/RunCommand", {
    sandbox_id: sandboxId,
    shell,
    secret_env: { S: "key" },
    ...more,
  });
  return result.stdout.toString();
}

describe("a secret", () => {
  test("is set in a command's environment under its name, and a changed one from the next command on", async () => {
    const secrets = secretsFile({ key: "first value" });
    const { client } = await serve({ secrets });
    const { sandbox_id: id } = await client.createSandbox();
    expect(await run(client, id)).toBe("first value");
    secretsFile({ key: "second value" });
    expect(await run(client, id)).toBe("second value");
    writeFileSync(secrets, "secrets: [", { mode: 0o600 });
    await expect(run(client, id)).resolves.toBe("second value");
  });

  test("of a file that is gone for a while stays what it was, also if no command had used it", async () => {
    const away = `${directory}.away`;
    const secrets = secretsFile({ key: "kept" });
    const { client, log, app } = await serve({ secrets });
    const { sandbox_id: id } = await client.createSandbox();
    const ready = async () => (await fetch(`http://${app.address}/readyz`)).text();
    renameSync(directory, away);
    try {
      await expect(run(client, id)).resolves.toBe("kept");
      expect(await ready()).toContain("The secrets file has changed and cannot be used");
      expect(log.errors).toMatchObject([{ fields: { problem: `${secrets} does not exist` } }]);
    } finally {
      // The file that comes back is the same, as after its disk was mounted again.
      renameSync(away, directory);
    }
    expect(await run(client, id)).toBe("kept");
    expect(await ready()).toBe("ok\n");
    secretsFile({ key: "changed" });
    expect(await run(client, id)).toBe("changed");
  });

  test("of a file that cannot be used is reported before a command needs it, and no longer once the file is repaired", async () => {
    const secrets = secretsFile({ key: "kept" });
    const { app, log } = await serve({ secrets });
    const ready = async () => (await fetch(`http://${app.address}/readyz`)).text();
    writeFileSync(secrets, "secrets: [", { mode: 0o600 });
    await expect.poll(ready).toContain("The secrets file has changed and cannot be used");
    expect(log.errors).toMatchObject([{ fields: { problem: expect.stringContaining(secrets) } }]);
    secretsFile({ key: "repaired" });
    await expect.poll(ready).toBe("ok\n");
  });

  test("of a file in whose place a directory is stays what it was", async () => {
    const secrets = secretsFile({ key: "kept" });
    const { client, log } = await serve({ secrets });
    const { sandbox_id: id } = await client.createSandbox();
    renameSync(secrets, `${secrets}.away`);
    mkdirSync(secrets, { mode: 0o700 });
    try {
      expect(await run(client, id).catch(String)).toBe("kept");
      expect(log.errors).toMatchObject([{ fields: { problem: `${secrets} is not a file` } }]);
    } finally {
      rmdirSync(secrets);
      renameSync(`${secrets}.away`, secrets);
    }
    secretsFile({ key: "changed" });
    expect(await run(client, id)).toBe("changed");
  });

  test("of a sandbox is in every command of it, and the sandbox shows only its name", async () => {
    const { client } = await serve({ secrets: secretsFile({ key: "of the sandbox", other: "2" }) });
    const made = await client.createSandbox({ secret_env: { S: "key" } });
    expect(made.spec).toMatchObject({ secret_env: { S: "key" } });
    expect(JSON.stringify(made)).not.toContain("of the sandbox");
    const id = made.sandbox_id;
    expect(await run(client, id, { secret_env: {} })).toBe("of the sandbox");
    expect(await run(client, id, { secret_env: { S: "other" } })).toBe("2");
    expect(await run(client, id, { secret_env: {}, env: { S: "plain" } })).toBe("plain");
  });

  test("of a sandbox is overridden by the variables that a desktop or browser session sets itself", async () => {
    const desktops = DESKTOP_ENGINES.find(({ name }) => name === "bubblewrap");
    const secrets = secretsFile({ key: "of the sandbox" });
    const { client } = await serve({ ...desktops?.settings, secrets });
    const { sandbox_id: id } = await client.createSandbox({ secret_env: { S: "key", T: "key" } });
    const worker = new Worker(client, "ann");
    const own = { env: { S: "own" } };
    expect((await worker.create("vm", own, { sandbox_id: id })).failure).toBeNull();
    const show = 'printf "%s, %s" "$S" "$T"';
    await worker.execute("vm:launch", { command: `{ ${show}; } >/tmp/new && mv /tmp/new /tmp/seen` });
    const seen = () => run(client, id, { secret_env: {} }, "cat /tmp/seen 2>/dev/null");
    await expect.poll(seen).toBe("own, of the sandbox");
    expect((await worker.create("browser", own, { sandbox_id: id })).failure).toBeNull();
    const find = `for p in /proc/[0-9]*; do tr '\\0' '\\n' <$p/cmdline | grep -qx -e --remote-debugging-pipe && tr '\\0' '\\n' <$p/environ | grep '^S='; done | sort -u`;
    expect(await run(client, id, { secret_env: {} }, find)).toBe("S=own\n");
    await worker.destroy();
  });

  test("is redacted in the output on request, also in the transcript", async () => {
    const { client } = await serve({ secrets: secretsFile({ key: "hunter22" }) });
    const { sandbox_id: id } = await client.createSandbox();
    const shell =
      'printf "a %s b hunt" "$S"; sleep 0.2; printf "er22 c"; printf "%s" "$S" >&2; printf hunter2';
    const { processId, result } = client.exec(id, shell, { secret_env: { S: "key" }, redact_secrets: true });
    const done = await result;
    expect(done.stdout.toString()).toBe("a [redacted] b [redacted] chunter2");
    expect(done.stderr.toString()).toBe("[redacted]");
    const again = await client.attach(await processId).result;
    expect(again.stdout.toString()).toBe("a [redacted] b [redacted] chunter2");
  });

  test("works in the TypeScript client", async () => {
    const { app } = await serve({ secrets: secretsFile({ key: "of the client" }) });
    const berth = Berth.connect(app.address);
    open.push(() => berth.close());
    const sandbox = await berth.sandboxes.create({ secretEnv: { S: "key" } });
    expect(sandbox.info.spec.secretEnv).toEqual({ S: "key" });
    const { stdout } = await sandbox.run('printf "%s" "$S" "$T"', {
      secretEnv: { T: "key" },
      redactSecrets: true,
    });
    expect(stdout.toString()).toBe("[redacted][redacted]");
  });

  test("of a changed file with the most secrets allowed blocks the event loop for at most 100 ms", async () => {
    const many = (value: string) =>
      Object.fromEntries([
        ["key", value],
        ...Array.from({ length: 3999 }, (_, i) => [`key${i}`, "x".repeat(200)]),
      ]);
    const secrets = secretsFile({ key: "alone" });
    const { client, log } = await serve({ secrets });
    const { sandbox_id: id } = await client.createSandbox();
    expect(await run(client, id)).toBe("alone");
    // The first reload also loads code; the second one does not.
    for (const value of ["first", "second"]) {
      secretsFile(many(value));
      const turns = followTurns();
      try {
        const found = await Promise.all(Array.from({ length: 8 }, () => run(client, id)));
        expect(found).toEqual(Array.from({ length: 8 }, () => value));
      } finally {
        expect(Math.max(...turns())).toBeLessThan(100);
      }
    }
    const text = await readFile(secrets, "utf8");
    writeFileSync(secrets, text.replace("{", "{,"), { mode: 0o600 });
    expect(await run(client, id)).toBe("second");
    expect(log.errors).toMatchObject([{ fields: { problem: expect.stringContaining(`${secrets}:1:`) } }]);
  });

  test("that is not granted looks like one that does not exist", async () => {
    const tokens = new TokensFile();
    const acme = await tokens.add("acme");
    const other = await tokens.add("other");
    const text = await readFile(tokens.path, "utf8");
    writeFileSync(tokens.path, text.replace(/acme: \{\s*\}/, "acme: {secrets: [key]}"), { mode: 0o600 });
    const { app } = await serve({ secrets: secretsFile({ key: "granted" }), tokens: tokens.path });
    const [mine, theirs] = [acme, other].map((token) => clientWith(app.address, token)) as [Client, Client];
    open.push(
      () => mine.close(),
      () => theirs.close(),
    );
    expect(await run(mine, (await mine.createSandbox()).sandbox_id)).toBe("granted");
    const { sandbox_id: id } = await theirs.createSandbox();
    const refused = await failureOf(run(theirs, id));
    const missing = await failureOf(run(theirs, id, { secret_env: { S: "nothing" } }));
    expect(refused).toMatchObject({ code: "NOT_FOUND", reason: "SECRET_NOT_FOUND" });
    expect({ ...missing, metadata: {}, message: missing.message.replace("nothing", "key") }).toEqual({
      ...refused,
      metadata: {},
    });
  });
});

describe("a directory of secrets", () => {
  function mounted(): string {
    const root = mkdtempSync(path.join(directory, "mounted-"));
    mkdirSync(path.join(root, "..1"));
    writeFileSync(path.join(root, "..1/key"), "of a directory\n", { mode: 0o644 });
    symlinkSync("..1", path.join(root, "..data"));
    symlinkSync("..data/key", path.join(root, "key"));
    return root;
  }

  test("is read as Kubernetes mounts and replaces it", async () => {
    const root = mounted();
    const { client } = await serve({ secrets: root });
    const { sandbox_id: id } = await client.createSandbox();
    expect(await run(client, id)).toBe("of a directory");
    mkdirSync(path.join(root, "..2"));
    writeFileSync(path.join(root, "..2/key"), "replaced", { mode: 0o644 });
    symlinkSync("..2", path.join(root, "..data_tmp"));
    renameSync(path.join(root, "..data_tmp"), path.join(root, "..data"));
    expect(await run(client, id)).toBe("replaced");
  });

  test("gives no files outside it, and none that others may write", async () => {
    const root = mounted();
    symlinkSync("/etc/hostname", path.join(root, "outside"));
    writeFileSync(path.join(root, "shared"), "x");
    chmodSync(path.join(root, "shared"), 0o666);
    const { client } = await serve({ secrets: root });
    const { sandbox_id: id } = await client.createSandbox();
    for (const name of ["outside", "shared", "../key", "..data", "..1", "."]) {
      const failure = await failureOf(run(client, id, { secret_env: { S: name } }));
      expect(failure, name).toMatchObject({ reason: "SECRET_NOT_FOUND" });
    }
  });

  test("gives no file that is not UTF-8, because a variable would have other bytes", async () => {
    const root = mounted();
    writeFileSync(path.join(root, "binary"), Buffer.from([0x6b, 0xff, 0xfe]));
    const { client, log } = await serve({ secrets: root });
    const { sandbox_id: id } = await client.createSandbox();
    const failure = await failureOf(run(client, id, { secret_env: { S: "binary" } }));
    expect(failure).toMatchObject({ reason: "SECRET_NOT_FOUND" });
    expect(log.errors).toMatchObject([
      { fields: { problem: expect.stringMatching(/binary is not UTF-8 text$/) } },
    ]);
  });
});

test.each([
  ["an open file", "secrets: {}", 0o644, /is open to other users .*chmod 600/],
  ["no YAML", "secrets: [hush", 0o600, /:1:\d+: is not YAML \(\w+\)/],
  ["a secret twice", "a: hush\na: hush", 0o600, /:2:1: has a name twice\. Remove one\./],
  [
    "a value that is not text",
    "secrets: {key: 12345678}",
    0o600,
    /secrets.key: is not text; put it in quotes/,
  ],
  [
    "bytes that are no text",
    Buffer.from("secrets: {key: hush\xff}", "latin1"),
    0o600,
    /bytes-that-are-no-text.yaml is not UTF-8 text/,
  ],
  ["an empty value", 'secrets: {key: ""}', 0o600, /secrets.key is empty/],
  [
    "a name that is a path",
    "secrets: {../key: hush}",
    0o600,
    /is not the name of a secret: .* with a letter or digit at both ends/,
  ],
  ["a file without a map", "hush", 0o600, /map\.yaml: is not a map with secrets: {NAME: VALUE}/],
  ["a key too many", "secrets: {key: hush}\nmore: 1", 0o600, /many\.yaml: there is no key "more" here/],
  [
    "a file of more than 1 MiB",
    `secrets: {key: ${"hush".repeat(1 << 18)}}`,
    0o600,
    /is larger than 1 MiB; a directory with one file per secret may hold more/,
  ],
  [
    "a file with 4001 secrets",
    `secrets: {${Array.from({ length: 4001 }, (_, index) => `k${index}: hush`).join()}}`,
    0o600,
    /has more than 4000 secrets; a directory with one file per secret may hold more/,
  ],
])("%s is refused at start, without printing a value", async (name, text, mode, message) => {
  const file = path.join(directory, `${name.replaceAll(" ", "-")}.yaml`);
  writeFileSync(file, text, { mode });
  const failure: unknown = await startTestApp({ engine: "bubblewrap", secrets: file }).catch(
    (error) => error,
  );
  expect(failure).toMatchObject({ reason: "INVALID_ARGUMENT", message: expect.stringMatching(message) });
  expect(String(failure)).not.toMatch(/hush|12345678/);
});

test("a secrets file that does not exist is reported with the command that makes one", async () => {
  const file = path.join(newDataDir(), "none.yaml");
  const failure: unknown = await startTestApp({ engine: "bubblewrap", secrets: file }).catch(
    (error) => error,
  );
  const make = `(umask 077; echo 'secrets: {}' >${file})`;
  expect(failure).toMatchObject({ message: `--secrets: ${file} does not exist. Type: ${make}` });
  execFileSync("/bin/sh", ["-c", make]);
  await expect(serve({ secrets: file })).resolves.toBeDefined();
});
