import { Command, Option } from "commander";
import { type Access, AccessError, findAccess, readText } from "../../clients/typescript/src/profile.ts";
import type { ClientCertificate, ServiceClient } from "./client.ts";
import { Failed, UsageError } from "./exit.ts";
import type { Interrupts, Io } from "./io.ts";
import type { ServiceParts } from "./service.ts";
import { DEFAULT_ADDRESS, parseServiceAddress, type ServiceAddress } from "./service-address.ts";

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
  readonly clientCert?: string;
  readonly clientKey?: string;
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
const CLIENT_CERT = new Option(
  "--client-cert <file>",
  "file with the certificate to present to a service that requires one, in PEM (env BERTH_CLIENT_CERT)",
);
const CLIENT_KEY = new Option(
  "--client-key <file>",
  "file with the private key of --client-cert, in PEM (env BERTH_CLIENT_KEY)",
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

const ACCESS_OPTIONS = [ADDRESS, TLS_CA, CLIENT_CERT, CLIENT_KEY, TOKEN_FILE, PROFILE, TENANT];
/** The options with the certificate to present. */
export const CERTIFICATE_OPTIONS: readonly Option[] = [CLIENT_CERT, CLIENT_KEY];
/** The options of clients, which may also come before the command. */
export const CLIENT_OPTIONS: readonly Option[] = [...ACCESS_OPTIONS, JSON_OUTPUT];

/** Creates a command that calls a service. */
export function serviceCommand(name: string): Command {
  const command = new Command(name);
  for (const option of ACCESS_OPTIONS) command.addOption(option);
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
  const ca = trustedBy(flags, access, io.env, address);
  const certificate = await certificateOf(flags, access, io.env, address);
  if (address.overNetwork && !hasTls(address) && access.token() !== undefined) {
    // A service with TLS must not get the token in clear only to say so.
    const { missedTls } = await import("./tls-failure.ts");
    const missed = await missedTls(address, failureCode, { signal: interrupts.signal });
    interrupts.signal.throwIfAborted();
    if (missed !== undefined) throw missed;
  }
  // Loaded here, so that help and the like do not wait for them.
  const [{ connectTo }, { PlainHeaders }] = await Promise.all([
    import("./client.ts"),
    import("../base/plain-headers.ts"),
  ]);
  globalThis.Headers = PlainHeaders;
  const client = connectTo(address, {
    ca,
    certificate,
    token: access.token,
    tenant: tenantOf(flags, io.env),
  });
  try {
    return await work(client);
  } catch (error) {
    // On an interrupt, describe nothing and close the connection at once. Until then, calls could still end normally.
    if (interrupts.signal.aborted) throw error;
    throw await explained(error, address, failureCode);
  } finally {
    client.close();
  }
}

/** Describes a failure. An upgrade of the program may meanwhile have removed the file that does. */
async function explained(error: unknown, address: ServiceAddress, exitCode: number): Promise<unknown> {
  const failure = await import("./failure.ts").catch(() => undefined);
  if (failure !== undefined) return failure.explainedFailure(error, address, exitCode);
  return error instanceof Error ? new Failed(error.message, { exitCode, cause: error }) : error;
}

/** Where to call, and with which token. @throws UsageError if a token or a profile cannot be used */
export function accessOf(flags: ClientFlags, env: Io["env"]): Access {
  return usable(() => findAccess(flags, env));
}

/** Returns what a function reads. @throws UsageError if it cannot be used */
function usable<T>(read: () => T): T {
  try {
    return read();
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

function hasTls({ baseUrl }: ServiceAddress): boolean {
  return baseUrl.startsWith("https:");
}

/** Refuses an option for TLS if the address is called without. */
function requireTls(source: string, address: ServiceAddress): void {
  if (hasTls(address)) return;
  throw new UsageError(
    `${source}: ${address.text} is called without TLS, and so without a certificate; write https://HOST:PORT`,
  );
}

/** The authorities to trust instead of the public ones. @throws UsageError if they cannot be used */
function trustedBy(
  { tlsCa }: ClientFlags,
  access: Access,
  env: Io["env"],
  address: ServiceAddress,
): string | undefined {
  const found = namedFile("tls-ca", tlsCa, access.tlsCa, env.BERTH_TLS_CA);
  if (found === undefined) return undefined;
  const { source, file } = found;
  const pem = usable(() => readText(source, file));
  if (!pem.includes("-----BEGIN CERTIFICATE-----"))
    throw new UsageError(`${source}: ${file} holds no certificate; name a file in PEM`);
  // A variable may stay set for other addresses while a service of this machine is called.
  const isVariable = tlsCa === undefined && access.tlsCa === undefined;
  if (!isVariable || address.overNetwork) requireTls(source, address);
  return pem;
}

/** The certificate to present, with its key. @throws UsageError if they cannot be used */
export async function certificateOf(
  flags: ClientFlags,
  access: Access,
  env: Io["env"],
  address: ServiceAddress,
): Promise<ClientCertificate | undefined> {
  const cert = namedFile("client-cert", flags.clientCert, access.clientCert, env.BERTH_CLIENT_CERT);
  const key = namedFile("client-key", flags.clientKey, access.clientKey, env.BERTH_CLIENT_KEY);
  if (cert === undefined && key === undefined) return undefined;
  if (cert === undefined) throw new UsageError(`${key?.source}: it requires --client-cert as well`);
  if (key === undefined) throw new UsageError(`${cert.source}: it requires --client-key as well`);
  requireTls(cert.source, address);
  const { keyPairOf } = await import("../../clients/typescript/src/client-certificate.ts");
  const pem = ({ source, file }: NamedFile) => ({ name: source, file });
  const pair = usable(() => keyPairOf(pem(cert), pem(key))());
  const [{ createSecureContext }, { tlsProblem }] = await Promise.all([
    import("node:tls"),
    import("../base/tls-problem.ts"),
  ]);
  try {
    createSecureContext(pair);
  } catch (cause) {
    throw new UsageError(
      `${cert.source}: TLS cannot use ${cert.file} (${tlsProblem(cause)}); make another key, and a certificate for it`,
      { cause },
    );
  }
  return pair;
}

/** A file, and what named it. */
interface NamedFile {
  readonly source: string;
  readonly file: string;
}

/** A file by the first of its sources that names one. */
function namedFile(
  option: string,
  flag: string | undefined,
  inProfile: string | undefined,
  variable: string | undefined,
): NamedFile | undefined {
  if (flag !== undefined) return { source: `--${option}`, file: flag };
  if (inProfile !== undefined) return { source: `${option} of the profile`, file: inProfile };
  if (!variable) return undefined;
  return { source: `BERTH_${option.replace("-", "_").toUpperCase()}`, file: variable };
}
