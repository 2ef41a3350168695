import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { makeCertificate } from "../../support/certificate.ts";
import { containersOf, removeContainers } from "../../support/docker.ts";
import { endOf, MAIN, runProgram, ServeProcess, startProgram } from "../../support/program.ts";
import { newDataDir } from "../../support/settings.ts";
import { TmuxTerminal } from "../../support/tmux.ts";
import { TokensFile } from "../../support/tokens.ts";

const dir = mkdtempSync(path.join(tmpdir(), "berth-serve-"));
afterAll(() => rmSync(dir, { recursive: true }));

/** Reduces a pipe to a page: 1031 is F_SETPIPE_SZ. */
const SHRINK = "import fcntl, os, sys; fcntl.fcntl(os.open(sys.argv[1], os.O_RDWR), 1031, 4096)";

const services: ServeProcess[] = [];
async function serve(args: string[] = [], env: Record<string, string> = {}): Promise<ServeProcess> {
  const service = await ServeProcess.start(args, env);
  services.push(service);
  return service;
}
afterEach(async () => {
  for (const service of services.splice(0)) {
    await service.dispose();
    await removeContainers(service.instance);
  }
});

test("one line says where it listens, on which engine, and how isolated; nothing but JSON is logged", async () => {
  const service = await serve([], { BERTH_LOG_LEVEL: "debug" });
  expect(service.startLine).toMatch(
    /^berth listens on 127\.0\.0\.1:\d+; engine docker \S+, isolation: container \(shared kernel, for semi-trusted code\)$/,
  );
  const { exitCode, stdout, stderr } = await service.stop();
  expect(exitCode).toBe(0);
  expect(stdout.toString()).toBe(`${service.startLine}\n`);
  const messages = stderr
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line).msg);
  expect(messages).toContain("listening");
  expect(messages.at(-1)).toBe("stopped");
});

describe("its end", () => {
  test.each(["SIGTERM", "SIGINT"] as const)("%s deletes the sandboxes and ends with 0", async (signal) => {
    const service = await serve();
    await service.runHere(["create"]);
    expect(await containersOf(service.instance)).toHaveLength(1);
    expect((await service.stop(signal)).exitCode).toBe(0);
    expect(await containersOf(service.instance)).toEqual([]);
  });

  test("--leave-sandboxes leaves them", async () => {
    const service = await serve(["--leave-sandboxes"]);
    await service.runHere(["create"]);
    expect((await service.stop()).exitCode).toBe(0);
    expect(await containersOf(service.instance)).toHaveLength(1);
  });

  test("SIGUSR1 opens no inspector", async () => {
    const args = ["--engine", "bubblewrap", "--listen", "127.0.0.1:0", "--data-dir", `${dir}/usr1`];
    const child = startProgram(["serve", ...args]);
    let written = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (written += chunk));
    try {
      await expect.poll(() => written).toContain("berth listens on");
      child.kill("SIGUSR1");
      await expect.poll(() => written).toMatch(/SIGUSR1|debugger|inspector/i);
      expect(written).toContain("SIGUSR1 is ignored");
      expect(written).not.toMatch(/Debugger listening|Starting inspector/);
      child.kill("SIGTERM");
      await expect.poll(() => child.exitCode).toBe(0);
    } finally {
      child.kill("SIGKILL");
    }
  });

  test("a second signal ends it at once and says so", async () => {
    const service = await serve(["--stop-timeout", "10m"]);
    await service.runHere(["create", "--id", "busy"]);
    const child = service.begin(["exec", "busy", "--", "sh", "-c", "echo up; sleep 600"], { stdin: "open" });
    const busy = endOf(child);
    await once(child.stdout, "data");
    service.signal("SIGTERM");
    // The same signal twice within a moment is one keystroke, forwarded by a parent.
    service.signal("SIGTERM");
    const readyz = `http://${service.address}/readyz`;
    const isReady = () =>
      fetch(readyz).then(
        ({ ok }) => ok,
        () => false,
      );
    await expect.poll(isReady).toBe(false);
    // It has taken the first one, and this one comes later than the moment.
    await sleep(300);
    service.signal("SIGTERM");
    const { exitCode, stderr } = await service.end;
    expect(exitCode).toBe(143);
    expect(stderr).toContain("berth: SIGTERM again: stopped at once.");
    expect((await busy).exitCode).toBe(125);
  });
});

describe("its options", () => {
  test("are read from the file, the environment and the flags", async () => {
    const config = path.join(dir, "berth.json");
    writeFileSync(
      config,
      JSON.stringify({ "max-sandboxes": 7, "idle-timeout": "7m", "cleanup-interval": "7s" }),
    );
    const service = await serve(["--config", config, "--cleanup-interval", "9s"], {
      BERTH_IDLE_TIMEOUT: "8m",
    });
    const { stdout } = await service.run(["stats", "--json"]);
    expect(JSON.parse(stdout.toString())).toMatchObject({
      maxSandboxes: 7,
      idleTimeout: "480s",
      cleanupInterval: "9s",
    });
  });
});

describe("its log", () => {
  test("names a variable that seems to be misspelled", async () => {
    const service = await serve(["--engine", "bubblewrap"], { BERTH_IDLE_TIMEOT: "1h" });
    const { stderr } = await service.stop();
    const lines = stderr
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines.filter(({ variable }) => variable)).toMatchObject([
      { variable: "BERTH_IDLE_TIMEOT", meant: "BERTH_IDLE_TIMEOUT" },
    ]);
  });

  test("is JSON without a terminal, and text on request", async () => {
    const [json, text] = await Promise.all(
      ["auto", "text"].map((BERTH_LOG_FORMAT) =>
        serve(["--engine", "bubblewrap"], { BERTH_LOG_FORMAT, BERTH_LOG_LEVEL: "info" }).then((service) =>
          service.stop(),
        ),
      ),
    );
    const lines = json?.stderr
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line).msg);
    expect(lines).toEqual(["listening", "stopping", "stopped"]);
    expect(text?.stderr).toMatch(/^\[\d\d:\d\d:\d\d\.\d{3}\] INFO: listening \{"address":.*\}$/m);
    expect(text?.stderr).toMatch(/INFO: stopped/);
  });

  test.each(["json", "text"])("in %s that nobody reads stops neither calls nor the end", async (format) => {
    const pipe = path.join(dir, `log-${format}`);
    execFileSync("mkfifo", [pipe]);
    // A reader that never reads. Its pipe is small, so that few calls fill it.
    const reader = openSync(pipe, constants.O_RDWR);
    execFileSync("python3", ["-c", SHRINK, pipe]);
    const service = await ServeProcess.start(
      ["--engine", "bubblewrap"],
      { BERTH_LOG_LEVEL: "info", BERTH_LOG_FORMAT: format },
      { within: ["sh", "-c", `exec "$@" 2> "${pipe}"`, "sh"] },
    );
    services.push(service);
    try {
      const statsUrl = `http://${service.address}/berth.v1.SandboxService/GetStats`;
      // The pipe holds 4 KiB, and each call has a line of some 200 bytes: 56 KiB more than it takes.
      for (let i = 0; i < 300; i++) {
        const answer = await fetch(`${statsUrl}?encoding=json&message={}`, {
          signal: AbortSignal.timeout(60_000),
        }).catch(() => undefined);
        expect(answer?.status).toBe(200);
      }
      expect((await service.stop()).exitCode).toBe(0);
    } finally {
      closeSync(reader);
    }
  });

  test("is text on a terminal, in colour", async () => {
    const options = ["--engine", "bubblewrap", "--listen", "127.0.0.1:0"];
    const env = { BERTH_DATA_DIR: path.join(dir, "terminal-data") };
    const terminal = await TmuxTerminal.start({
      command: [process.execPath, MAIN, "serve", ...options],
      env,
    });
    try {
      const screen = await terminal.shows(/INFO: listening \{"address":/);
      expect(screen).not.toContain('"level":30');
    } finally {
      await terminal.press("C-c");
      await terminal.dispose();
    }
  });

  test("on a terminal that is stopped does not stop calls", async () => {
    const options = ["--engine", "bubblewrap", "--listen", "127.0.0.1:0"];
    const env = { BERTH_DATA_DIR: path.join(dir, "stopped-data") };
    const terminal = await TmuxTerminal.start({
      command: [process.execPath, MAIN, "serve", ...options],
      env,
    });
    try {
      const screen = await terminal.shows(/INFO: listening/);
      const address = /berth listens on (\S+);/.exec(screen)?.[1];
      await terminal.press("C-s");
      // A terminal takes a few KiB before it stops a writer.
      for (let i = 0; i < 100; i++) {
        const answer = await fetch(
          `http://${address}/berth.v1.SandboxService/GetStats?encoding=json&message={}`,
          {
            signal: AbortSignal.timeout(60_000),
          },
        ).catch(() => undefined);
        expect(answer?.status).toBe(200);
      }
    } finally {
      await terminal.press("C-q", "C-c");
      await terminal.dispose();
    }
  });
});

describe("where it listens", () => {
  test("a Unix socket, which is removed at the end", async () => {
    const listen = `unix:${path.join(dir, "berth.sock")}`;
    const service = await serve([], { BERTH_LISTEN: listen });
    expect(service.address).toBe(listen);
    const { exitCode, stdout } = await service.run(["run", "--", "echo", "over a socket"]);
    expect([exitCode, stdout.toString()]).toEqual([0, "over a socket\n"]);
    await service.stop();
    expect((await service.runHere(["ls"])).stderr).toContain(`no service answers at ${listen}`);
  });

  test("an address in use is refused", async () => {
    const service = await serve();
    const { exitCode, stderr } = await runProgram(["serve", "--listen", service.address]);
    expect(exitCode).toBe(1);
    expect(stderr).toContain(`Cannot listen on ${service.address}: another program uses it.`);
  });

  test("a certificate that cannot be read is named", async () => {
    const { exitCode, stderr } = await runProgram([
      "serve",
      "--tls-cert",
      "/no/c.pem",
      "--tls-key",
      "/no/k.pem",
    ]);
    expect([exitCode, stderr]).toEqual([
      1,
      "berth: --tls-cert: /no/c.pem: there is no such file. Name a file in PEM that the service's user may read.\n",
    ]);
  });

  test.each([
    ["a pipe", "--config", "pipe", "pipe: it is not a file."],
    ["a device", "--config", "/dev/null", "/dev/null: it is not a file."],
    ["a certificate in a pipe", "--tls-cert", "pipe", "pipe: it is not a file."],
    ["a key in a device", "--tls-key", "/dev/null", "/dev/null: it is not a file."],
    ["no certificate", "--tls-client-ca", "empty.pem", "empty.pem holds no certificate. It must be PEM"],
    ["a broken one", "--tls-client-ca", "broken.pem", "broken.pem: its certificate 1 cannot be read."],
  ])("%s is refused without waiting for it", async (_, flag, name, problem) => {
    const pipe = path.join(dir, "pipe");
    rmSync(pipe, { force: true });
    execFileSync("mkfifo", [pipe]);
    writeFileSync(path.join(dir, "empty.pem"), "# none yet\n");
    const [begin, end] = ["BEGIN", "END"].map((word) => `-----${word} CERTIFICATE-----\n`);
    writeFileSync(path.join(dir, "broken.pem"), `${begin}bm9uZQ==\n${end}`);
    const { cert, key } = await makeCertificate(dir, "given");
    const tls = { "--tls-cert": cert, "--tls-key": key, "--tls-client-ca": cert };
    const given = { ...(flag !== "--config" && tls), [flag]: path.resolve(dir, name) };
    const child = startProgram(["serve", ...Object.entries(given).flat()]);
    let stderr = "";
    child.stderr.on("data", (chunk) => {
      stderr += chunk;
    });
    try {
      await expect.poll(() => stderr).toContain(problem);
      await expect.poll(() => child.exitCode).toBe(flag === "--config" ? 2 : 1);
    } finally {
      child.kill("SIGKILL");
    }
  });

  test("a configuration piped in by the shell is read", async () => {
    const serve = `"${process.execPath}" "${MAIN}" serve --config <(sleep 0.3; echo '{"max-sandboxs": 1}')`;
    const outcome = await endOf(spawn("bash", ["-c", serve]));
    expect(outcome.stderr).toContain('"max-sandboxs"');
    expect(outcome.exitCode).toBe(2);
  });

  test("a TLS key piped in by the shell is read once, and not missed later", async () => {
    const { cert, key } = await makeCertificate(dir, "piped");
    const args = `--engine bubblewrap --listen 127.0.0.1:0 --data-dir "${dir}/piped" --tls-cert "${cert}"`;
    const serve = `exec "${process.execPath}" "${MAIN}" serve ${args} --tls-key <(sleep 0.3; cat "${key}")`;
    const child = spawn("bash", ["-c", serve]);
    let written = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (written += chunk));
    try {
      await expect.poll(() => written).toContain("berth listens on");
      // Files are checked five times a second.
      await sleep(1_500);
      child.kill("SIGTERM");
      await expect.poll(() => written).toContain("stopped");
      expect(written).not.toContain("TLS files have changed");
    } finally {
      child.kill("SIGKILL");
    }
  });

  test("beyond loopback with TLS and tokens, called by https", async () => {
    const tokens = new TokensFile();
    const token = await tokens.add("default");
    const [cert, key] = [path.join(dir, "cert.pem"), path.join(dir, "key.pem")];
    execFileSync("openssl", [
      ...[
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "1",
      ],
      ...["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
    ]);
    const args = ["--tls-cert", cert, "--tls-key", key, "--tokens", tokens.path];
    const service = await serve(args, { BERTH_LISTEN: "0.0.0.0:0" });
    const port = service.address.split(":").at(-1);
    const address = `https://localhost:${port}`;
    const trusting = await service.run(["stats", "--address", address], {
      env: { NODE_EXTRA_CA_CERTS: cert, BERTH_TOKEN: token },
    });
    expect(trusting).toMatchObject({ exitCode: 0, stderr: "" });
    const doubting = await service.run(["stats", "--address", address]);
    expect(doubting.exitCode).toBe(1);
    expect(doubting.stderr).toContain("certificate");
  });
});

test("without its engine it does not start, and says what to do", async () => {
  const { exitCode, stderr } = await runProgram([
    "serve",
    "--engine",
    "docker",
    "--docker-host",
    "unix:///no/docker.sock",
  ]);
  expect(exitCode).toBe(1);
  expect(stderr).toMatch(
    /^berth: Docker is not running\..*\nSee what is missing: berth doctor, with the same options\n$/s,
  );
});

test.each(["docker", "auto"])(
  "a start with the engine %s does not wait for a Docker that does not answer once it gets a signal",
  async (engine) => {
    const socket = path.join(mkdtempSync(path.join(newDataDir(), "hung-")), "docker.sock");
    const hung = net.createServer(() => {}).listen(socket);
    await once(hung, "listening");
    const asked = once(hung, "connection");
    const args = ["serve", "--engine", engine, "--docker-host", `unix://${socket}`];
    // Its own timeouts never pass, so that only the signal ends the wait.
    const patient =
      "const set = setTimeout; globalThis.setTimeout = (f, ms, ...a) => set(f, ms > 5e3 ? 2e9 : ms, ...a)";
    const NODE_OPTIONS = `--import ${JSON.stringify(`data:text/javascript,${encodeURIComponent(patient)}`)}`;
    const child = startProgram([...args, "--listen", "127.0.0.1:0", "--data-dir", newDataDir()], {
      env: { NODE_OPTIONS },
    });
    const end = endOf(child);
    try {
      await Promise.race([asked, end]);
      child.kill("SIGTERM");
      const late = sleep(30_000, { exitCode: "still runs" }, { ref: false });
      expect(await Promise.race([end, late])).toMatchObject({
        exitCode: 0,
        stderr: expect.stringContaining("stopped by SIGTERM"),
      });
    } finally {
      child.kill("SIGKILL");
      await end;
      hung.close();
    }
  },
);

test.each(["ssh://user@host", "nonsense"])(
  "a DOCKER_HOST that names no daemon that can be reached is refused, not taken for one that is away: %s",
  async (host) => {
    const start = serve([], { DOCKER_HOST: host }).then(
      ({ startLine }) => startLine,
      (error: unknown) => String(error),
    );
    expect(await start).toContain(
      `berth: DOCKER_HOST: "${host}" is not the address of a daemon that Berth can reach. Name one with --docker-host,`,
    );
  },
);

test("where containers are left, bubblewrap does not take the place of a Docker that does not answer", async () => {
  /** Starts a service again; resolves with its first line, or with why it ended. */
  const again = async (ended: ServeProcess, ...args: string[]): Promise<string> => {
    try {
      const service = await ended.again(args);
      services.push(service);
      return service.startLine;
    } catch (error) {
      return String(error);
    }
  };
  const away = ["--docker-host", "unix:///no/docker.sock"];
  const docker = await serve();
  expect((await docker.runHere(["create", "--id", "left"])).stdout.toString()).toBe("left\n");
  await docker.stop("SIGKILL");
  expect(await again(docker, ...away)).toContain(
    "An earlier run left sandboxes in containers (1), so bubblewrap does not take Docker's place. To give them up: --engine bubblewrap\n",
  );
  expect(await again(docker)).toContain("engine docker");
  expect((await services.at(-1)?.runHere(["ls", "-q"]))?.stdout.toString()).toBe("left\n");
  // What bubblewrap left has ended in any case.
  const bubblewrap = await serve(["--engine", "bubblewrap"]);
  await bubblewrap.runHere(["create", "--id", "mine"]);
  await bubblewrap.stop("SIGKILL");
  expect(await again(bubblewrap, ...away)).toContain("engine bubblewrap");
});

test("a service that is to run on bubblewrap says which containers an earlier one left, and that they run on", async () => {
  const docker = await serve();
  await docker.runHere(["create"]);
  await docker.stop("SIGKILL");
  const bubblewrap = await docker.again(["--engine", "bubblewrap"]);
  services.push(bubblewrap);
  const { stderr } = await bubblewrap.stop();
  expect(await containersOf(docker.instance)).toHaveLength(1);
  expect(stderr).toContain(`"containers":1,"instance":"${docker.instance}"`);
  expect(stderr).toContain("reported as lost, but run on");
});
