import { hash } from "node:crypto";
import { once } from "node:events";
import { chmodSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { chmod, copyFile, mkdir, readFile, rename, symlink, writeFile } from "node:fs/promises";
import https from "node:https";
import path from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import tls from "node:tls";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { startApp } from "../../../src/app.ts";
import { tlsFiles } from "../../../src/config/tls-files.ts";
import { LiveTls, type TlsFiles } from "../../../src/server/live-tls.ts";
import { LiveTokens } from "../../../src/tenants/live-tokens.ts";
import { ALL_SECRETS, Secrets } from "../../../src/tenants/secrets.ts";
import { startTestApp, type TestApp } from "../../support/app.ts";
import { makeCertificate } from "../../support/certificate.ts";
import { type Client, failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { MemoryLog } from "../../support/memory-log.ts";
import { withoutDescriptors } from "../../support/no-descriptors.ts";
import { newDataDir, testSettings } from "../../support/settings.ts";
import { clientWith, TokensFile } from "../../support/tokens.ts";
import { followTurns } from "../../support/turns.ts";

/** The limit of a file. */
const MAX_TOKENS = 4000;

const open: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

async function serve(tokens: string): Promise<TestApp> {
  const running = await startTestApp({ engine: "bubblewrap", tokens });
  open.push(() => {
    // The unusable file is logged as an error, which is expected here.
    running.log.lines.splice(0);
    return running.stop();
  });
  return running;
}

function connect({ app }: TestApp, token: string): Client {
  const client = clientWith(app.address, token);
  open.push(() => client.close());
  return client;
}

/** Whether a token is accepted now. */
function isIn(client: Client): Promise<boolean> {
  return client.call("SandboxService/ListSandboxes").then(
    () => true,
    () => false,
  );
}

async function page({ app }: TestApp, name: string, token = ""): Promise<string> {
  const response = await fetch(`http://${app.address}${name}`, {
    headers: { authorization: `Bearer ${token}` },
  });
  return response.text();
}

/** The failures with which a running command and a watch end after `act`. */
async function endsAfter(client: Client, act: () => Promise<void>) {
  const events = client.stream("SandboxService/WatchEvents", {});
  events.on("error", () => {});
  events.on("data", () => {});
  const { sandbox_id: sandboxId } = await client.createSandbox();
  const execution = client.exec(sandboxId, "sleep 600");
  await execution.processId;
  const ended = Promise.all([
    failureOf(execution.result),
    failureOf(new Promise((resolve, reject) => events.on("error", reject).on("end", resolve))),
  ]);
  await act();
  // Half a second on an idle machine.
  const ends = await Promise.race([ended, sleep(60_000, undefined, { ref: false })]);
  expect(ends, "the calls end").toBeDefined();
  const [exec, watch] = await ended;
  return { exec, watch };
}

describe("running streams end with UNAUTHENTICATED", () => {
  test("when their token is revoked, and its process is killed", async () => {
    const file = new TokensFile();
    const [token, other] = [await file.add("acme"), await file.add("acme")];
    const running = await serve(file.path);
    const [client, bystander] = [connect(running, token), connect(running, other)];
    const { exec, watch } = await endsAfter(client, () => file.revoke(token));
    for (const end of [exec, watch]) {
      expect(end).toMatchObject({ code: "UNAUTHENTICATED", reason: "UNAUTHENTICATED" });
    }
    expect(await failureOf(client.call("SandboxService/ListSandboxes"))).toMatchObject({
      code: "UNAUTHENTICATED",
    });
    // What was created belongs to the tenant, not to the token.
    const { sandboxes } = await bystander.call("SandboxService/ListSandboxes");
    expect(sandboxes).toHaveLength(1);
    const [sandbox] = sandboxes;
    await eventually(async () => {
      const { processes } = await bystander.call("ProcessService/ListProcesses", {
        sandbox_id: sandbox?.sandbox_id,
      });
      return processes.length === 0;
    });
  });

  test("when their token expires", async () => {
    const file = new TokensFile();
    const token = await file.add("acme");
    const running = await serve(file.path);
    // Only once its calls run: a busy machine may need any time for that.
    const { exec } = await endsAfter(connect(running, token), async () => {
      const expires = `expires: ${new Date(Date.now() + 1_000).toISOString()}`;
      const text = await readFile(file.path, "utf8");
      await writeFile(file.path, text.replace("scope: user", `scope: user\n    ${expires}`));
    });
    expect(exec).toMatchObject({
      code: "UNAUTHENTICATED",
      message: "The token has expired. Ask the operator for another.",
    });
  });

  test("when their token moves to another owner, or has fewer rights", async () => {
    const file = new TokensFile();
    const token = await file.add("acme");
    const running = await serve(file.path);
    const client = connect(running, token);
    const { exec } = await endsAfter(client, async () => {
      const text = await readFile(file.path, "utf8");
      await writeFile(file.path, text.replace("scope: user", "scope: read-only"));
    });
    expect(exec.code).toBe("UNAUTHENTICATED");
    expect(await isIn(client)).toBe(true);
    expect(await failureOf(client.createSandbox())).toMatchObject({
      code: "PERMISSION_DENIED",
      reason: "TOKEN_SCOPE",
    });
  });
});

describe("a change of the file", () => {
  describe("of a service that reads one after another", () => {
    const file = new TokensFile();
    let running: TestApp;
    let client: Client;
    let admin = "";
    let text = "";
    beforeAll(async () => {
      const token = await file.add("acme");
      admin = await file.add("ops", { scope: "admin" });
      text = await readFile(file.path, "utf8");
      running = await startTestApp({ engine: "bubblewrap", tokens: file.path });
      client = clientWith(running.app.address, token);
    });
    afterAll(async () => {
      client.close();
      running.log.lines.splice(0);
      await running.stop();
    });

    test.each([
      // In one turn of the event loop, so that the service, in this process, sees nothing in between.
      ["malformed", () => writeFileSync(file.path, `${text}nonsense: [`)],
      ["half a file", () => writeFileSync(file.path, text.slice(0, text.indexOf("scope")))],
      ["empty", () => writeFileSync(file.path, "")],
      ["gone", () => rmSync(file.path)],
      [
        "a directory",
        () => {
          rmSync(file.path);
          mkdirSync(file.path);
        },
      ],
      ["open to others", () => chmodSync(file.path, 0o644)],
    ])("that cannot be used (%s) leaves the previous tokens in force, and says so", async (_name, spoil) => {
      running.log.lines.splice(0);
      expect(await page(running, "/readyz")).toBe("ok\n");
      spoil();
      await eventually(async () => (await page(running, "/readyz")) !== "ok\n");
      expect(await page(running, "/readyz")).toBe(
        "ok\nThe tokens file has changed and cannot be used: the tokens it held before stay in force. The log says why.\n",
      );
      expect(await page(running, "/metrics", admin)).toContain("berth_tokens_file_stale 1\n");
      expect(running.log.errors).toHaveLength(1);
      expect(String(running.log.errors[0]?.fields.problem)).toContain(file.path);
      expect(await isIn(client)).toBe(true);
      // Also in one turn, so that no error of half a file reaches the next case.
      rmSync(file.path, { recursive: true, force: true });
      writeFileSync(file.path, text, { mode: 0o600 });
      await eventually(async () => (await page(running, "/readyz")) === "ok\n");
      expect(await page(running, "/metrics", admin)).toContain("berth_tokens_file_stale 0\n");
      expect(await isIn(client)).toBe(true);
    });
  });

  test("to the most tokens allowed blocks the event loop for at most 100 ms", async () => {
    const file = new TokensFile();
    const token = await file.add("acme");
    const running = await serve(file.path);
    const client = connect(running, token);
    const text = await readFile(file.path, "utf8");
    const more = Array.from({ length: MAX_TOKENS - 1 }, (_, at) => {
      const id = `many${at.toString(36).padStart(6, "0")}`;
      return `  - id: ${id}\n    tenant: acme\n    scope: user\n    sha256: ${hash("sha256", id)}\n`;
    });
    const large = `${file.path}.large`;
    const read = (tokens: number) =>
      running.log.lines.some(
        ({ message, fields }) => message === "tokens read again" && fields.tokens === tokens,
      );
    // The first reload also loads code; the second one does not.
    for (const left of [0, 1]) {
      await writeFile(large, text + more.slice(left).join(""), { mode: 0o600 });
      const turns = followTurns();
      await rename(large, file.path);
      try {
        await eventually(() => read(MAX_TOKENS - left));
      } finally {
        const longest = Math.max(...turns());
        expect(longest).toBeLessThan(100);
      }
    }
    expect(await isIn(client)).toBe(true);
    await writeFile(large, `${text}${more.join("")}nonsense`, { mode: 0o600 });
    await rename(large, file.path);
    await eventually(() => running.log.errors.length === 1);
    const line = text.split("\n").length + more.length * 4;
    expect(String(running.log.errors[0]?.fields.problem)).toContain(`${file.path}:${line}:`);
    expect(await isIn(client)).toBe(true);
  });

  test("is noticed however it is made: by a rename, in place, and behind symbolic links", async () => {
    const file = new TokensFile();
    const first = await file.add("acme");
    const directory = newDataDir();
    const mounted = path.join(directory, "tokens.yaml");
    // As Kubernetes mounts a secret.
    const put = async (version: string) => {
      await mkdir(path.join(directory, version));
      const text = await readFile(file.path, "utf8");
      await writeFile(path.join(directory, version, "tokens.yaml"), text, { mode: 0o600 });
      await symlink(version, path.join(directory, "..data-new"));
      await rename(path.join(directory, "..data-new"), path.join(directory, "..data"));
    };
    await put("..1");
    await symlink("..data/tokens.yaml", mounted);
    const running = await serve(mounted);
    expect(await isIn(connect(running, first))).toBe(true);
    const second = await file.add("other");
    await put("..2");
    const client = connect(running, second);
    await eventually(() => isIn(client));
    const third = await file.add("third");
    await writeFile(mounted, await readFile(file.path));
    await eventually(() => isIn(connect(running, third)));
    await file.revoke(first);
    await rename(file.path, mounted);
    await eventually(async () => !(await isIn(connect(running, first))));
    expect(await isIn(client)).toBe(true);
  });
});

test.each([
  ["tenants: {}\ntokens:\n  - id: [\n", /^--tokens: \S+tokens\.yaml:\d+:\d+: is not YAML/],
  ["tenants: {acme: {limit: 1}}\ntokens: []\n", /tokens\.yaml:1:18: there is no key "limit" here\.$/],
  ["tenants: {acme: {quota: 1}}\ntokens: []\n", /tokens\.yaml:1:25: quota: is not a map of quotas\.$/],
  ["tenants: {acme: }\ntokens:\n  - {id: abcd, tenant: nobody}\n", /tokens\.yaml:3:5: scope: /],
])("a malformed file is refused at the start, with its line: %j", async (text, message) => {
  const file = new TokensFile();
  await writeFile(file.path, text, { mode: 0o600 });
  const started = startApp(testSettings({ engine: "bubblewrap", tokens: file.path }), new MemoryLog());
  await expect(started).rejects.toMatchObject({
    reason: "INVALID_ARGUMENT",
    message: expect.stringMatching(message),
  });
});

test("a file that others may read is refused at the start, with what to type", async () => {
  const file = new TokensFile();
  await file.add("acme");
  await chmod(file.path, 0o640);
  const started = startApp(testSettings({ engine: "bubblewrap", tokens: file.path }), new MemoryLog());
  await expect(started).rejects.toThrow(
    `--tokens: ${file.path} is open to other users (mode 0640). Type: chmod 600 ${file.path}`,
  );
});

test("files that change while the service can open none are read once it can", async () => {
  const file = new TokensFile();
  await file.add("acme");
  const directory = newDataDir();
  const secretsFile = path.join(directory, "secrets.yaml");
  const [first, second] = await Promise.all(
    ["first", "second"].map((name) => makeCertificate(directory, name)),
  );
  const at = { cert: path.join(directory, "tls.crt"), key: path.join(directory, "tls.key") };
  const put = (from: Files | undefined) =>
    Promise.all([copyFile(from?.cert ?? "", `${at.cert}.new`), copyFile(from?.key ?? "", `${at.key}.new`)]);
  const putSecret = (value: string) =>
    writeFile(`${secretsFile}.new`, `secrets: {A: ${value}}\n`, { mode: 0o600 });
  const replace = () => {
    for (const name of [secretsFile, at.cert, at.key]) renameSync(`${name}.new`, name);
  };
  await Promise.all([put(first), putSecret("old")]);
  replace();
  const log = new MemoryLog();
  const tokens = await LiveTokens.start(file.path, log);
  open.push(() => tokens.stop());
  const secrets = await Secrets.open(secretsFile, ALL_SECRETS, log);
  expect(await secrets.read("A")).toBe("old");
  const live = await LiveTls.open(tlsOf(at) as TlsFiles, log);
  let cert: unknown = live.options.cert;
  live.follow((options) => {
    cert = options.cert;
  });
  open.push(() => live.stop());
  await Promise.all([put(second), putSecret("new")]);
  const [none, newCert] = [`${file.path}.none`, await readFile(`${at.cert}.new`)];
  await writeFile(none, "tenants: {}\ntokens: []\n", { mode: 0o600 });

  const { over, end } = await withoutDescriptors();
  try {
    replace();
    renameSync(none, file.path);
    await expect.poll(() => tokens.isStale && live.isStale).toBe(true);
    expect(await secrets.read("A")).toBe("old");
  } finally {
    end();
    await over;
  }
  expect(log.errors.map(({ fields }) => String(fields.problem))).toEqual(
    Array(3).fill(expect.stringContaining("EMFILE")),
  );
  log.lines.splice(0);
  await expect.poll(() => tokens.table.tokens.size).toBe(0);
  await expect.poll(() => cert).toEqual(newCert);
  await expect.poll(() => secrets.read("A")).toBe("new");
  expect([tokens.isStale, live.isStale, secrets.isStale]).toEqual([false, false, false]);
});

interface Files {
  readonly cert: string;
  readonly key: string;
  readonly clientCa?: string | undefined;
}

function tlsOf({ cert, key, clientCa }: Files): TlsFiles | undefined {
  return tlsFiles({ tlsCert: cert, tlsKey: key, tlsClientCa: clientCa });
}

/** The subject of the certificate that an address presents now. */
function subjectAt(address: string): Promise<string | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<string | undefined>();
  const { hostname: host, port } = new URL(`https://${address}`);
  const socket = tls.connect({ host, port: Number(port), rejectUnauthorized: false });
  socket.once("secureConnect", () => {
    resolve(String(socket.getPeerCertificate().subject?.CN));
    socket.destroy();
  });
  socket.once("error", reject);
  return promise;
}

describe("a renewed certificate", () => {
  async function servedFiles(): Promise<{ running: TestApp; at: Files; next: Files }> {
    const directory = newDataDir();
    const [first, next] = await Promise.all(
      ["first", "second"].map((name) => makeCertificate(directory, name)),
    );
    const at = { cert: path.join(directory, "tls.crt"), key: path.join(directory, "tls.key") };
    await Promise.all([copyFile(first?.cert ?? "", at.cert), copyFile(first?.key ?? "", at.key)]);
    const running = await startTestApp({ engine: "bubblewrap", tls: tlsOf(at) });
    open.push(() => {
      running.log.lines.splice(0);
      return running.stop();
    });
    expect(await subjectAt(running.app.address)).toBe("first");
    return { running, at, next: next as Files };
  }

  test.each([
    ["cert", "key"],
    ["key", "cert"],
  ] as const)("is used once its new %s and then its new %s exist, without a restart", async (one, other) => {
    const { running, at, next } = await servedFiles();
    const agent = newAgent();
    await copyFile(next[one], at[one]);
    // Half of a renewal is reported, and the port continues as before.
    await expect.poll(() => errorsOf(running)).toContain("the TLS files have changed");
    expect(await subjectAt(running.app.address)).toBe("first");
    expect((await secureGet(agent, running.app.address, "/readyz")).body).toContain(
      "The TLS files have changed",
    );
    await copyFile(next[other], at[other]);
    await expect.poll(() => subjectAt(running.app.address)).toBe("second");
    expect((await secureGet(agent, running.app.address, "/readyz")).body).toBe("ok\n");
  });

  test.each([
    ["cert", "--tls-cert", "holds no usable certificate"],
    ["key", "--tls-key", "holds no usable key"],
  ] as const)("whose %s is broken is named in the log", async (which, flag, problem) => {
    const { running, at } = await servedFiles();
    await writeFile(at[which], "-----BEGIN NOTHING-----\n");
    await expect.poll(() => errorsOf(running)).toContain("the TLS files have changed");
    expect(errorsOf(running)).toContain(`${flag}: ${at[which]} ${problem}`);
    expect(await subjectAt(running.app.address)).toBe("first");
  });

  test("is used when a link is moved to it, as Kubernetes does, and keeps existing connections", async () => {
    const directory = newDataDir();
    for (const name of ["first", "second"]) {
      const made = await makeCertificate(directory, name);
      await mkdir(path.join(directory, `${name}.d`));
      await rename(made.cert, path.join(directory, `${name}.d`, "tls.crt"));
      await rename(made.key, path.join(directory, `${name}.d`, "tls.key"));
    }
    const link = path.join(directory, "current");
    await symlink("first.d", link);
    const files = { cert: path.join(link, "tls.crt"), key: path.join(link, "tls.key") };
    const running = await startTestApp({ engine: "bubblewrap", tls: tlsOf(files) });
    open.push(() => running.stop());
    const agent = newAgent();
    const subject = async () => (await secureGet(agent, running.app.address, "/healthz")).subject;
    expect(await subject()).toBe("first");
    await symlink("second.d", `${link}.new`);
    await rename(`${link}.new`, link);
    await expect.poll(() => subjectAt(running.app.address)).toBe("second");
    expect(await subject()).toBe("first");
  });
});

function errorsOf({ log }: TestApp): string {
  return JSON.stringify(log.lines);
}

/** An agent that keeps one connection. */
function newAgent(): https.Agent {
  const agent = new https.Agent({ keepAlive: true, maxSockets: 1, rejectUnauthorized: false });
  open.push(() => agent.destroy());
  return agent;
}

/** A page, and the subject of the certificate on its connection. */
function secureGet(
  agent: https.Agent,
  address: string,
  name: string,
): Promise<{ readonly body: string; readonly subject: string | undefined }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ body: string; subject: string | undefined }>();
  https
    .get(`https://${address}${name}`, { agent }, async (response) => {
      const subject = (response.socket as tls.TLSSocket).getPeerCertificate().subject?.CN;
      resolve({ body: await text(response), subject: subject && String(subject) });
    })
    .once("error", reject);
  return promise;
}

test("with --tls-client-ca, a caller needs a certificate of that authority in addition to the token", async () => {
  const directory = newDataDir();
  const [server, client, stranger] = await Promise.all(
    ["server", "client", "stranger"].map((name) => makeCertificate(directory, name)),
  );
  const read = (name: string | undefined) => readFile(name ?? "");
  const file = new TokensFile();
  const token = await file.add("acme");
  const running = await startTestApp({
    engine: "bubblewrap",
    tokens: file.path,
    tls: tlsOf({ ...(server as Files), clientCa: client?.cert }),
  });
  open.push(() => running.stop());
  const call = async (own: { cert: string; key: string } | undefined, header: object) => {
    const certificate = own && { cert: await read(own.cert), key: await read(own.key) };
    const options = {
      ...{ method: "POST", ca: await read(server?.cert), agent: false, ...certificate },
      headers: { "content-type": "application/json", ...header },
    };
    return new Promise<number | string>((resolve) => {
      const request = https.request(
        `https://${running.app.address}/berth.v1.SandboxService/GetStats`,
        options,
      );
      request.once("response", (response) => {
        response.resume();
        resolve(response.statusCode ?? 0);
      });
      request.once("error", () => resolve("refused"));
      request.end("{}");
    });
  };
  const bearer = { authorization: `Bearer ${token}` };
  expect(await call(client, bearer)).toBe(200);
  expect(await call(client, {})).toBe(401);
  expect(await call(undefined, bearer)).toBe("refused");
  expect(await call(stranger, bearer)).toBe("refused");
});

test.each(["TLSv1.2", "TLSv1.3"] as const)(
  "a certificate of a client is checked at every connection of %s, even if the client offers to resume an earlier one",
  async (version) => {
    const directory = newDataDir();
    const [server, client] = await Promise.all(
      ["server", "client"].map((name) => makeCertificate(directory, name)),
    );
    const { cert, key } = client as Files;
    const running = await startTestApp({
      engine: "bubblewrap",
      tls: tlsOf({ ...(server as Files), clientCa: cert }),
    });
    open.push(() => running.stop());
    const { hostname: host, port } = new URL(`https://${running.app.address}`);
    const own = { cert: await readFile(cert), key: await readFile(key) };
    /** Whether the connection resumed the given session, and its own session. */
    const connectWith = async (session: Buffer | undefined) => {
      const socket = tls.connect({
        ...{ host, port: Number(port), rejectUnauthorized: false, ...own },
        ...{ minVersion: version, maxVersion: version, ALPNProtocols: ["http/1.1"], session },
      });
      const sessions: Buffer[] = [];
      socket.on("session", (given) => sessions.push(given));
      await once(socket, "secureConnect");
      const resumed = socket.isSessionReused();
      socket.write("GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n");
      expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 /);
      return { resumed, session: sessions.at(-1) };
    };
    const first = await connectWith(undefined);
    const second = await connectWith(first.session);
    expect([first.resumed, second.resumed]).toEqual([false, false]);
  },
);
