import { type ExecFileException, execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DESKTOP_IMAGE } from "../../support/images.ts";
import { ServeProcess } from "../../support/program.ts";

const run = promisify(execFile);
const root = path.join(import.meta.dirname, "../../..");
const client = path.join(root, "clients/python");

let directory: string;
let service: ServeProcess;
let secure: ServeProcess;

/** What the tests in clients/python find the services by; nothing else, so that no proxy comes between. */
const environment = (): Record<string, string> => ({
  PATH: process.env.PATH ?? "",
  HOME: directory,
  PYTHONPATH: path.join(client, "src"),
  PYTHONDONTWRITEBYTECODE: "1",
  BERTH_ADDRESS: service.address,
  BERTH_TEST_TLS_ADDRESS: secure.address,
  BERTH_TEST_CA: path.join(directory, "own.pem"),
  BERTH_TEST_OTHER_CA: path.join(directory, "other.pem"),
});

/** The Python of a pinned environment of the client's tests. */
async function pythonOf(name: "newest" | "lowest" | "checkers"): Promise<string> {
  const requirements = path.join(client, `tests/${name}.txt`);
  const { stdout } = await run(path.join(root, "scripts/python-env.sh"), [`python-${name}`, requirements]);
  return path.join(stdout.trim(), "bin/python");
}

/** Runs a program in the client's directory; on failure, shows what it wrote. */
async function passes(file: string, args: readonly string[], env = environment()): Promise<string> {
  try {
    return (await run(file, [...args], { cwd: client, env, maxBuffer: 64 << 20 })).stdout;
  } catch (error) {
    const { stdout, stderr } = error as ExecFileException & { stdout: string; stderr: string };
    throw new Error(`${path.basename(file)} ${args.join(" ")} failed:\n${stdout}\n${stderr}`);
  }
}

/** Runs beside each other would clean up the temporary directories of one another. */
function pytest(name: string, marked: string): string[] {
  return ["-m", "pytest", "-q", "-m", marked, `--basetemp=${path.join(directory, `pytest-${name}`)}`];
}

async function certificate(name: string): Promise<void> {
  const files = ["-keyout", path.join(directory, `${name}.key`), "-out", path.join(directory, `${name}.pem`)];
  const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
  const subject = ["-subj", `/CN=${name}`, "-addext", "subjectAltName=IP:127.0.0.1"];
  await run("openssl", ["req", "-x509", ...kind, ...files, ...subject]);
}

beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), "berth-python-"));
  await Promise.all([certificate("own"), certificate("other")]);
  const secrets = path.join(directory, "secrets.yaml");
  await writeFile(secrets, "secrets: {key: hunter22}", { mode: 0o600 });
  const tls = {
    BERTH_TLS_CERT: path.join(directory, "own.pem"),
    BERTH_TLS_KEY: path.join(directory, "own.key"),
  };
  [service, secure] = await Promise.all([
    ServeProcess.start([], { BERTH_ENGINE: "bubblewrap", BERTH_SECRETS: secrets }),
    ServeProcess.start([], { BERTH_ENGINE: "bubblewrap", ...tls }),
  ]);
});

afterAll(async () => {
  await Promise.all([service?.dispose(), secure?.dispose()]);
  if (directory) await rm(directory, { recursive: true, force: true });
});

// Against hangs only: whole suites of Python run in these, on first use with the making of their environments.
describe.concurrent("the Python client", { timeout: 300_000 }, () => {
  test.each(["newest", "lowest"] as const)(
    "passes its tests with the %s grpcio and protobuf that it takes",
    async (name) => {
      const output = await passes(await pythonOf(name), pytest(name, "not vm"));
      expect(output).toMatch(/^\d{2,} passed, \d+ deselected in /m);
    },
  );

  test("runs every block of the session document on a desktop", async () => {
    const desktops = await ServeProcess.start([], {
      BERTH_ENGINE: "docker",
      BERTH_DESKTOP_IMAGE: DESKTOP_IMAGE,
    });
    try {
      const env = { ...environment(), BERTH_ADDRESS: desktops.address };
      const output = await passes(await pythonOf("newest"), pytest("vm", "vm"), env);
      expect(output).toMatch(/^8 passed, \d+ deselected in /m);
    } finally {
      await desktops.stop();
    }
  });

  test("has types that mypy and pyright find nothing wrong with", async () => {
    const python = await pythonOf("checkers");
    const pyright = path.join(root, "node_modules/pyright/index.js");
    await passes(python, ["-m", "mypy", "--cache-dir", path.join(root, ".cache/mypy")]);
    await passes(process.execPath, [
      pyright,
      "--project",
      path.join(client, "pyproject.toml"),
      "--pythonpath",
      python,
    ]);
  });

  test("has a client without asyncio that is generated of the one with", async () => {
    await passes(await pythonOf("newest"), ["generate_sync.py", "--check"]);
  });

  test("installs in a clean environment as a wheel, of which the quickstart runs, and as a link", async () => {
    const newest = await pythonOf("newest");
    const place = await mkdtemp(path.join(directory, "install-"));
    const python = path.join(place, "env/bin/python");
    const env = { ...environment(), PYTHONPATH: "" };
    const pip = (...args: string[]) =>
      passes(python, ["-m", "pip", "-q", "--disable-pip-version-check", ...args], env);
    await passes("python3", ["-m", "venv", path.join(place, "env")], env);
    // What it depends on, as installed already: there need be no network.
    const installed = 'import sysconfig; print(sysconfig.get_path("purelib"))';
    const [from, to] = await Promise.all([
      passes(newest, ["-c", installed]),
      passes(python, ["-c", installed]),
    ]);
    await writeFile(path.join(to.trim(), "dependencies.pth"), from);

    // Of the source archive, which holds all that a build needs, and of the checkout: the same wheel.
    const build =
      "import sys; sys.path.insert(0, 'backend'); import berth_build; berth_build.build_sdist(sys.argv[1])";
    await passes(python, ["-c", build, place], env);
    const [archive = ""] = (await readdir(place)).filter((name) => name.endsWith(".tar.gz"));
    await pip("wheel", "--no-index", "--no-deps", "-w", path.join(place, "1"), path.join(place, archive));
    await pip("wheel", "--no-index", "--no-deps", "-w", path.join(place, "2"), client);
    const [wheel = ""] = await readdir(path.join(place, "1"));
    const [first, second] = await Promise.all(
      ["1", "2"].map((name) => readFile(path.join(place, name, wheel))),
    );
    expect(first?.equals(second ?? Buffer.alloc(0))).toBe(true);

    await pip("install", "--no-index", "--no-deps", path.join(place, "1", wheel));
    await pip("check");
    const readme = await readFile(path.join(client, "README.md"), "utf8");
    const blocks = [...readme.matchAll(/^```python\n(.*?)^```$/gms)].map(([, block = ""]) => block);
    expect(blocks.length).toBeGreaterThanOrEqual(7);
    const printed = await Promise.all(blocks.map((block) => passes(python, ["-I", "-c", block], env)));
    // Lines that come at once may be one chunk.
    expect(printed[0]).toMatch(
      /^42\n 0\nstdout 1\n(\nstdout )?2\n(\nstdout )?3\n\nhello\n\n\['today.txt'\]\n$/,
    );
    expect(printed[4]).toBe("Step 1: 1\nStep 2: 2\nStep 3: 3\n");
    const where = ["-I", "-c", "import berth, berth.v1.error_pb2; print(berth.__file__)"];
    expect(await passes(python, where, env)).toContain(place);

    await pip("uninstall", "-y", "berth");
    await pip("install", "--no-index", "--no-deps", "-e", client);
    expect((await passes(python, where, env)).trim()).toBe(path.join(client, "src/berth/__init__.py"));
  });
});
