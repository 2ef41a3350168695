import { readFile } from "node:fs/promises";
import type { AppSettings } from "../app.ts";
import { BerthError } from "../base/errors.ts";
import { SANDBOX_DEFAULTS } from "../sandboxes/spec.ts";
import { formatListenAddress } from "../server/listen-address.ts";
import type { Config } from "./config.ts";

/**
 * What the app needs of a configuration: files read, defaults put together.
 * @throws BerthError `INVALID_ARGUMENT` for a certificate or key that cannot be read
 */
export async function settingsOf(config: Config): Promise<AppSettings> {
  const { tlsCert, tlsKey } = config;
  return {
    ...config,
    listen: formatListenAddress(config.listen),
    tls:
      tlsCert === undefined || tlsKey === undefined
        ? undefined
        : { cert: await readPem("--tls-cert", tlsCert), key: await readPem("--tls-key", tlsKey) },
    defaults: {
      ...SANDBOX_DEFAULTS,
      image: config.defaultImage,
      memoryBytes: config.defaultMemoryBytes,
      cpuMillis: config.defaultCpuMillis,
      idleTimeoutMs: config.idleTimeoutMs,
      maxLifetimeMs: config.maxLifetimeMs,
      commandTimeoutMs: config.commandTimeoutMs,
    },
  };
}

async function readPem(flag: string, path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "unknown error";
    throw new BerthError("INVALID_ARGUMENT", `${flag}: ${path} cannot be read (${code}).`, { cause: error });
  }
}
