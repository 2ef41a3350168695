import { type ExecFileException, execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { expect } from "vitest";
import { ServeProcess } from "./program.ts";

const run = promisify(execFile);
const root = path.join(import.meta.dirname, "../..");

/** The directory of the Python client. */
export const PYTHON_CLIENT = path.join(root, "clients/python");

/** The services that the tests in clients/python need, and methods to run these tests. */
export class PythonTests {
  /** Removed at the end. */
  readonly directory: string;
  readonly #service: ServeProcess;
  readonly #secure: ServeProcess;
  readonly #guarded: ServeProcess;

  private constructor(
    directory: string,
    [service, secure, guarded]: readonly [ServeProcess, ServeProcess, ServeProcess],
  ) {
    this.directory = directory;
    this.#service = service;
    this.#secure = secure;
    this.#guarded = guarded;
  }

  static async start(): Promise<PythonTests> {
    const directory = await mkdtemp(path.join(tmpdir(), "berth-python-"));
    await Promise.all([certificate(directory, "own"), certificate(directory, "other")]);
    const secrets = path.join(directory, "secrets.yaml");
    await writeFile(secrets, "secrets: {key: hunter22}", { mode: 0o600 });
    const tls = {
      BERTH_TLS_CERT: path.join(directory, "own.pem"),
      BERTH_TLS_KEY: path.join(directory, "own.key"),
    };
    const tokens = path.join(directory, "tokens.yaml");
    await writeFile(tokens, "tenants: {}\ntokens: []\n", { mode: 0o600 });
    const guards = { BERTH_TLS_CLIENT_CA: tls.BERTH_TLS_CERT, BERTH_TOKENS: tokens };
    const services = await Promise.all([
      ServeProcess.start([], { BERTH_ENGINE: "bubblewrap", BERTH_SECRETS: secrets }),
      ServeProcess.start([], { BERTH_ENGINE: "bubblewrap", ...tls }),
      ServeProcess.start([], { BERTH_ENGINE: "bubblewrap", ...tls, ...guards }),
    ]);
    return new PythonTests(directory, services);
  }

  /**
   * The variables through which the tests in clients/python find the services. Nothing else, so that no proxy is used.
   */
  get environment(): Record<string, string> {
    return {
      PATH: process.env.PATH ?? "",
      HOME: this.directory,
      PYTHONPATH: path.join(PYTHON_CLIENT, "src"),
      PYTHONDONTWRITEBYTECODE: "1",
      BERTH_ADDRESS: this.#service.address,
      BERTH_TEST_TLS_ADDRESS: this.#secure.address,
      BERTH_TEST_GUARDED_ADDRESS: this.#guarded.address,
      BERTH_TEST_TOKENS: path.join(this.directory, "tokens.yaml"),
      BERTH_TEST_CA: path.join(this.directory, "own.pem"),
      BERTH_TEST_OTHER_CA: path.join(this.directory, "other.pem"),
    };
  }

  /** Runs a program in the client's directory. If it fails, shows its output. */
  async passes(file: string, args: readonly string[], env = this.environment): Promise<string> {
    try {
      return (await run(file, [...args], { cwd: PYTHON_CLIENT, env, maxBuffer: 64 << 20 })).stdout;
    } catch (error) {
      const { stdout, stderr } = error as ExecFileException & { stdout: string; stderr: string };
      throw new Error(`${path.basename(file)} ${args.join(" ")} failed:\n${stdout}\n${stderr}`);
    }
  }

  /** Runs the client's tests that a marker expression selects, with the packages of an environment. */
  async pytest(name: PythonEnvironment, marked: string, env = this.environment): Promise<string> {
    // Concurrent runs would remove each other's temporary directories.
    const place = `--basetemp=${path.join(this.directory, `pytest-${name}-${marked.replace(" ", "-")}`)}`;
    try {
      return await this.passes(await pythonOf(name), ["-m", "pytest", "-q", "-m", marked, place], env);
    } catch (error) {
      // An assertion that failed there fails as one here, so that a defect put back counts as noticed.
      const { message } = error as Error;
      expect(message.match(/^E +(?:AssertionError|assert ).*/gm) ?? [], message).toEqual([]);
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.#service.dispose(), this.#secure.dispose(), this.#guarded.dispose()]);
    await rm(this.directory, { recursive: true, force: true });
  }
}

/** A pinned environment of the client's tests: clients/python/tests/NAME.txt. */
type PythonEnvironment = "newest" | "lowest" | "checkers";

/** The Python of a pinned environment, which is created on first use. */
export async function pythonOf(name: PythonEnvironment): Promise<string> {
  const requirements = path.join(PYTHON_CLIENT, `tests/${name}.txt`);
  const { stdout } = await run(path.join(root, "scripts/python-env.sh"), [`python-${name}`, requirements]);
  return path.join(stdout.trim(), "bin/python");
}

async function certificate(directory: string, name: string): Promise<void> {
  const files = ["-keyout", path.join(directory, `${name}.key`), "-out", path.join(directory, `${name}.pem`)];
  const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
  const subject = ["-subj", `/CN=${name}`, "-addext", "subjectAltName=IP:127.0.0.1"];
  await run("openssl", ["req", "-x509", ...kind, ...files, ...subject]);
}
