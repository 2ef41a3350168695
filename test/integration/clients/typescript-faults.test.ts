import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  appendFile,
  copyFile,
  mkdir,
  mkdtemp,
  readFile,
  rename,
  rm,
  symlink,
  writeFile,
} from "node:fs/promises";
import http2 from "node:http2";
import net, { type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import {
  Agent,
  type AgentStep,
  Berth,
  BerthError,
  ConnectionLostError,
  type ConnectSettings,
  type TlsSettings,
} from "../../../clients/typescript/src/node.ts";
import {
  type GetSandboxResponseSchema,
  SandboxService,
  type SandboxState,
} from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { makeCertificate } from "../../support/certificate.ts";
import { CuttableLink } from "../../support/cuttable-link.ts";
import { eventually } from "../../support/eventually.ts";
import { ServeProcess } from "../../support/program.ts";
import { TokensFile } from "../../support/tokens.ts";

let directory: string;
let service: ServeProcess;

beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), "berth-typescript-"));
  service = await ServeProcess.start([], { BERTH_ENGINE: "bubblewrap" });
});

afterAll(async () => {
  await service?.dispose();
  if (directory) await rm(directory, { recursive: true, force: true });
});

/** A client that is closed at the end of the test. */
function connect(address = service.address, settings: ConnectSettings = {}): Berth {
  const berth = Berth.connect(address, settings);
  onTestFinished(() => berth.close());
  return berth;
}

async function linked(): Promise<CuttableLink> {
  const link = await CuttableLink.to(service.address);
  onTestFinished(() => link.cut());
  return link;
}

const failureOf = (call: Promise<unknown>): Promise<unknown> =>
  call.then(
    (answer) => Promise.reject(new Error(`the call did not fail: ${JSON.stringify(answer)}`)),
    (error: unknown) => error,
  );

test.each(["nonsense", "", "host:port", "ftp://host", "http://"])("refuses the address %j", (address) => {
  // An empty variable in the environment also counts as unset.
  const env = process.env.BERTH_ADDRESS;
  process.env.BERTH_ADDRESS = address;
  try {
    if (address === "") expect(Berth.connect(address).address).toBe("127.0.0.1:7070");
    else expect(() => Berth.connect(address)).toThrow("is not an address");
  } finally {
    if (env === undefined) delete process.env.BERTH_ADDRESS;
    else process.env.BERTH_ADDRESS = env;
  }
});

test("a service that is down is UNAVAILABLE, after the time for retries", async () => {
  const link = await linked();
  link.cut();
  const berth = connect(link.address, { retryForMs: 300 });
  const start = performance.now();
  const error = await failureOf(berth.sandboxes.stats());
  expect(performance.now() - start).toBeGreaterThan(100);
  expect(error).toBeInstanceOf(BerthError);
  expect(error).toMatchObject({ code: "UNAVAILABLE", reason: "" });
  expect((error as Error).message).toContain(`The service at ${link.address} cannot be reached`);
});

test("a service whose socket is missing, or that speaks no TLS, is reported as such", async () => {
  const socket = `unix:${path.join(directory, "none.sock")}`;
  const none = await failureOf(connect(socket, { retryForMs: 0 }).sandboxes.stats());
  expect(none).toMatchObject({ code: "UNAVAILABLE", reason: "" });
  expect((none as Error).message).toContain(`The service at ${socket} cannot be reached`);

  const address = `https://${service.address}`;
  const plain = await failureOf(connect(address).sandboxes.stats());
  expect(plain).toMatchObject({ code: "FAILED_PRECONDITION", reason: "" });
  expect((plain as Error).message).toContain(`What answers at ${address} does not speak TLS`);
});

test("a call whose connection breaks is UNAVAILABLE", async () => {
  const link = await linked();
  const sandbox = await connect().sandboxes.create();
  onTestFinished(() => sandbox.delete({ graceMs: 0 }));
  const far = await connect(link.address).sandboxes.get(sandbox.sandboxId);
  const failure = failureOf(far.run("sleep 1000"));
  await eventually(async () => (await sandbox.processes()).length > 0);
  link.cut();
  const error = await failure;
  expect(error).toMatchObject({ code: "UNAVAILABLE", reason: "" });
  expect((error as Error).message).toContain(`The connection to ${link.address} broke: `);
});

test("what speaks no HTTP/2 is reported as such, and ends no program", async () => {
  const uncaught: unknown[] = [];
  const note = (error: unknown): void => void uncaught.push(error);
  process.on("uncaughtException", note);
  const server = net.createServer((socket) =>
    socket.on("error", () => {}).once("data", () => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")),
  );
  await once(server.listen(0, "127.0.0.1"), "listening");
  try {
    const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    for (const retryForMs of [0, 300]) {
      const berth = Berth.connect(address, { token: "", retryForMs });
      const error = await failureOf(berth.sandboxes.stats());
      await berth.close();
      expect(error).toMatchObject({ code: "UNAVAILABLE", reason: "" });
      expect((error as Error).message).toContain(
        "what answers there does not speak HTTP/2. Is this its address?",
      );
    }
    // Node reports the errors of a connection in a later turn.
    for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate);
    expect(uncaught).toEqual([]);
  } finally {
    process.off("uncaughtException", note);
    server.close();
  }
});

test("a call continues if the service is back in time", async () => {
  const link = await linked();
  link.cut();
  const stats = connect(link.address, { retryForMs: 60_000 }).sandboxes.stats();
  await link.restore();
  expect(await stats).toMatchObject({ engine: "bubblewrap" });
});

test("an aborted call throws the reason of its abort, also while it waits for the service", async () => {
  const link = await linked();
  link.cut();
  const berth = connect(link.address, { retryForMs: 60_000 });
  await expect(berth.sandboxes.stats({ signal: AbortSignal.timeout(200) })).rejects.toThrow(
    expect.objectContaining({ name: "TimeoutError" }),
  );
});

test("an aborted agent stops at once, also while the service cannot be reached", async () => {
  const link = await linked();
  let begin: (step: AgentStep) => void;
  class Waiting extends Agent {
    protected async step(step: AgentStep) {
      begin(step);
      await once(step.signal, "abort");
      return "late";
    }
  }
  const agent = new Waiting(connect(link.address, { retryForMs: 300 }), { stepTimeoutMs: 5_000 });
  const started = async () => {
    const stop = new AbortController();
    const { promise, resolve } = Promise.withResolvers<AgentStep>();
    begin = resolve;
    const run = agent.run("", { signal: stop.signal });
    // It may fail before anybody waits for it.
    run.catch(() => {});
    return { step: await promise, stop, run };
  };
  const reached = await started();
  reached.stop.abort();
  expect(reached.step.signal.aborted).toBe(true);
  expect(await reached.run).toMatchObject({ outcome: "CANCELED" });
  await agent.reset();

  const unreached = await started();
  const reason = new Error("enough");
  link.cut();
  unreached.stop.abort(reason);
  expect(unreached.step.signal.aborted).toBe(true);
  expect(await failureOf(unreached.run)).toBe(reason);
  expect(agent.state).toBe("ERROR");
});

test("an agent waits for the service to delete its run, and can be closed again if that failed", async () => {
  const link = await linked();
  class Quick extends Agent {
    protected async step() {
      return { result: "done", finished: true };
    }
  }
  const agent = new Quick(connect(link.address), { stepTimeoutMs: 500 });
  const { runId } = await agent.run();
  link.cut();
  const start = performance.now();
  expect(await failureOf(agent.close())).toMatchObject({ code: "UNAVAILABLE" });
  expect(performance.now() - start).toBeGreaterThan(100);
  expect(agent.runId).toBe(runId);

  await link.restore();
  await agent.close();
  expect(agent.runId).toBe("");
  expect(await failureOf(connect().runs.get(runId))).toMatchObject({ reason: "RUN_NOT_FOUND" });
});

test("trusts a certificate that it is given, and no other", async () => {
  const [own, other] = await Promise.all([
    makeCertificate(directory, "own"),
    makeCertificate(directory, "other"),
  ]);
  const secure = await ServeProcess.start([], {
    BERTH_ENGINE: "bubblewrap",
    BERTH_TLS_CERT: own.cert,
    BERTH_TLS_KEY: own.key,
  });
  onTestFinished(() => secure.dispose());
  const settings = async (file: string) => ({ tls: { ca: await readFile(file) } });
  const stats = await connect(secure.address, await settings(own.cert)).sandboxes.stats();
  expect(stats.engine).toBe("bubblewrap");
  for (const wrong of [await settings(other.cert), { tls: true }]) {
    const error = await failureOf(connect(secure.address, wrong).sandboxes.stats());
    expect(error).toMatchObject({ code: "FAILED_PRECONDITION", reason: "" });
    expect((error as Error).message).toContain("is not trusted");
  }
  const plain = await failureOf(connect(secure.address, { retryForMs: 0 }).sandboxes.stats());
  expect(plain).toBeInstanceOf(BerthError);
  expect((plain as Error).message).toContain(secure.address);
  expect(() => Berth.connect(secure.address, { tls: { ca: own.cert } })).toThrow("not its path");
  expect(() => Berth.connect("http://127.0.0.1:1", { tls: true })).toThrow("write https://");
});

test("presents a certificate to a service that requires one", async () => {
  const make = async (name: string) => {
    const files = await makeCertificate(directory, name);
    return { files, cert: await readFile(files.cert), key: await readFile(files.key) };
  };
  const [server, client, stranger] = [await make("server"), await make("client"), await make("stranger")];
  const guarded = await ServeProcess.start([], {
    BERTH_ENGINE: "bubblewrap",
    BERTH_TLS_CERT: server.files.cert,
    BERTH_TLS_KEY: server.files.key,
    BERTH_TLS_CLIENT_CA: client.files.cert,
  });
  onTestFinished(() => guarded.dispose());
  const address = `https://${guarded.address}`;
  const call = (tls: TlsSettings) =>
    connect(address, { retryForMs: 0, tls: { ca: server.cert, ...tls } }).sandboxes.stats();
  expect((await call({ cert: client.cert, key: String(client.key) })).engine).toBe("bubblewrap");
  const both = Buffer.concat([client.key, client.cert]);
  expect((await call({ cert: both, key: both })).engine).toBe("bubblewrap");
  expect(await failureOf(call({}))).toMatchObject({
    code: "FAILED_PRECONDITION",
    message: `The service at ${address} requires a certificate that it trusts of its clients. Give one as tls.cert and tls.key.`,
  });
  const refused = await failureOf(call({ cert: stranger.cert, key: stranger.key }));
  expect(refused).toMatchObject({ code: "UNAVAILABLE" });
  expect((refused as Error).message).toContain("does it trust tls.cert?");
  for (const [tls, problem] of [
    [{ cert: client.cert }, "tls.cert and tls.key belong together, and only one of them is given."],
    [
      { cert: client.files.cert, key: client.key },
      "tls.cert, the content of a file, holds no certificate in PEM",
    ],
    [{ cert: client.cert, key: client.cert }, "tls.key, the content of a file, holds no private key in PEM"],
    [{ cert: client.cert, key: stranger.key }, "holds another key than that of the certificate"],
  ] as const)
    expect(() => Berth.connect(address, { tls })).toThrow(problem);
  const profile = { address, "client-cert": client.files.cert, "client-key": client.files.key };
  const plain = { ...profile, address: guarded.address };
  await mkdir(path.join(directory, "berth"));
  await writeFile(
    path.join(directory, "berth/profiles.json"),
    JSON.stringify({
      plain,
      trusting: { address: guarded.address, "tls-ca": server.files.cert },
      work: { ...profile, "tls-ca": server.files.cert },
    }),
  );
  vi.stubEnv("XDG_CONFIG_HOME", directory);
  onTestFinished(() => void vi.unstubAllEnvs());
  expect((await connect("", { profile: "work" }).sandboxes.stats()).engine).toBe("bubblewrap");
  expect(() => Berth.connect(undefined, { profile: "plain" })).toThrow(
    `"${guarded.address}" is called without TLS, and so without the certificate of the profile: write https://.`,
  );
  expect(() => Berth.connect(undefined, { profile: "trusting" })).toThrow(
    `"${guarded.address}" is called without TLS, and so without the tls-ca of the profile: write https://.`,
  );
  const over = connect("", {
    profile: "trusting",
    retryForMs: 0,
    tls: { cert: client.cert, key: String(client.key) },
  });
  expect((await over.sandboxes.stats()).engine).toBe("bubblewrap");
});

test("reads the files of a certificate again for a new connection", async () => {
  const place = await mkdtemp(path.join(directory, "renewed-"));
  const [server, old, renewed] = await Promise.all(
    ["server", "old", "renewed"].map((name) => makeCertificate(place, name)),
  );
  if (!server || !old || !renewed) throw new Error("no certificates");
  const guarded = await ServeProcess.start([], {
    BERTH_ENGINE: "bubblewrap",
    BERTH_TLS_CERT: server.cert,
    BERTH_TLS_KEY: server.key,
    BERTH_TLS_CLIENT_CA: renewed.cert,
  });
  onTestFinished(() => guarded.dispose());
  const [certFile, keyFile] = [path.join(place, "my.pem"), path.join(place, "my.key")];
  const put = async (from: { readonly cert: string; readonly key: string }) => {
    await copyFile(from.cert, certFile);
    await copyFile(from.key, keyFile);
  };
  const address = `https://${guarded.address}`;
  await mkdir(path.join(place, "berth"));
  const mine = { address, "tls-ca": server.cert, "client-cert": certFile, "client-key": keyFile };
  await writeFile(path.join(place, "berth/profiles.json"), JSON.stringify({ mine }));
  vi.stubEnv("XDG_CONFIG_HOME", place);
  onTestFinished(() => void vi.unstubAllEnvs());
  const tls = { ca: await readFile(server.cert), certFile, keyFile };
  for (const [to, settings] of [
    [address, { tls }],
    ["", { profile: "mine" }],
  ] as const) {
    await put(old);
    const berth = connect(to, { ...settings, retryForMs: 0 });
    expect(await failureOf(berth.sandboxes.stats())).toMatchObject({ code: "UNAVAILABLE" });
    // Half of the new pair: the old one stays in force.
    await copyFile(renewed.cert, certFile);
    expect(await failureOf(berth.sandboxes.stats())).toMatchObject({ code: "UNAVAILABLE" });
    await put(renewed);
    await expect(berth.sandboxes.stats()).resolves.toMatchObject({ engine: "bubblewrap" });
    // A chain of which not all is written yet.
    const other = connect(to, { ...settings, retryForMs: 0 });
    await appendFile(certFile, (await readFile(old.cert)).subarray(0, -40));
    await expect(other.sandboxes.stats()).resolves.toMatchObject({ engine: "bubblewrap" });
    expect(() => connect(to, settings)).toThrow(/holds a certificate that is cut off$/);
  }
});

/** A service with tokens, and a client that has one in a file. */
async function tokenInFile() {
  const tokens = new TokensFile();
  const place = await mkdtemp(path.join(directory, "token-"));
  const file = path.join(place, "token");
  let current = await tokens.add("acme");
  await writeFile(file, `${current}\n`);
  const guarded = await ServeProcess.start([], { BERTH_ENGINE: "bubblewrap", BERTH_TOKENS: tokens.path });
  onTestFinished(() => guarded.dispose());
  /** Replaces the token, and returns when the service refuses the previous one. */
  const rotate = async (replace: (token: string) => Promise<void>) => {
    const [before, after] = [current, await tokens.add("acme")];
    const isIn = (token: string) =>
      connect(guarded.address, { token })
        .sandboxes.stats()
        .then(() => true)
        .catch((error) => !BerthError.is(error, "UNAUTHENTICATED"));
    await expect.poll(() => isIn(after)).toBe(true);
    await replace(after);
    await tokens.revoke(before);
    await expect.poll(() => isIn(before)).toBe(false);
    current = after;
  };
  return { place, file, rotate, berth: connect(guarded.address, { tokenFile: file, retryForMs: 60_000 }) };
}

test("a token file may be replaced in any way", async () => {
  const { place, file, rotate, berth } = await tokenInFile();
  await berth.sandboxes.stats();
  for (const replace of [
    (token: string) => writeFile(file, token),
    async (token: string) => {
      await writeFile(`${file}.new`, `${token}\n`);
      await rename(`${file}.new`, file);
    },
    // As Kubernetes does it: a link to a file below a link to a directory.
    async (token: string) => {
      await mkdir(path.join(place, "1"));
      await writeFile(path.join(place, "1/token"), token);
      await symlink("1", path.join(place, "data"));
      await rm(file);
      await symlink("data/token", file);
    },
    async (token: string) => {
      await mkdir(path.join(place, "2"));
      await writeFile(path.join(place, "2/token"), token);
      await symlink("2", path.join(place, "data.new"));
      await rename(path.join(place, "data.new"), path.join(place, "data"));
    },
  ]) {
    await rotate(replace);
    await expect(berth.sandboxes.stats()).resolves.toMatchObject({ engine: "bubblewrap" });
  }
  for (const spoil of [
    () => writeFile(file, ""),
    () => writeFile(file, "no token"),
    () => rm(file),
    () => mkdir(file),
    () => rm(file, { recursive: true }).then(() => execFileSync("mkfifo", [file])),
  ]) {
    await spoil();
    await expect(berth.sandboxes.stats()).resolves.toMatchObject({ engine: "bubblewrap" });
  }
  await rm(file);
  await rotate((token) => writeFile(file, token));
  await expect(berth.sandboxes.stats()).resolves.toMatchObject({ engine: "bubblewrap" });
});

test("streams that the service ends with a revoked token go on with its replacement", async () => {
  const { file, rotate, berth } = await tokenInFile();
  await using sandbox = await berth.sandboxes.create();
  const events = berth.sandboxes.events({ sandboxId: sandbox.sandboxId });
  await events.read();
  const command = sandbox.exec("echo before; read line; echo $line", { keepStdinOpen: true });
  expect((await command.read())?.text).toBe("before\n");
  const after = command.read();
  await rotate((token) => writeFile(file, token));
  await command.write("after\n");
  expect((await after)?.text).toBe("after\n");
  await command.closeStdin();
  expect((await command.wait()).exitCode).toBe(0);
  await sandbox.delete();
  const types: (string | undefined)[] = [];
  while (types.length < 20 && types.at(-1) !== "TERMINATED") types.push((await events.read())?.type);
  expect(types.at(-1)).toBe("TERMINATED");
  await events.end();
  // Without a replacement, the refusal is reported at once.
  await rotate(async () => {});
  expect(await failureOf(berth.sandboxes.stats())).toMatchObject({
    code: "UNAUTHENTICATED",
    tokenReplaced: false,
  });
  // So that the sandbox can be deleted.
  await rotate((token) => writeFile(file, token));
});

test("checks a certificate against the server name, over a Unix socket too", async () => {
  const files = await makeCertificate(directory, "named", "DNS:berth.example");
  const tls = { ca: await readFile(files.cert) };
  for (const listen of ["127.0.0.1:0", `unix:${path.join(directory, "secure.sock")}`]) {
    const secure = await ServeProcess.start([], {
      BERTH_ENGINE: "bubblewrap",
      BERTH_LISTEN: listen,
      BERTH_ALLOW_HOST: "berth.example",
      BERTH_TLS_CERT: files.cert,
      BERTH_TLS_KEY: files.key,
    });
    onTestFinished(() => secure.dispose());
    const named = connect(secure.address, { tls: { ...tls, serverName: "berth.example" } });
    expect((await named.sandboxes.stats()).engine).toBe("bubblewrap");
    const unnamed = await failureOf(connect(secure.address, { tls }).sandboxes.stats());
    expect(unnamed).toMatchObject({ code: "FAILED_PRECONDITION", reason: "" });
  }
});

test("forgets a download that is canceled while nobody reads it", async () => {
  const berth = connect();
  await using sandbox = await berth.sandboxes.create();
  await sandbox.files.write("big", new Uint8Array(4 << 20));
  const adopted = vi.spyOn(berth.connection, "adopt");
  const released = vi.spyOn(berth.connection, "release");
  for (const stream of [sandbox.files.download("big"), sandbox.files.downloadArchive(".")]) {
    const reader = stream.getReader();
    await reader.read();
    await reader.cancel();
  }
  expect(adopted.mock.calls.length).toBeGreaterThanOrEqual(2);
  const forgotten = new Set(released.mock.calls.map(([resource]) => resource));
  expect(adopted.mock.calls.filter(([resource]) => !forgotten.has(resource))).toEqual([]);
});

test("continues at the byte where the connection broke", async () => {
  const link = await linked();
  await using sandbox = await connect().sandboxes.create();
  const berth = connect(link.address);
  const far = await berth.sandboxes.get(sandbox.sandboxId);
  // It waits before the part after each cut, so that some output is always left, however slow its reader is.
  const line = `for part in 0 1 2 3; do
    until [ $part = 0 ] || [ -e part$part ]; do sleep 0.05; done
    for i in $(seq $((part * 50 + 1)) $((part * 50 + 50))); do echo $i; sleep 0.01; done
  done`;
  let numbers = "";
  let cuts = 0;
  for await (const { text, lost } of far.exec(line)) {
    expect(lost).toBe(0);
    numbers += text;
    if (cuts === 3 || !numbers.includes(`\n${cuts * 50 + 40}\n`)) continue;
    cuts++;
    link.cut();
    await link.restore();
    await sandbox.files.write(`part${cuts}`, "");
  }
  expect(cuts).toBe(3);
  expect(numbers).toBe(Array.from({ length: 200 }, (_, index) => `${index + 1}\n`).join(""));
});

test("reports what was received if the connection stays lost", async () => {
  const link = await linked();
  await using sandbox = await connect().sandboxes.create();
  const far = await connect(link.address).sandboxes.get(sandbox.sandboxId);
  const command = far.exec("printf started; exec sleep 1000", { reconnectMs: 500 });
  const reading = (async () => {
    for await (const _ of command) link.cut();
  })();
  const error = await failureOf(reading);
  expect(error).toBeInstanceOf(ConnectionLostError);
  expect(error).toMatchObject({
    code: "UNAVAILABLE",
    processId: command.processId,
    stdoutReceived: 7,
    stderrReceived: 0,
  });
  // The service ends it, because nobody reads it.
  const status = async () => (await sandbox.process(command.processId)).status;
  expect(await eventually(status)).toMatchObject({ cause: "CANCELED" });
  const rest = await sandbox.attach(command.processId, { stdoutOffset: 7 }).result();
  expect(rest.stdout).toBe("");
});

test("a reader decides how long a broken connection may take to be restored", async () => {
  const link = await linked();
  await using sandbox = await connect().sandboxes.create();
  await using command = await sandbox.exec("printf started; exec sleep 1000").start();
  const far = await connect(link.address).sandboxes.get(sandbox.sandboxId);
  const attached = far.attach(command.processId, { reconnectMs: 300 });
  const reading = (async () => {
    for await (const _ of attached) link.cut();
  })();
  expect(await failureOf(reading)).toMatchObject({
    processId: command.processId,
    stdoutReceived: 7,
    message: expect.stringContaining("within 300 ms"),
  });
});

test("writes all of a long stdin over connections that break, however long calls are retried", async () => {
  const link = await linked();
  await using sandbox = await connect().sandboxes.create();
  const far = await connect(link.address, { retryForMs: 0 }).sandboxes.get(sandbox.sandboxId);
  const bytes = new Uint8Array(randomBytes(4 << 20));
  const echo = async () => {
    const echoed: Uint8Array[] = [];
    let cuts = 0;
    for await (const { data, offset } of far.exec("cat", { stdin: bytes, reconnectMs: 20_000 })) {
      echoed.push(data);
      if (offset + data.length < (cuts + 1) << 20 || cuts === 2) continue;
      cuts++;
      link.cut();
      await link.restore();
    }
    return Buffer.concat(echoed).equals(bytes);
  };
  await expect(echo()).resolves.toBe(true);
});

test("writes to stdin once, and downloads to the end, over connections that break", async () => {
  const link = await linked();
  await using sandbox = await connect().sandboxes.create();
  const far = await connect(link.address).sandboxes.get(sandbox.sandboxId);
  await using process = await far.exec("cat", { keepStdinOpen: true }).start();
  for (let index = 0; index < 5; index++) {
    const writing = process.write(`${index}\n`);
    link.cut();
    await link.restore();
    await writing;
  }
  await process.closeStdin();
  expect((await process.result()).stdout).toBe("0\n1\n2\n3\n4\n");

  const bytes = new Uint8Array(randomBytes(8 << 20));
  const echoed: Uint8Array[] = [];
  const echo = far.exec("cat", { stdin: bytes });
  for (let cuts = 0; ; ) {
    const chunk = await echo.read();
    if (chunk === undefined) break;
    echoed.push(chunk.data);
    if (echo.stdoutOffset < (cuts + 1) << 20 || cuts === 3) continue;
    cuts++;
    link.cut();
    await link.restore();
  }
  expect(Buffer.concat(echoed).equals(bytes)).toBe(true);
  expect(echo.status).toMatchObject({ cause: "EXITED", exitCode: 0 });

  await sandbox.files.write("big", bytes);
  const pieces: Uint8Array[] = [];
  for await (const piece of far.files.download("big")) {
    pieces.push(piece);
    if (pieces.length !== 2) continue;
    link.cut();
    await link.restore();
  }
  expect(Buffer.concat(pieces).equals(bytes)).toBe(true);
});

test("waits for a service that cannot be reached when a download, an archive or a comparison starts", async () => {
  const link = await linked();
  const here = connect();
  await using sandbox = await here.sandboxes.create();
  const { workspaceId } = await here.workspaces.create("patient/1");
  await here.workspaces.create("patient/2");
  await sandbox.files.write("file", "content");
  const berth = connect(link.address, { retryForMs: 60_000 });
  const { files } = await berth.sandboxes.get(sandbox.sandboxId);
  const attempts = vi.spyOn(berth.connection, "stream");
  link.cut();
  const lengthOf = async (stream: ReadableStream<Uint8Array>) => (await new Response(stream).bytes()).length;
  const changes = async () => {
    for await (const _ of berth.workspaces.diff(workspaceId, "patient/2"));
  };
  const reads = [
    lengthOf(files.download("file")),
    lengthOf(files.downloadArchive("file")),
    lengthOf(berth.workspaces.exportArchive(workspaceId)),
    changes(),
  ].map((read) =>
    read.then(
      () => "read",
      (error: Error) => error.message,
    ),
  );
  await Promise.race([eventually(() => attempts.mock.calls.length >= 2 * reads.length), Promise.all(reads)]);
  await link.restore();
  expect(await Promise.all(reads)).toEqual(reads.map(() => "read"));
});

/**
 * A service of another version: real HTTP/2, with its own responses. Returns its address and the headers it received.
 */
async function otherVersion(
  answer: MessageInitShape<typeof GetSandboxResponseSchema>,
): Promise<{ address: string; authorization: (string | null)[] }> {
  const authorization: (string | null)[] = [];
  const handler = connectNodeAdapter({
    routes: (router) =>
      router.rpc(SandboxService.method.getSandbox, (_request, context) => {
        authorization.push(context.requestHeader.get("authorization"));
        return answer;
      }),
  });
  const server = http2.createServer(handler);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, authorization };
}

test("accepts fields and names of a newer service, and reports calls that an older one lacks", async () => {
  const { address, authorization } = await otherVersion({
    sandbox: {
      sandboxId: "newer",
      state: 77 as SandboxState,
      // A field that this client does not know.
      $unknown: [{ no: 1000, wireType: 2, data: new Uint8Array([2, 104, 105]) }],
    },
  });
  const berth = connect(address, { token: "secret", retryForMs: 0 });
  const { info } = await berth.sandboxes.get("newer");
  expect(info).toMatchObject({ sandboxId: "newer", state: "UNKNOWN_77", isolation: "UNSPECIFIED" });
  expect(await failureOf(berth.runs.list())).toMatchObject({ code: "UNIMPLEMENTED", reason: "" });
  await connect(address, { token: "" }).sandboxes.get("newer");
  expect(authorization).toEqual(["Bearer secret", null]);
});

test("an error has its reason, its details, and the time to retry after", async () => {
  const berth = connect();
  const missing = await failureOf(berth.sandboxes.get("missing"));
  expect(missing).toMatchObject({
    name: "BerthError",
    code: "NOT_FOUND",
    reason: "SANDBOX_NOT_FOUND",
    metadata: { sandbox_id: "missing" },
    retryAfterMs: undefined,
  });
  expect(BerthError.is(missing, "SANDBOX_NOT_FOUND", "FILE_NOT_FOUND")).toBe(true);
  expect(BerthError.is(missing, "FILE_NOT_FOUND")).toBe(false);
});

test("a call gets the time it is given", async () => {
  await using sandbox = await connect().sandboxes.create();
  const hasty = connect(service.address, { timeoutMs: 1_000, retryForMs: 0 });
  // On a busy machine the first of these calls may already need more time than it is given.
  const both = hasty.sandboxes.get(sandbox.sandboxId).then((same) => same.run("exec sleep 1000"));
  expect(await failureOf(both)).toMatchObject({ code: "DEADLINE_EXCEEDED" });
});
