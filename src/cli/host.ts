import { readFileSync } from "node:fs";
import { Command, Option } from "commander";
import { type Access, AccessError, findAccess } from "../../clients/typescript/src/profile.ts";
import type { ServiceClient } from "./client.ts";
import { UsageError } from "./exit.ts";
import type { Interrupts, Io } from "./io.ts";
import type { ServiceParts } from "./service.ts";
import { DEFAULT_ADDRESS, parseServiceAddress } from "./service-address.ts";

/** What every command gets. */
export interface CommandHost {
  readonly io: Io;
  readonly interrupts: Interrupts;
  /** The program's version. */
  readonly version: string;
  /** The service that `berth serve` runs. */
  readonly service: ServiceParts;
  /** Converts a function that returns an exit code to a commander action. */
  action<A extends unknown[]>(run: (...args: A) => Promise<number>): (...args: A) => Promise<void>;
}

/** The flags of commands that call a service. */
export interface ClientFlags {
  readonly address?: string;
  readonly tlsCa?: string;
  readonly tokenFile?: string;
  readonly profile?: string;
  readonly tenant?: string;
  readonly json?: boolean;
}

const ADDRESS = new Option(
  "--address <address>",
  `the service: HOST:PORT, unix:PATH or https://… (env BERTH_ADDRESS, default ${DEFAULT_ADDRESS})`,
);
const TLS_CA = new Option(
  "--tls-ca <file>",
  "file with the certificate authorities to trust for https://, in PEM (env BERTH_TLS_CA, default the public ones)",
);
const TOKEN_FILE = new Option(
  "--token-file <file>",
  "file with the token (env BERTH_TOKEN_FILE, or BERTH_TOKEN with the token itself)",
);
const PROFILE = new Option(
  "--profile <name>",
  "a profile of ~/.config/berth/profiles.json: an address and its token (env BERTH_PROFILE)",
);
const TENANT = new Option(
  "--tenant <name>",
  "tenant to act as; needs a token of scope admin (env BERTH_TENANT, default the token's)",
);
const JSON_OUTPUT = new Option("--json", "write JSON, with the API's field names");

/** The options of clients, which may also come before the command. */
export const CLIENT_OPTIONS: readonly Option[] = [ADDRESS, TLS_CA, TOKEN_FILE, PROFILE, TENANT, JSON_OUTPUT];

/** Creates a command that calls a service. */
export function serviceCommand(name: string): Command {
  const command = new Command(name);
  for (const option of [ADDRESS, TLS_CA, TOKEN_FILE, PROFILE, TENANT]) command.addOption(option);
  return command;
}

/** Creates a command that calls a service and prints the result, as JSON on request. */
export function clientCommand(name: string): Command {
  return serviceCommand(name).addOption(JSON_OUTPUT);
}

/** Calls a service and describes failures. `failureCode` is then the exit code. */
export async function withClient(
  { io, interrupts }: CommandHost,
  flags: ClientFlags,
  failureCode: number,
  work: (client: ServiceClient) => Promise<number>,
): Promise<number> {
  interrupts.followOutput(failureCode);
  const access = accessOf(flags, io.env);
  const address = parseServiceAddress(access.address ?? DEFAULT_ADDRESS);
  // Loaded here, so that help and the like do not wait for them.
  const [{ connectTo }, { explainedFailure }, { PlainHeaders }] = await Promise.all([
    import("./client.ts"),
    import("./failure.ts"),
    import("../base/plain-headers.ts"),
  ]);
  globalThis.Headers = PlainHeaders;
  const client = connectTo(address, {
    ca: trustedBy(flags, access, io.env),
    token: access.token,
    tenant: tenantOf(flags, io.env),
  });
  try {
    return await work(client);
  } catch (error) {
    // On an interrupt, describe nothing and close the connection at once. Until then, calls could still end normally.
    throw interrupts.signal.aborted ? error : await explainedFailure(error, address, failureCode);
  } finally {
    client.close();
  }
}

/** Where to call, and with which token. @throws UsageError if a token or a profile cannot be used */
export function accessOf(flags: ClientFlags, env: Io["env"]): Access {
  try {
    return findAccess(flags, env);
  } catch (error) {
    if (error instanceof AccessError) throw new UsageError(error.message, { cause: error });
    throw error;
  }
}

/** The tenant to act in, which is sent in a header. */
function tenantOf({ tenant }: ClientFlags, env: Io["env"]): string | undefined {
  const name = tenant ?? (env.BERTH_TENANT || undefined);
  if (name === undefined || /^[!-~]+$/.test(name)) return name;
  const source = tenant === undefined ? "BERTH_TENANT" : "--tenant";
  throw new UsageError(`${source}: ${JSON.stringify(name)} is not the name of a tenant`);
}

/** The authorities to trust instead of the public ones. */
function trustedBy({ tlsCa }: ClientFlags, access: Access, env: Io["env"]): Buffer | undefined {
  const file = tlsCa ?? access.tlsCa ?? (env.BERTH_TLS_CA || undefined);
  if (file === undefined) return undefined;
  const source =
    tlsCa !== undefined ? "--tls-ca" : access.tlsCa !== undefined ? "tls-ca of the profile" : "BERTH_TLS_CA";
  try {
    const pem = readFileSync(file);
    if (pem.includes("-----BEGIN CERTIFICATE-----")) return pem;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new UsageError(`${source}: ${file} cannot be read (${code})`, { cause: error });
  }
  throw new UsageError(`${source}: ${file} holds no certificate; name a file in PEM`);
}
