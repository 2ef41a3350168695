import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { makeCertificate } from "./certificate.ts";
import { eventually } from "./eventually.ts";

const { XDG_CACHE_HOME = path.join(homedir(), ".cache") } = process.env;
/** As scripts/nginx.sh puts it there. */
const PROGRAM = path.join(XDG_CACHE_HOME, "berth/nginx/usr/sbin/nginx");
const CONFIGURATION = fileURLToPath(new URL("../../deploy/nginx.conf", import.meta.url));

/** A Debian nginx with deploy/nginx.conf, adapted where that says so. */
export class Nginx implements AsyncDisposable {
  /** For gRPC clients: `unix:PATH`. */
  readonly address: string;
  /** The socket it listens on. */
  readonly socket: string;
  /** The certificate in PEM, which signs itself for `localhost`. */
  readonly certificate: Buffer;
  readonly #directory: string;
  readonly #child: ChildProcess;

  private constructor(directory: string, certificate: Buffer) {
    this.#directory = directory;
    this.certificate = certificate;
    this.socket = path.join(directory, "socket");
    this.address = `unix:${this.socket}`;
    const args = [
      "-p",
      directory,
      "-c",
      "nginx.conf",
      "-e",
      "error.log",
      "-g",
      "daemon off; pid nginx.pid; user root;",
    ];
    this.#child = spawn(PROGRAM, args, { stdio: "ignore" });
  }

  /**
   * @param replicas `host:port` of each
   * @param tenants by the ids of their tokens
   */
  static async start(replicas: readonly string[], tenants: ReadonlyMap<string, string>): Promise<Nginx> {
    const directory = mkdtempSync(path.join(tmpdir(), "berth-nginx-"));
    try {
      const { cert, key } = await makeCertificate(directory, "nginx", "DNS:localhost");
      const servers = replicas.map((address) => `server ${address} max_fails=0;`).join("\n");
      const kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
      const changes: readonly (readonly [RegExp, string])[] = [
        [/( +server \S+:7070 max_fails=0;\n)+/, `${servers}\n`],
        [/listen 443 ssl http2;/, `listen unix:${path.join(directory, "socket")} ssl http2;`],
        [/\/etc\/nginx\/tls\.crt/, cert],
        [/\/etc\/nginx\/tls\.key/, key],
        // Debian's are in /var/lib/nginx, which the installed package has.
        [/http \{/, `http {\n${kinds.map((kind) => `${kind}_temp_path ${kind};`).join(" ")}`],
      ];
      let text = readFileSync(CONFIGURATION, "utf8");
      for (const [place, change] of changes) {
        if (!place.test(text)) throw new Error(`deploy/nginx.conf has no ${place}`);
        text = text.replace(place, change);
      }
      writeFileSync(path.join(directory, "nginx.conf"), text);
      const map = [...tenants].map(([id, tenant]) => `${id} ${tenant};\n`);
      writeFileSync(path.join(directory, "tenants.map"), map.join(""));
      const nginx = new Nginx(directory, readFileSync(cert));
      await eventually(() => {
        if (nginx.#child.exitCode !== null) {
          throw new Error(`nginx ended: ${readFileSync(path.join(directory, "error.log"), "utf8")}`);
        }
        return existsSync(nginx.socket);
      });
      return nginx;
    } catch (error) {
      rmSync(directory, { recursive: true });
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode === null) {
      const exit = once(this.#child, "exit");
      // Its workers end with their connections.
      this.#child.kill("SIGTERM");
      await exit;
    }
    rmSync(this.#directory, { recursive: true });
  }
}
