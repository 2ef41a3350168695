import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL("../..", import.meta.url));
/** What a fresh clone does not have, or only git needs. */
const LEFT_OUT = new Set(["node_modules", "dist", ".git", ".cache", ".ci"]);

/** The program as users have it: packed from a copy of the checkout, and installed from only the tarball. */
export class InstalledPackage implements Disposable {
  /** Paths of the files in the tarball. */
  readonly files: readonly string[];
  /** The file `berth` in its user's PATH. */
  readonly berth: string;
  /** The folder of the installed package. */
  readonly folder: string;
  /** An environment with the machine's own Node instead of this checkout's. */
  readonly env: NodeJS.ProcessEnv;
  readonly #dir: string;

  private constructor(dir: string, env: NodeJS.ProcessEnv, files: readonly string[]) {
    this.#dir = dir;
    this.env = env;
    this.files = files;
    this.berth = path.join(dir, "prefix/bin/berth");
    this.folder = path.join(dir, "prefix/lib/node_modules/berth");
  }

  static async make(): Promise<InstalledPackage> {
    // Without npm's variables, in case npm runs the tests, but with the authorities that this machine trusts, including
    // its registry's.
    const inherited = Object.entries(process.env).filter(
      ([name]) => !/^(npm_|NODE_(?!EXTRA_CA_CERTS$)|BERTH_)/.test(name),
    );
    const outside = (process.env.PATH ?? "").split(":").filter((place) => !place.includes("node_modules"));
    const env = { ...Object.fromEntries(inherited), PATH: outside.join(":") };
    const dir = mkdtempSync(path.join(tmpdir(), "berth-package-"));
    try {
      const checkout = path.join(dir, "checkout");
      cpSync(ROOT, checkout, {
        recursive: true,
        filter: (source) => !LEFT_OUT.has(path.basename(source)),
      });
      symlinkSync(path.join(ROOT, "node_modules"), path.join(checkout, "node_modules"));
      const packed = await run("npm", ["pack", "--json", "--pack-destination", dir], { cwd: checkout, env });
      const [{ filename, files }] = JSON.parse(packed.stdout.slice(packed.stdout.indexOf("[\n")));
      const clean = path.join(dir, "clean");
      mkdirSync(clean);
      const options = ["--global", "--prefix", path.join(dir, "prefix"), "--prefer-offline", "--no-audit"];
      await run("npm", ["install", ...options, path.join(dir, filename)], { cwd: clean, env });
      return new InstalledPackage(
        dir,
        env,
        files.map((file: { readonly path: string }) => file.path),
      );
    } catch (error) {
      rmSync(dir, { recursive: true });
      throw error;
    }
  }

  [Symbol.dispose](): void {
    rmSync(this.#dir, { recursive: true, force: true });
  }
}
