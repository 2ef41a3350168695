import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { MAIN } from "./program.ts";

const ROOT = path.resolve(import.meta.dirname, "../..");

/** The program's path for that user, who may not enter the directories above the repository. */
export const PROGRAM = MAIN.startsWith(ROOT) ? path.relative(ROOT, MAIN) : MAIN;

/** Id of a user that no machine has: it owns nothing and may not write to control groups. */
export const ORDINARY_ID = 54_321;

/**
 * Runs Node in the repository as an ordinary user, whoever runs the tests. In its own mount namespace it sees the
 * repository where that user may enter. Its home exists until it ends, and can be used to pass files. `within`: a
 * command that runs all of it. `groups`: the user's supplementary groups.
 */
export function nodeAsOrdinaryUser(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  within: readonly string[] = [],
  groups: readonly number[] = [],
): { readonly child: ChildProcess; readonly home: string } {
  const dir = mkdtempSync(path.join(tmpdir(), "berth-user-"));
  const place = (name: string): string => {
    mkdirSync(path.join(dir, name));
    return path.join(dir, name);
  };
  const script = `set -e
mount --bind "$1" "$2" && mount --bind "$3" "$2/node_modules"
chmod 755 "$4" && chown ${ORDINARY_ID}:${ORDINARY_ID} "$5"
cd "$2"
export HOME="$5" TMPDIR="$5"
shift 5
exec setpriv --reuid=${ORDINARY_ID} --regid=${ORDINARY_ID} --groups=${[ORDINARY_ID, ...groups]} --inh-caps=-all -- "$@"`;
  const modules = realpathSync(path.join(ROOT, "node_modules"));
  const node = "node_modules/node/bin/node";
  const home = place("home");
  const given = [ROOT, place("berth"), modules, dir, home, node, ...args];
  const unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", ...given];
  const [program = "", ...all] = [...within, ...unshare];
  const child = spawn(program, all, {
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", ...env },
  });
  child.once("exit", () => rmSync(dir, { recursive: true, force: true }));
  return { child, home };
}

/** `berth serve` with bubblewrap, run by an ordinary user, with its data below that user's home. */
export class OrdinaryService {
  readonly address: string;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, address: string) {
    this.#child = child;
    this.address = address;
  }

  /** @param within a command prefix that runs all of it. */
  static async start(args: readonly string[] = [], within: readonly string[] = []): Promise<OrdinaryService> {
    const all = [PROGRAM, "serve", "--engine", "bubblewrap", "--listen", "127.0.0.1:0", ...args];
    const { child } = nodeAsOrdinaryUser(all, { BERTH_LOG_LEVEL: "warn" }, within);
    const { stdout, stderr } = child;
    if (stdout === null || stderr === null) throw new Error("it has no pipes");
    let said = "";
    const address = new Promise<string>((resolve, reject) => {
      stderr.on("data", (text: Buffer) => {
        said += text;
      });
      stdout.on("data", (text: Buffer) => {
        said += text;
        const found = /berth listens on (.+?);/.exec(said)?.[1];
        if (found !== undefined) resolve(found);
      });
      child.once("close", () => reject(new Error(`the service ended: ${said}`)));
    });
    return new OrdinaryService(child, await address);
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null) return;
    const ended = once(this.#child, "close");
    this.#child.kill("SIGTERM");
    await ended;
  }
}
