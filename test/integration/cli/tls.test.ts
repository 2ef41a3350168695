import { execFileSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import tls from "node:tls";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { ServeProcess } from "../../support/program.ts";
import { runProgramHere } from "../../support/program-here.ts";

let dir = "";
let ca = "";
beforeAll(() => {
  dir = mkdtempSync(path.join(tmpdir(), "berth-tls-"));
  ca = path.join(dir, "ca.pem");
  openssl("req", "-x509", "-nodes", "-subj", "/CN=Berth CA", ...newKey("ca"), "-out", ca);
});
afterAll(() => rmSync(dir, { recursive: true }));

const services: ServeProcess[] = [];
afterEach(() => Promise.all(services.splice(0).map((service) => service.stop())));

function openssl(...args: string[]): void {
  execFileSync("openssl", args, { stdio: "pipe" });
}

function newKey(name: string): string[] {
  const file = path.join(dir, `${name}.key`);
  return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", file];
}

/** Makes a certificate of the authority. Returns its file, and that of its key. */
function sign(name: string, names: string, days: number): { readonly cert: string; readonly key: string } {
  const file = (suffix: string) => path.join(dir, `${name}.${suffix}`);
  openssl("req", "-new", "-nodes", "-subj", `/CN=${name}`, ...newKey(name), "-out", file("csr"));
  writeFileSync(file("ext"), `subjectAltName=${names}\n`);
  const signed = ["-in", file("csr"), "-CA", ca, "-CAkey", path.join(dir, "ca.key"), "-CAcreateserial"];
  openssl("x509", "-req", ...signed, "-days", String(days), "-extfile", file("ext"), "-out", file("pem"));
  return { cert: file("pem"), key: file("key") };
}

/** Starts a service with a certificate of the authority. Returns it and its port. */
async function serve(
  names: string,
  days: number,
  ...more: string[]
): Promise<{ service: ServeProcess; port: string }> {
  const { cert, key } = sign("server", names, days);
  const tls = ["--tls-cert", cert, "--tls-key", key];
  const service = await ServeProcess.start(["--engine", "bubblewrap", ...tls, ...more]);
  services.push(service);
  return { service, port: service.address.split(":").at(-1) ?? "" };
}

async function failure(service: ServeProcess, ...args: string[]): Promise<string> {
  const { exitCode, stderr } = await service.runHere(["ls", ...args]);
  expect(exitCode).toBe(1);
  return stderr;
}

test("a custom authority is named by a flag or a variable", async () => {
  const { service, port } = await serve("DNS:localhost,IP:127.0.0.1", 1);
  const address = `https://localhost:${port}`;
  expect(await failure(service, "--address", address)).toBe(
    `berth: the certificate of ${address} comes from an authority that is not trusted here\n` +
      "Name a file with the authority's certificate: --tls-ca FILE, or BERTH_TLS_CA=FILE.\n",
  );
  for (const [args, env] of [
    [["ls", "--address", address, "--tls-ca", ca], {}],
    [["--tls-ca", ca, "--address", address, "ls"], {}],
    [["ls", "--address", address], { BERTH_TLS_CA: ca }],
  ] as const)
    expect(await service.run(args, { env })).toMatchObject({ exitCode: 0, stderr: "" });

  // A TLS service called without TLS.
  for (const plain of [`localhost:${port}`, `http://localhost:${port}`])
    expect(await failure(service, "--address", plain)).toBe(
      `berth: what answers at ${plain} speaks TLS\nCall it with TLS: --address https://localhost:${port}\n`,
    );

  const key = path.join(dir, "ca.key");
  for (const [args, env, problem] of [
    [["--tls-ca", key], {}, `--tls-ca: ${key} holds no certificate; name a file in PEM`],
    [[], { BERTH_TLS_CA: "/no/ca.pem" }, "BERTH_TLS_CA: /no/ca.pem cannot be read (ENOENT)"],
  ] as const)
    expect(await service.runHere(["ls", ...args], { env })).toMatchObject({
      exitCode: 2,
      stderr: `berth: ${problem}\n`,
    });
});

/** A link to a port. Returns its address, and what comes over it from clients. */
async function tapTo(port: string): Promise<{ readonly address: string; readonly seen: Buffer[] }> {
  const seen: Buffer[] = [];
  const tap = net.createServer((client) => {
    const server = net.connect(Number(port), "127.0.0.1");
    client.on("data", (data) => seen.push(data));
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      from.pipe(to);
      from.on("error", () => to.destroy());
    }
  });
  await new Promise<void>((listening) => tap.listen(0, "127.0.0.1", listening));
  onTestFinished(() => void tap.close());
  // The system connects this one to itself. The program takes it for an address of the network.
  return { address: `0.0.0.0:${(tap.address() as net.AddressInfo).port}`, seen };
}

test.each(["", "http://"])(
  "no token goes in clear to a service with TLS that is called by %sHOST:PORT",
  async (scheme) => {
    const { service, port } = await serve("DNS:localhost", 1);
    const { address, seen } = await tapTo(port);
    const env = { BERTH_TOKEN: "berth_secret" };
    expect(await service.runHere(["ls", "--address", `${scheme}${address}`], { env })).toMatchObject({
      exitCode: 1,
      stderr: `berth: what answers at ${scheme}${address} speaks TLS\nCall it with TLS: --address https://${address}\n`,
    });
    // HPACK may compress the token, so that nothing of a call may be seen.
    expect(Buffer.concat(seen).toString("latin1")).toMatch(/^\x16\x03/);
    expect(Buffer.concat(seen).toString("latin1")).not.toContain("PRI * HTTP/2");
  },
);

test("no token goes in clear to a service with TLS that refuses to talk to the program", async () => {
  // Without a certificate, it ends each handshake with an alert.
  const server = tls.createServer();
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  onTestFinished(() => void server.close());
  const { address, seen } = await tapTo(String((server.address() as net.AddressInfo).port));
  const { stderr } = await runProgramHere(["ls", "--address", address], {
    env: { BERTH_TOKEN: "berth_secret" },
  });
  expect(stderr).toContain(`what answers at ${address} speaks TLS`);
  expect(Buffer.concat(seen).toString("latin1")).not.toContain("PRI * HTTP/2");
});

test("a token goes to a service without TLS at an address of the network", async () => {
  const service = await ServeProcess.start(["--engine", "bubblewrap", "--allow-host", "0.0.0.0"]);
  services.push(service);
  const { address, seen } = await tapTo(service.address.split(":").at(-1) ?? "");
  const env = { BERTH_TOKEN: "berth_secret" };
  expect(await service.runHere(["ls", "--address", address], { env })).toMatchObject({
    exitCode: 0,
    stderr: "",
  });
  expect(Buffer.concat(seen).toString("latin1")).toContain("PRI * HTTP/2");
});

test("authorities for a service that is called without TLS are refused, and not ignored", async () => {
  mkdirSync(path.join(dir, "berth"), { recursive: true });
  const address = "berth.invalid:7070";
  writeFileSync(path.join(dir, "berth/profiles.json"), JSON.stringify({ plain: { address, "tls-ca": ca } }));
  for (const [args, env, source, plain] of [
    [["--address", address, "--tls-ca", ca], {}, "--tls-ca", address],
    [["--address", `http://${address}`, "--tls-ca", ca], {}, "--tls-ca", `http://${address}`],
    [["--address", "127.0.0.1:1", "--tls-ca", ca], {}, "--tls-ca", "127.0.0.1:1"],
    [["--address", address], { BERTH_TLS_CA: ca }, "BERTH_TLS_CA", address],
    [["--profile", "plain"], { XDG_CONFIG_HOME: dir }, "tls-ca of the profile", address],
  ] as const)
    expect(await runProgramHere(["ls", ...args], { env })).toMatchObject({
      exitCode: 2,
      stderr: `berth: ${source}: ${plain} is called without TLS, and so without a certificate; write https://HOST:PORT\n`,
    });
  // The variable may be there for other addresses.
  for (const here of ["127.0.0.1:1", "http://localhost:1", "unix:/no/socket"]) {
    const { stderr } = await runProgramHere(["ls", "--address", here], { env: { BERTH_TLS_CA: ca } });
    expect(stderr).toContain(`berth: no service answers at ${here}\n`);
  }
});

test("a certificate for another name is reported with the names it has", async () => {
  const { service, port } = await serve("DNS:berth.example.com,IP:10.1.2.3", 1);
  const address = `https://localhost:${port}`;
  expect(await failure(service, "--address", address, "--tls-ca", ca)).toBe(
    `berth: the certificate of ${address} is for another name: berth.example.com, 10.1.2.3\n` +
      "Call the service by a name that its certificate has: --address https://NAME:PORT.\n",
  );
});

test("an expired certificate", async () => {
  const { service, port } = await serve("DNS:localhost", -1);
  const address = `https://localhost:${port}`;
  expect(await failure(service, "--address", address, "--tls-ca", ca)).toBe(
    `berth: the certificate of ${address} has expired\n` +
      "Renew it in the file of the service's --tls-cert. The service needs no restart.\n",
  );
});

test("a service with an expired certificate says so, and so does berth doctor", async () => {
  const { service, port } = await serve("DNS:localhost", -1);
  const page = (name: string) =>
    execFileSync("curl", ["-ksS", `https://localhost:${port}${name}`], { encoding: "utf8" });
  expect(page("/readyz")).toBe(
    "ok\nThe TLS certificate has expired, and clients refuse it: replace the file of --tls-cert and that of its key.\n",
  );
  const { cert, key } = { cert: path.join(dir, "server.pem"), key: path.join(dir, "server.key") };
  const { validToDate } = new X509Certificate(readFileSync(cert));
  expect(page("/metrics")).toContain(`\nberth_tls_expire_time_seconds ${validToDate.getTime() / 1000}\n`);
  const doctor = await service.runHere(["doctor", "--json", "--tls-cert", cert, "--tls-key", key]);
  const { findings } = JSON.parse(doctor.stdout.toString()) as { findings: { subject: string }[] };
  expect(doctor.exitCode).toBe(1);
  expect(findings).toContainEqual({
    subject: "tls",
    status: "missing",
    found: `the certificate has expired: it was valid until ${validToDate.toISOString()}`,
    fix: "Renew it in the file of --tls-cert, if the clock is right. A running service needs no restart.",
  });
  // A new certificate in its place ends the warning.
  sign("server", "DNS:localhost", 1);
  await expect.poll(() => page("/readyz")).toBe("ok\n");
  await service.stop();
  const { stderr } = await service.end;
  expect(stderr).toContain("clients refuse the TLS certificate");
});

test("berth doctor says that authorities of clients have expired", async () => {
  const { cert, key } = sign("server", "DNS:localhost", 1);
  const old = sign("old", "DNS:old", -1).cert;
  const [both, pem] = [path.join(dir, "authorities.pem"), readFileSync(old, "utf8")];
  writeFileSync(both, pem + readFileSync(ca, "utf8"));
  const found = async (clientCa: string) => {
    const tls = ["--tls-cert", cert, "--tls-key", key, "--tls-client-ca", clientCa];
    const { stdout } = await runProgramHere(["doctor", "--json", "--engine", "bubblewrap", ...tls]);
    const { findings } = JSON.parse(stdout.toString()) as { findings: { subject: string }[] };
    return findings.find(({ subject }) => subject === "client authorities");
  };
  const until = new X509Certificate(pem).validToDate.toISOString();
  const expired = {
    subject: "client authorities",
    found: `CN=old: the certificate has expired: it was valid until ${until}`,
    fix: "Replace it in the file of --tls-client-ca: certificates that it signed are refused. A running service needs no restart.",
  };
  expect(await found(old)).toEqual({ ...expired, status: "missing" });
  expect(await found(both)).toEqual({ ...expired, status: "limited" });
  expect(await found(ca)).toMatchObject({ status: "ok" });
});

test("a service says that an authority of clients has expired", async () => {
  const pem = readFileSync(sign("old", "DNS:old", -1).cert, "utf8");
  const { cert, key } = sign("client", "DNS:client", 1);
  const authorities = path.join(dir, "authorities.pem");
  writeFileSync(authorities, pem + readFileSync(ca, "utf8"));
  const { service, port } = await serve("DNS:localhost", 1, "--tls-client-ca", authorities);
  const ready = () =>
    execFileSync("curl", ["-ksS", "--cert", cert, "--key", key, `https://localhost:${port}/readyz`], {
      encoding: "utf8",
    });
  const problem = `CN=old: the certificate has expired: it was valid until ${new X509Certificate(pem).validToDate.toISOString()}`;
  expect(ready()).toBe(
    `ok\nAn authority of client certificates is not trusted (${problem}): replace it in the file of --tls-client-ca.\n`,
  );
  writeFileSync(authorities, readFileSync(ca));
  await expect.poll(ready).toBe("ok\n");
  await service.stop();
  expect((await service.end).stderr).toContain(problem);
});

test("a service without TLS, called with TLS", async () => {
  const service = await ServeProcess.start(["--engine", "bubblewrap"]);
  services.push(service);
  const address = `https://${service.address}`;
  expect(await failure(service, "--address", address)).toBe(
    `berth: what answers at ${address} does not speak TLS\nConnect without TLS: --address http://${service.address}\n`,
  );
});

test("who is refused for want of a good certificate is in the log, and the program says what is missing", async () => {
  const { service, port } = await serve("DNS:localhost", 1, "--tls-client-ca", ca, "--log-level", "info");
  const address = `https://localhost:${port}`;
  expect(await failure(service, "--address", address, "--tls-ca", ca)).toBe(
    `berth: the service at ${address} requires a certificate of its clients\n` +
      "Name files with one and its key: --client-cert FILE --client-key FILE, or BERTH_CLIENT_CERT and BERTH_CLIENT_KEY.\n",
  );
  const [cert, key] = [path.join(dir, "other.pem"), path.join(dir, "other.key")];
  openssl("req", "-x509", "-nodes", "-subj", "/CN=Another CA", ...newKey("other"), "-out", cert);
  const refused = (...args: string[]) =>
    expect(() =>
      execFileSync("curl", ["-s", "-m", "10", "--cacert", ca, ...args], { stdio: "pipe" }),
    ).toThrow();
  refused("--cert", cert, "--key", key, `${address}/healthz`);
  refused(`http://localhost:${port}/healthz`);
  const { stderr } = await service.stop();
  const problems = stderr
    .split("\n")
    .filter((line) => line.includes("a TLS connection was refused"))
    .map((line) => {
      const { peer, problem } = JSON.parse(line);
      return { peer, problem };
    });
  const peer = expect.stringMatching(/^(127\.0\.0\.1|::1)$/);
  expect(problems).toEqual([
    { peer, problem: "ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE" },
    { peer, problem: "DEPTH_ZERO_SELF_SIGNED_CERT" },
    { peer, problem: "ERR_SSL_HTTP_REQUEST" },
  ]);
});

test("a certificate is presented to a service that requires one", async () => {
  const { service, port } = await serve("DNS:localhost", 1, "--tls-client-ca", ca);
  const address = `https://localhost:${port}`;
  const at = ["--address", address, "--tls-ca", ca];
  const { cert, key } = sign("client", "DNS:client.example", 1);
  const [both, encrypted] = [path.join(dir, "both.pem"), path.join(dir, "encrypted.key")];
  writeFileSync(both, readFileSync(key, "utf8") + readFileSync(cert, "utf8"));
  openssl("pkey", "-in", key, "-aes128", "-passout", "pass:x", "-out", encrypted);
  mkdirSync(path.join(dir, "berth"), { recursive: true });
  const profile = {
    address,
    "tls-ca": "../ca.pem",
    "client-cert": "../client.pem",
    "client-key": "../client.key",
  };
  const profiles = { work: profile, half: { ...profile, "client-key": undefined } };
  writeFileSync(path.join(dir, "berth/profiles.json"), JSON.stringify(profiles));
  for (const [args, env] of [
    [["ls", ...at, "--client-cert", cert, "--client-key", key], {}],
    [["--client-cert", both, `--client-key=${both}`, "ls", ...at], {}],
    [["ls", ...at], { BERTH_CLIENT_CERT: cert, BERTH_CLIENT_KEY: key }],
    [["ls", ...at, "--client-cert", cert], { BERTH_CLIENT_CERT: "/no", BERTH_CLIENT_KEY: key }],
    [["ls", "--profile", "work"], { XDG_CONFIG_HOME: dir }],
  ] as const)
    expect(await service.runHere(args, { env })).toMatchObject({ exitCode: 0, stderr: "" });

  const other = newKey("stranger").at(-1) ?? "";
  const stranger = path.join(dir, "stranger.pem");
  const [weak, weakKey] = [path.join(dir, "weak.pem"), path.join(dir, "weak.key")];
  const short = ["-newkey", "rsa:1024", "-keyout", weakKey];
  openssl("req", "-x509", "-nodes", "-subj", "/CN=weak", ...short, "-out", weak);
  openssl("req", "-x509", "-nodes", "-subj", "/CN=stranger", ...newKey("stranger"), "-out", stranger);
  expect(await failure(service, ...at, "--client-cert", stranger, "--client-key", other)).toBe(
    `berth: the connection to ${address} broke\nSee the service's log.\n` +
      "A service with --tls-client-ca breaks it if it does not trust the certificate of --client-cert.\n",
  );
  for (const [args, env, problem] of [
    [["--client-cert", cert], {}, "--client-cert: it requires --client-key as well"],
    [[], { BERTH_CLIENT_KEY: key }, "BERTH_CLIENT_KEY: it requires --client-cert as well"],
    [["--client-cert", "/no.pem", "--client-key", key], {}, "--client-cert: /no.pem cannot be read (ENOENT)"],
    [
      ["--client-cert", cert],
      { BERTH_CLIENT_KEY: "/no.key" },
      "BERTH_CLIENT_KEY: /no.key cannot be read (ENOENT)",
    ],
    [["--client-cert", key, "--client-key", key], {}, `--client-cert: ${key} holds no certificate in PEM`],
    [["--client-cert", cert, "--client-key", cert], {}, `--client-key: ${cert} holds no private key in PEM`],
    [
      ["--client-cert", cert, "--client-key", encrypted],
      {},
      `--client-key: ${encrypted} is encrypted; give a key without a passphrase`,
    ],
    [
      ["--client-cert", cert, "--client-key", other],
      {},
      `--client-key: ${other} holds another key than that of the certificate`,
    ],
    [
      ["--client-cert", weak, "--client-key", weakKey],
      {},
      `--client-cert: TLS cannot use ${weak} (its key is too short; an RSA key needs 2048 bits); make another key, and a certificate for it`,
    ],
    ...[`localhost:${port}`, `http://localhost:${port}`, "unix:/run/berth.sock"].map(
      (plain) =>
        [
          ["--address", plain, "--client-cert", cert, "--client-key", key],
          {},
          `--client-cert: ${plain} is called without TLS, and so without a certificate; write https://HOST:PORT`,
        ] as const,
    ),
    [
      ["--profile", "half"],
      { XDG_CONFIG_HOME: dir, BERTH_ADDRESS: "" },
      `profile "half" in ${dir}/berth/profiles.json: client-cert and client-key belong together; it has only one of them`,
    ],
  ] as const)
    expect(
      await service.runHere(["ls", ...(args.some((arg) => /address|profile/.test(arg)) ? [] : at), ...args], {
        env,
      }),
    ).toMatchObject({ exitCode: 2, stderr: `berth: ${problem}\n` });
});
