import { writeFileSync } from "node:fs";
import { homedir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { adapted, type RunningProxy, startProxy } from "./proxy.ts";

const { XDG_CACHE_HOME = path.join(homedir(), ".cache") } = process.env;
/** Where scripts/nginx.sh puts it. */
const PROGRAM = path.join(XDG_CACHE_HOME, "berth/nginx/usr/sbin/nginx");
const CONFIGURATION = fileURLToPath(new URL("../../deploy/nginx.conf", import.meta.url));

/**
 * Debian's nginx with deploy/nginx.conf, adapted where the file says so.
 * @param replicas `host:port` of each
 * @param tenants by token id
 */
export function startNginx(
  replicas: readonly string[],
  tenants: ReadonlyMap<string, string>,
): Promise<RunningProxy> {
  return startProxy(({ directory, cert, key, socket }) => {
    const servers = replicas.map((address) => `server ${address} max_fails=0;`).join("\n");
    const kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    const text = adapted(CONFIGURATION, [
      [/( +server \S+:7070 max_fails=0;\n)+/, `${servers}\n`],
      [/listen 443 ssl http2;/, `listen unix:${socket} ssl http2;`],
      [/\/etc\/nginx\/tls\.crt/, cert],
      [/\/etc\/nginx\/tls\.key/, key],
      // Debian's are in /var/lib/nginx, which only the installed package has.
      [/http \{/, `http {\n${kinds.map((kind) => `${kind}_temp_path ${kind};`).join(" ")}`],
    ]);
    writeFileSync(path.join(directory, "nginx.conf"), text);
    const map = [...tenants].map(([id, tenant]) => `${id} ${tenant};\n`);
    writeFileSync(path.join(directory, "tenants.map"), map.join(""));
    const options = ["-p", directory, "-c", "nginx.conf", "-e", "stderr"];
    return [PROGRAM, ...options, "-g", "daemon off; pid nginx.pid; user root;"];
  });
}
