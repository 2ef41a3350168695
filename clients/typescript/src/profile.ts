import { readFileSync, statSync } from "node:fs";
import { homedir } from "node:os";
import path from "node:path";

/** What a client was given; the rest comes from the environment and from a profile. */
export interface GivenAccess {
  readonly address?: string | undefined;
  /** "": none, even if the environment has one. */
  readonly token?: string | undefined;
  readonly tokenFile?: string | undefined;
  readonly profile?: string | undefined;
}

/** Where a service is, and who calls it. */
export interface Access {
  /** Undefined: none was given. */
  readonly address: string | undefined;
  /** Returns the token to send with a call. Reads it again if it is in a file, which may be replaced at any time. */
  readonly token: () => string | undefined;
  /** File with the authorities that the profile in use trusts, in PEM. */
  readonly tlsCa: string | undefined;
  /** Files with the certificate that the profile in use presents, and its key, in PEM. Both are set, or neither. */
  readonly clientCert: string | undefined;
  readonly clientKey: string | undefined;
}

/** What a client was given cannot be used. The message says what is wrong, and with what. */
export class AccessError extends TypeError {}

type Env = Readonly<Record<string, string | undefined>>;

const KEYS = ["address", "tls-ca", "client-cert", "client-key", "token", "token-file"] as const;
type Profile = Readonly<Partial<Record<(typeof KEYS)[number], string>>>;

/**
 * Decides where to call and with which token. A given address, or BERTH_ADDRESS, overrides all of BERTH_PROFILE: the
 * token of a profile is for the address of that profile. Order of tokens: the given one or its file, the profile's,
 * BERTH_TOKEN, BERTH_TOKEN_FILE.
 * @throws AccessError for a profile or a file that cannot be used
 */
export function findAccess(given: GivenAccess, env: Env): Access {
  const profile = profileOf(given, env);
  const token =
    fixed(given.token) ??
    fromFile("token file", given.tokenFile) ??
    fixed(profile.token) ??
    fromFile("token-file of the profile", profile["token-file"]) ??
    fixed(env.BERTH_TOKEN || undefined) ??
    fromFile("BERTH_TOKEN_FILE", env.BERTH_TOKEN_FILE || undefined);
  return {
    address: given.address || profile.address || env.BERTH_ADDRESS || undefined,
    token: token ?? (() => undefined),
    tlsCa: profile["tls-ca"],
    clientCert: profile["client-cert"],
    clientKey: profile["client-key"],
  };
}

function profileOf({ address, profile }: GivenAccess, env: Env): Profile {
  if (profile && address) {
    throw new AccessError(
      "a profile and an address are both given: name one of them, since a profile has an address",
    );
  }
  if (profile) return readProfile(profile, env);
  return env.BERTH_PROFILE && !address && !env.BERTH_ADDRESS ? readProfile(env.BERTH_PROFILE, env) : {};
}

/** Where profiles are: `$XDG_CONFIG_HOME/berth/profiles.json`, by default below `~/.config`. */
export function profilesFile(env: Env): string {
  const home = env.XDG_CONFIG_HOME || path.join(env.HOME || homedir(), ".config");
  return path.join(home, "berth", "profiles.json");
}

function readProfile(name: string, env: Env): Profile {
  const file = profilesFile(env);
  const profiles = readObject(file, readText(`profile "${name}"`, file));
  const found = Object.hasOwn(profiles, name) ? profiles[name] : undefined;
  if (found === undefined) {
    const names = Object.keys(profiles).join(", ") || "none";
    throw new AccessError(`${file} has no profile "${name}"; it has: ${names}`);
  }
  const fault = (problem: string) => new AccessError(`profile "${name}" in ${file}: ${problem}`);
  if (!isObject(found)) throw fault('it must be an object, as {"address": "https://berth.example.com"}');
  for (const [key, value] of Object.entries(found)) {
    if (!KEYS.some((known) => known === key))
      throw fault(`there is no key "${key}"; there are: ${KEYS.join(", ")}`);
    if (typeof value !== "string" || value === "") throw fault(`${key} must be a text`);
  }
  const profile: Profile = found;
  if (profile.address === undefined) throw fault("it has no address");
  if (profile.token !== undefined && profile["token-file"] !== undefined) {
    throw fault("it has both token and token-file; leave one of them out");
  }
  if ((profile["client-cert"] === undefined) !== (profile["client-key"] === undefined)) {
    throw fault("client-cert and client-key belong together; it has only one of them");
  }
  const place = (key: keyof Profile) => {
    const value = profile[key];
    return value === undefined ? {} : { [key]: path.resolve(path.dirname(file), value) };
  };
  return {
    ...profile,
    ...place("tls-ca"),
    ...place("client-cert"),
    ...place("client-key"),
    ...place("token-file"),
  };
}

function readObject(file: string, text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // The parser's own words quote the file, which may hold tokens.
    throw new AccessError(`${file} is not JSON`);
  }
  if (isObject(value)) return value;
  throw new AccessError(
    `${file} must contain an object of profiles, such as {"work": {"address": "https://berth.example.com"}}`,
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function fixed(token: string | undefined): Access["token"] | undefined {
  if (token === undefined) return undefined;
  const text = token === "" ? undefined : checked(token, "the token");
  return () => text;
}

/** The first time, the file must hold a token. Later, what cannot be used leaves the previous token in force. */
function fromFile(what: string, file: string | undefined): Access["token"] | undefined {
  if (file === undefined) return undefined;
  let token = readToken(what, file);
  // Wherever the program works later.
  const place = path.resolve(file);
  return () => {
    try {
      // What the shell pipes in can be read only once.
      if (statSync(place).isFile()) token = readToken(what, place);
    } catch {}
    return token;
  };
}

function readToken(what: string, file: string): string {
  const token = readText(what, file).trim();
  if (token === "") throw new AccessError(`${what}: ${file} is empty`);
  return checked(token, `${what}: ${file}`);
}

/** Reads a file, without the byte order mark that some editors of Windows write. @param what names it in errors */
export function readText(what: string, file: string): string {
  try {
    return new TextDecoder().decode(readFileSync(file));
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new AccessError(`${what}: ${file} cannot be read (${code ?? "unknown error"})`, { cause });
  }
}

/** What a header accepts. The error never contains the text itself. */
function checked(token: string, what: string): string {
  const text = token.trim();
  if (/^[\x21-\x7e]{1,4096}$/.test(text)) return text;
  throw new AccessError(
    `${what} is not a token: one word of printable ASCII, as berth token create prints it`,
  );
}
