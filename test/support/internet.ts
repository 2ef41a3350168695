import { type ChildProcessWithoutNullStreams, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { makeCertificate } from "./certificate.ts";
import { INTERNET } from "./internet-addresses.ts";

const run = promisify(execFile);
const SERVERS = fileURLToPath(new URL("internet-servers.ts", import.meta.url));
const ENV = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` };

/** The first process of a place. Its namespaces end with it. */
const HOLD = `ip link set lo up && { [ -z "$1" ] || mount --bind "$1" /etc/resolv.conf; } && echo ready && read -r end`;

/**
 * A test's own internet: two connected network namespaces, one for a service, the other with servers at public and
 * private addresses and DNS. It does not use the machine's network, and leaves nothing behind.
 */
export class Internet implements AsyncDisposable {
  readonly #directory: string;
  readonly #place: ChildProcessWithoutNullStreams;
  readonly #servers: ChildProcessWithoutNullStreams;
  /** The certificate of the authority that signed the HTTPS server's. */
  readonly certificate: string;
  /** Its file. */
  readonly certificateFile: string;

  private constructor(
    directory: string,
    place: ChildProcessWithoutNullStreams,
    servers: ChildProcessWithoutNullStreams,
    [certificate, file]: readonly [string, string],
  ) {
    this.#directory = directory;
    this.#place = place;
    this.#servers = servers;
    this.certificate = certificate;
    this.certificateFile = file;
  }

  static async start(): Promise<Internet> {
    const directory = await mkdtemp(path.join(tmpdir(), "berth-internet-"));
    const resolvers = path.join(directory, "resolv.conf");
    await writeFile(resolvers, `nameserver ${INTERNET.resolver}\noptions timeout:5\n`);
    const vouchedFor = Object.keys(INTERNET.names).filter((name) => !name.startsWith("not-"));
    const names = vouchedFor.map((name) => `DNS:${name}`);
    const { cert, key } = await makeCertificate(directory, "internet", names.join());
    const hold = ["sh", "-c", HOLD, "sh"];
    const place = spawn("unshare", ["--net", "--mount", "--", ...hold, resolvers], { env: ENV });
    const servers = spawn("unshare", ["--net", "--", process.execPath, SERVERS, cert, key], { env: ENV });
    const internet = new Internet(directory, place, servers, [await readFile(cert, "utf8"), cert]);
    try {
      await Promise.all([saying(place, "ready"), saying(servers, "listening")]);
      await internet.#connect();
      return internet;
    } catch (error) {
      await internet[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** The command prefix that runs a program in the service's namespace. */
  get within(): readonly string[] {
    return ["nsenter", `--target=${this.#place.pid}`, "--net", "--mount", "--wd=.", "--"];
  }

  /** Runs a program in the service's namespace. Returns its output. */
  async run(...command: readonly string[]): Promise<string> {
    const [program = "", ...args] = [...this.within, ...command];
    return (await run(program, args, { env: ENV, timeout: 30_000 })).stdout;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of [this.#place, this.#servers]) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const exited = once(child, "exit");
      child.kill("SIGKILL");
      await exited;
    }
    await rm(this.#directory, { recursive: true, force: true });
  }

  async #connect(): Promise<void> {
    const { service, resolver, public6, closed6 } = INTERNET;
    const outside = ["nsenter", `--target=${this.#servers.pid}`, "--net", "--"];
    const cable = ["type", "veth", "peer", "name", "cable", "netns", String(this.#servers.pid)];
    await this.run("ip", "link", "add", "cable", ...cable);
    for (const [where, own, own6, other, other6] of [
      [this.within, service, "2600::1", resolver, "2600::2"],
      [outside, resolver, "2600::2", service, "2600::1"],
    ] as const) {
      const ip = async (...args: string[]): Promise<void> => {
        const [program = "", ...rest] = [...where, "ip", ...args];
        await run(program, rest, { env: ENV });
      };
      await ip("address", "add", `${own}/30`, "dev", "cable");
      await ip("address", "add", `${own6}/126`, "dev", "cable", "nodad");
      await ip("link", "set", "lo", "up");
      await ip("link", "set", "cable", "up");
      await ip("route", "add", "default", "via", other);
      await ip("-6", "route", "add", "default", "via", other6);
      if (where !== outside) continue;
      await ip("route", "add", "unreachable", INTERNET.unreachable);
      for (const address of [...INTERNET.public, ...INTERNET.closed])
        await ip("address", "add", `${address}/32`, "dev", "lo");
      for (const address of [public6, closed6]) await ip("address", "add", `${address}/128`, "dev", "lo");
    }
  }
}

async function saying(child: ChildProcessWithoutNullStreams, word: string): Promise<void> {
  let complaint = "";
  child.stderr.on("data", (chunk) => {
    complaint += chunk;
  });
  for await (const line of createInterface({ input: child.stdout })) if (line === word) return;
  throw new Error(`the test's internet did not start: ${complaint}`);
}
