import { once } from "node:events";
import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeCertificate } from "../../support/certificate.ts";
import { DESKTOP_IMAGE, MISSING_IMAGE, TEST_IMAGE } from "../../support/images.ts";
import { endOf, runProgram, ServeProcess, startProgram } from "../../support/program.ts";
import { runProgramHere } from "../../support/program-here.ts";

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), "berth-doctor-"));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

interface Report {
  readonly ok: boolean;
  readonly findings: readonly { subject: string; status: string; found: string; fix?: string }[];
}

async function doctor(args: string[] = [], options: { readonly env?: Record<string, string> } = {}) {
  const env = {
    BERTH_LISTEN: "127.0.0.1:0",
    BERTH_DEFAULT_IMAGE: TEST_IMAGE,
    // If there is another engine to fall back to, little is missing.
    BERTH_ENGINE: "docker",
    ...options.env,
  };
  const { exitCode, stdout, stderr } = await runProgramHere(["doctor", "--json", ...args], { env });
  expect(stderr).toBe("");
  const { ok, findings }: Report = JSON.parse(stdout.toString());
  return { exitCode, ok, of: (subject: string) => findings.find((finding) => finding.subject === subject) };
}

test("with everything in place it ends with 0 and reports what it found", async () => {
  const { exitCode, ok, of } = await doctor();
  expect({ exitCode, ok }).toEqual({ exitCode: 0, ok: true });
  expect(of("docker daemon")).toEqual({
    subject: "docker daemon",
    status: "ok",
    found: expect.stringMatching(/^Docker \d+\.\S+ at \/var\/run\/docker\.sock$/),
  });
  expect(of("isolation")?.found).toBe("container (shared kernel, for semi-trusted code)");
  expect(of("limits")?.found).toMatch(/^memory, cpu and processes, by cgroup v[12] \(\w+\)$/);
  expect(of("storage driver")?.status).toBe("ok");
  expect(of("default image")).toMatchObject({ status: "ok", found: `${TEST_IMAGE} is there` });
  expect(of("data directory")?.status).toBe("ok");
  expect(of("node")?.found).toBe(process.version);
});

test("an unavailable image for desktops and browsers is not a failure", async () => {
  expect((await doctor(["--desktop-image", DESKTOP_IMAGE])).of("desktop image")).toEqual({
    subject: "desktop image",
    status: "ok",
    found: `${DESKTOP_IMAGE} is there`,
  });
  const { ok, of } = await doctor(["--desktop-image", MISSING_IMAGE]);
  expect(ok).toBe(true);
  expect(of("desktop image")).toMatchObject({
    status: "limited",
    found: expect.stringContaining(`no vm and browser sessions: ${MISSING_IMAGE} is not there`),
    fix: expect.stringContaining("scripts/base-image.sh --desktop"),
  });
});

test("prints a table for people, with a summary in the last line", async () => {
  const { exitCode, stdout } = await runProgram([
    "doctor",
    "--listen",
    "127.0.0.1:0",
    "--default-image",
    TEST_IMAGE,
  ]);
  expect(exitCode).toBe(0);
  expect(stdout.toString()).toMatch(/^STATUS +WHAT +FOUND\nok +node +v\d+/);
  expect(stdout.toString()).toMatch(/\nA service can run here: berth serve\n$/);
});

test("quotas that the file system would not enforce are reported, with what they need", async () => {
  expect((await doctor()).of("--shared-quota")).toBeUndefined();
  // Only file systems on disks have project quotas.
  const roots = ["--workspaces-root", "/proc/berth/workspaces", "--shared-root", "/proc/berth/shared"];
  const { ok, of } = await doctor([...roots, "--shared-quota", "1GiB", "--workspace-quota", "2GiB"]);
  expect(ok).toBe(true);
  for (const [option, root] of [
    ["--shared-quota", "/proc/berth/shared"],
    ["--workspace-quota", "/proc/berth/workspaces"],
  ] as const) {
    expect(of(option)).toEqual({
      subject: option,
      status: "limited",
      found: expect.stringMatching(/^it would be watched, not enforced: /),
      fix: expect.stringContaining(`Put ${root} on ext4 or xfs mounted with prjquota`),
    });
  }
});

describe.concurrent("a problem is reported with its fix, and ends with 1", () => {
  test("an image that is neither present nor available", async () => {
    const { exitCode, ok, of } = await doctor(["--default-image", MISSING_IMAGE]);
    expect({ exitCode, ok }).toEqual({ exitCode: 1, ok: false });
    expect(of("default image")?.found).toContain(`${MISSING_IMAGE} is not there, and its registry`);
    expect(of("default image")?.fix).toContain(`docker pull ${MISSING_IMAGE}`);
  });

  test("a daemon that is not running", async () => {
    const { exitCode, of } = await doctor(["--docker-host", "unix:///no/docker.sock"]);
    expect(exitCode).toBe(1);
    expect(of("docker daemon")).toMatchObject({
      status: "missing",
      found: "no Docker daemon answers at /no/docker.sock",
      // The daemon at the default place does not help.
      fix: "Correct --docker-host or DOCKER_HOST, or start the daemon that should listen there",
    });
  });

  test("a daemon that answers nonsense, or never", async () => {
    const sockets = new Set<net.Socket>();
    const silent = net.createServer((socket) => sockets.add(socket));
    await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
    try {
      const { port } = silent.address() as net.AddressInfo;
      const { exitCode, of } = await doctor(["--docker-host", `tcp://127.0.0.1:${port}`]);
      expect(exitCode).toBe(1);
      expect(of("docker daemon")?.status).toBe("missing");
    } finally {
      for (const socket of sockets) socket.destroy();
      silent.close();
    }
  });

  test("a key that belongs to another certificate", async () => {
    const [own, other] = await Promise.all(["own", "other"].map((name) => makeCertificate(directory, name)));
    const tls = (key = "") => ["--tls-cert", own?.cert ?? "", "--tls-key", key];
    expect((await doctor(tls(own?.key))).of("tls")?.status).toBe("ok");
    const { exitCode, of } = await doctor(tls(other?.key));
    expect(exitCode).toBe(1);
    expect(of("tls")).toMatchObject({
      status: "missing",
      found: `--tls-key: ${other?.key} does not belong to the certificate in --tls-cert: ${own?.cert}. Replace whichever is out of date.`,
      fix: expect.stringContaining("--tls-key"),
    });
  });

  test("credentials that cannot be used, or whose secret is missing", async () => {
    const [credentials, secrets] = ["credentials.json", "secrets.yaml"].map((name) =>
      path.join(directory, name),
    );
    if (!credentials || !secrets) throw new Error("no paths");
    await writeFile(secrets, "secrets: {key: hunter22}", { mode: 0o600 });
    const found = async (content: string) => {
      await writeFile(credentials, content);
      const { of } = await doctor(["--egress-credentials", credentials, "--secrets", secrets]);
      return of("egress-credentials");
    };
    const named = (name: string) => JSON.stringify({ "a.example": { header: "X-Key", secret_name: name } });
    expect(await found(named("key"))).toMatchObject({ status: "ok" });
    for (const content of ["nonsense", named("other")]) {
      expect(await found(content)).toMatchObject({
        status: "missing",
        found: expect.stringContaining(credentials),
        fix: `Correct ${credentials}, or name another with --egress-credentials`,
      });
    }
  });

  test("a data directory that cannot be used", async () => {
    const { exitCode, of } = await doctor(["--data-dir", "/etc/hostname/berth"]);
    expect(exitCode).toBe(1);
    expect(of("data directory")).toMatchObject({
      status: "missing",
      found: "/etc/hostname is not a directory",
      fix: expect.stringContaining("--data-dir DIR"),
    });
  });

  test("an address that another program uses", async () => {
    const server = net.createServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    try {
      const { port } = server.address() as net.AddressInfo;
      const { exitCode, of } = await doctor(["--listen", `127.0.0.1:${port}`]);
      expect(exitCode).toBe(1);
      expect(of("address")).toMatchObject({
        status: "missing",
        found: `another program uses 127.0.0.1:${port}`,
      });
    } finally {
      server.close();
    }
  });
});

test("a runtime that Docker does not know is a limitation, not a failure", async () => {
  const { exitCode, of } = await doctor(["--allow-runtime", "absent=user-kernel"]);
  expect(exitCode).toBe(0);
  expect(of("runtime absent")).toMatchObject({
    status: "limited",
    fix: expect.stringContaining('"runtimes": {"absent"'),
  });
});

describe("next to a running service", () => {
  let service: ServeProcess;
  beforeAll(async () => {
    service = await ServeProcess.start();
  });
  afterAll(() => service.stop());

  test("its address is not a problem", async () => {
    const { exitCode, of } = await doctor(["--listen", service.address]);
    expect(exitCode).toBe(0);
    expect(of("address")?.found).toMatch(/^a service runs on \S+ already, engine docker \d/);
  });

  test("its data directory is a problem for another service, and not for itself", async () => {
    const dataDir = ["--data-dir", service.dataDir];
    const another = await doctor(dataDir);
    expect(another.exitCode).toBe(1);
    expect(another.of("--data-dir")).toEqual({
      subject: "--data-dir",
      status: "missing",
      found: `${service.dataDir} is in use by another service`,
      fix: "Stop that one, or give this one a directory of its own.",
    });
    const itself = await doctor([...dataDir, "--listen", service.address]);
    expect(itself.exitCode).toBe(0);
    expect(itself.of("--data-dir")).toBeUndefined();
  });
});

test("the path of a socket that a killed service left is free; one that cannot be used says why", async () => {
  const socket = path.join(directory, "left.sock");
  const service = await ServeProcess.start(["--engine", "bubblewrap"], { BERTH_LISTEN: `unix:${socket}` });
  const addressAt = async (file: string) => (await doctor(["--listen", `unix:${file}`])).of("address");
  try {
    expect(await addressAt(socket)).toMatchObject({
      status: "ok",
      found: expect.stringContaining("a service runs on"),
    });
  } finally {
    await service.stop("SIGKILL");
  }
  expect(await addressAt(socket)).toMatchObject({
    status: "ok",
    found: `unix:${socket} is free: nobody listens on the socket there, and a service replaces it`,
  });
  await writeFile(path.join(directory, "file"), "");
  expect(await addressAt(path.join(directory, "file"))).toMatchObject({
    status: "missing",
    found: `${directory}/file exists and is not a socket`,
  });
  expect(await addressAt(path.join(directory, "none/b.sock"))).toMatchObject({
    status: "missing",
    found: `${directory}/none, where the socket should be, is not a directory`,
    fix: `mkdir -p -m 700 ${directory}/none`,
  });
});

test("the key of a database is missing or broken", async () => {
  const serve = await ServeProcess.start(["--engine", "bubblewrap"]);
  await serve.stop();
  const { dataDir } = serve;
  const key = path.join(dataDir, "key");
  const args = ["--engine", "bubblewrap", "--data-dir", dataDir];
  expect((await doctor(args)).exitCode).toBe(0);
  await writeFile(key, "short");
  const broken = await doctor(args);
  expect(broken.exitCode).toBe(1);
  expect(broken.of("database")).toMatchObject({
    status: "missing",
    found: expect.stringContaining(`${key} holds no key. Restore it from a backup`),
  });
  await rm(key);
  const missing = await doctor(args);
  expect(missing.exitCode).toBe(1);
  expect(missing.of("database")).toMatchObject({
    status: "missing",
    found: expect.stringContaining(`${key} is missing, and the database cannot be read without it.`),
  });
});

test("a data directory that is, or is below, a link to nowhere cannot be made", async () => {
  const link = path.join(directory, "nowhere");
  await symlink(path.join(directory, "gone"), link);
  for (const dataDir of [link, path.join(link, "data")]) {
    const { exitCode, of } = await doctor(["--engine", "bubblewrap", "--data-dir", dataDir]);
    expect(exitCode).toBe(1);
    expect(of("data directory")).toMatchObject({
      status: "missing",
      found: `${link} is a link to a place that does not exist`,
      fix: expect.stringContaining(`ls -l ${link}`),
    });
  }
});

test("a running service with TLS is recognized, with and without a certificate of the client", async () => {
  const [own, client] = await Promise.all([
    makeCertificate(directory, "service", "DNS:berth.example"),
    makeCertificate(directory, "client"),
  ]);
  const tls = ["--tls-cert", own.cert, "--tls-key", own.key];
  const open = await ServeProcess.start(["--engine", "bubblewrap", ...tls]);
  const closed = await ServeProcess.start(["--engine", "bubblewrap", ...tls, "--tls-client-ca", client.cert]);
  try {
    const addressOf = async ({ address }: ServeProcess, ...args: string[]) =>
      (await doctor(["--listen", address, ...args])).of("address");
    const answers = {
      status: "ok",
      found: expect.stringMatching(/ runs on \S+ already, engine bubblewrap /),
    };
    expect(await addressOf(open)).toMatchObject(answers);
    expect(await addressOf(open, ...tls)).toMatchObject(answers);
    const presented = { BERTH_CLIENT_CERT: client.cert, BERTH_CLIENT_KEY: client.key };
    const flags = ["--client-cert", client.cert, "--client-key", client.key];
    expect(await addressOf(closed, ...flags)).toMatchObject(answers);
    const { of } = await doctor(["--listen", closed.address], { env: presented });
    expect(of("address")).toMatchObject(answers);
    // Without a certificate to present, the options of the service show that it is the one meant.
    expect(await addressOf(closed, ...tls)).toMatchObject({
      status: "ok",
      found: `a service runs on ${closed.address} already, with this --tls-cert`,
    });
    expect(await addressOf(closed)).toMatchObject({
      status: "missing",
      found: `a program that speaks TLS uses ${closed.address}, and does not answer as Berth`,
      fix: expect.stringContaining("berth doctor --client-cert FILE --client-key FILE"),
    });
  } finally {
    await Promise.all([open.stop(), closed.stop()]);
  }
});

test("Ctrl-C ends the wait for a daemon that does not answer", async () => {
  const socket = path.join(directory, "hung.sock");
  const hung = net.createServer(() => {}).listen(socket);
  await once(hung, "listening");
  const asked = once(hung, "connection");
  // Its own timeouts never pass, so that only the signal ends the wait.
  const patient =
    "const set = setTimeout; globalThis.setTimeout = (f, ms, ...a) => set(f, ms > 5e3 ? 2e9 : ms, ...a)";
  const NODE_OPTIONS = `--import ${JSON.stringify(`data:text/javascript,${encodeURIComponent(patient)}`)}`;
  const args = ["doctor", "--engine", "docker", "--docker-host", `unix://${socket}`];
  const child = startProgram([...args, "--listen", "127.0.0.1:0"], { env: { NODE_OPTIONS } });
  const end = endOf(child);
  try {
    await Promise.race([asked, end]);
    child.kill("SIGINT");
    const late = sleep(30_000, { exitCode: "still runs" }, { ref: false });
    expect(await Promise.race([end, late])).toMatchObject({
      exitCode: 130,
      stderr: "berth: stopped by SIGINT\n",
    });
  } finally {
    child.kill("SIGKILL");
    await end;
    hung.close();
  }
});

test("a bad option is a usage error", async () => {
  const { exitCode, stderr } = await runProgramHere(["doctor", "--default-memory", "1"]);
  expect(exitCode).toBe(2);
  expect(stderr).toContain("--default-memory:");
});

test("--help lists its own options and those of the service it checks", async () => {
  const { stdout } = await runProgram(["doctor", "--help"]);
  const options = [...stdout.toString().matchAll(/^ +(?:-\w, )?(--[\w-]+)/gm)].map(([, name]) => name);
  expect(options.slice(0, 3)).toEqual(["--json", "--config", "--help"]);
  expect(options).toEqual(
    expect.arrayContaining(["--listen", "--secrets", "--egress-credentials", "--audit-log"]),
  );
  expect(options).not.toContain("--max-sandboxes");
  expect(stdout.toString()).toContain("berth serve --help");
});
