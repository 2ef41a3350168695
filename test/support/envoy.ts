import { writeFileSync } from "node:fs";
import { homedir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { adapted, type RunningProxy, startProxy } from "./proxy.ts";

const { XDG_CACHE_HOME = path.join(homedir(), ".cache") } = process.env;
/** Where scripts/envoy.sh puts it. */
const PROGRAM = path.join(XDG_CACHE_HOME, "berth/envoy/envoy/_bin/envoy");
const CONFIGURATION = fileURLToPath(new URL("../../deploy/envoy.yaml", import.meta.url));

/**
 * Envoy with deploy/envoy.yaml, adapted where the file says so.
 * @param replicas `host:port` of each
 * @param tenants by token id
 */
export function startEnvoy(
  replicas: readonly string[],
  tenants: ReadonlyMap<string, string>,
): Promise<RunningProxy> {
  return startProxy(({ directory, cert, key, socket }) => {
    const endpoints = replicas.map((replica, index) => {
      const [address = "", port = ""] = replica.split(":");
      const where = `{ socket_address: { address: ${address}, port_value: ${port} } }`;
      return `              - endpoint: { hostname: berth-${index}, address: ${where} }\n`;
    });
    const map = [...tenants].map(([id, tenant]) => `["${id}"] = "${tenant}"`);
    const file = path.join(directory, "envoy.yaml");
    const text = adapted(CONFIGURATION, [
      [/address: \{ socket_address: .+ port_value: 443 \} \}/, `address: { pipe: { path: ${socket} } }`],
      [/\/etc\/envoy\/tls\.crt/, cert],
      [/\/etc\/envoy\/tls\.key/, key],
      [/\{ ndt3x6fg2n = "acme" \}/, `{ ${map.join(", ")} }`],
      [/( +- endpoint:\n( {16,}.*\n)+)+/, endpoints.join("")],
    ]);
    writeFileSync(file, text);
    const quiet = ["--log-level", "warn", "--disable-hot-restart", "--concurrency", "2"];
    return [PROGRAM, "--config-path", file, ...quiet];
  });
}
