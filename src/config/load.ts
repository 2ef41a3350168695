import { z } from "zod";
import { BerthError } from "../base/errors.ts";
import { nearest } from "../base/nearest.ts";
import { formatListenAddress, isLocalAddress } from "../server/listen-address.ts";
import { CONFIG_OPTIONS, type Config, type ConfigOption } from "./options.ts";
import { readGivenFile, readProblem } from "./read-file.ts";
import { parseSwitch, ValueError } from "./values.ts";

/** The values from the command line, by option name: a text, the texts of a list, or whether a switch is on. */
export type Flags = Readonly<Record<string, string | readonly string[] | boolean | undefined>>;

/** The sources of values. The first source with a value wins: flag, environment, file, default. */
interface ConfigSources {
  readonly flags: Flags;
  readonly env: Readonly<Record<string, string | undefined>>;
}

interface Given {
  readonly texts: readonly string[];
  /** For instance `--idle-timeout`, `BERTH_IDLE_TIMEOUT` or `berth.json: idle-timeout`. */
  readonly source: string;
}

/** A configuration file: its values as texts, by key. Several for a list. */
interface ConfigFile {
  /** Empty: there is no file. */
  readonly path: string;
  readonly values: Readonly<Record<string, readonly string[]>>;
}

const scalar = z.union([z.string(), z.number(), z.boolean()]);
const fileShape = z.record(z.string(), z.union([scalar, z.array(scalar)]));

/** The flag that names a configuration file, without its dashes. */
export const CONFIG_FILE_FLAG = "config";

/** The environment variable of an option. */
export function variableOf(name: string): string {
  return `BERTH_${name.toUpperCase().replaceAll("-", "_")}`;
}

/**
 * Loads the configuration from its sources.
 * @throws BerthError `INVALID_ARGUMENT` that names the invalid flag, variable or file key, and what is allowed
 */
export function loadConfig(sources: ConfigSources): Config {
  const options = Object.entries(CONFIG_OPTIONS) as [keyof Config, ConfigOption<unknown>][];
  const file = readFileOf(
    sources,
    options.map(([, option]) => option.name),
  );
  const values: Partial<Record<keyof Config, unknown>> = {};
  const givenAt: Partial<Record<keyof Config, string>> = {};
  for (const [key, option] of options) {
    const value = given(option, sources, file);
    values[key] = readOption(option, value);
    givenAt[key] = value?.source;
  }
  const config = values as Config;
  checkTogether(config, givenAt);
  return config;
}

/** Variables of Berth's clients. */
const CLIENT_VARIABLES: ReadonlySet<string> = new Set(
  "ADDRESS CLIENT_CERT CLIENT_KEY PROFILE TENANT TLS_CA TOKEN TOKEN_FILE WORKER"
    .split(" ")
    .map((name) => `BERTH_${name}`),
);

/**
 * Variables that belong to no option, but whose names are close to one, such as `BERTH_LISTN`, with the variable that
 * is probably meant. Other variables that begin with `BERTH_` may come from elsewhere: Kubernetes sets some for a
 * service called `berth`.
 */
export function misspelledVariables(
  env: ConfigSources["env"],
): { readonly variable: string; readonly meant: string }[] {
  const names = [...Object.values(CONFIG_OPTIONS).map(({ name }) => name), CONFIG_FILE_FLAG];
  const known = new Set(names.map(variableOf));
  return Object.keys(env).flatMap((variable) => {
    if (!variable.startsWith("BERTH_") || known.has(variable) || CLIENT_VARIABLES.has(variable)) return [];
    const meant = nearest(variable.slice("BERTH_".length), names);
    return meant === undefined ? [] : [{ variable, meant: variableOf(meant) }];
  });
}

function readFileOf({ flags, env }: ConfigSources, names: readonly string[]): ConfigFile {
  const path = flags[CONFIG_FILE_FLAG] ?? (env[variableOf(CONFIG_FILE_FLAG)] || undefined);
  if (typeof path !== "string") return { path: "", values: {} };
  return readConfigFile(path, names);
}

/**
 * Reads a configuration file: one JSON object, with flags without their dashes as keys, values as on the command line,
 * and lists as arrays.
 * @throws BerthError `INVALID_ARGUMENT` that names the file, and the key if one is invalid
 */
function readConfigFile(path: string, keys: readonly string[]): ConfigFile {
  const found = fileShape.safeParse(parseJson(path));
  if (!found.success) {
    const at = found.error.issues[0]?.path.join(".");
    throw fileFault(
      path,
      at
        ? `${at} must be a text, a number, true, false or a list of these`
        : 'it must contain one JSON object, such as {"max-sandboxes": 20}',
    );
  }
  const values: Record<string, string[]> = {};
  for (const [key, value] of Object.entries(found.data)) {
    if (!keys.includes(key)) {
      const meant = nearest(key, keys);
      throw fileFault(path, `there is no option "${key}"${meant ? ` (did you mean "${meant}"?)` : ""}`);
    }
    values[key] = [value].flat().map(String);
  }
  return { path, values };
}

function parseJson(path: string): unknown {
  let text: string;
  let value: unknown;
  try {
    // Without the byte order mark that some editors of Windows write.
    text = new TextDecoder().decode(readGivenFile(path));
    value = JSON.parse(text);
  } catch (error) {
    throw fileFault(
      path,
      error instanceof SyntaxError ? `it is not JSON (${error.message})` : readProblem(error),
    );
  }
  const twice = repeatedKey(text);
  if (twice !== undefined) throw fileFault(path, `${twice} appears twice; remove one`);
  return value;
}

/** A key that valid JSON has twice, in quotes. `JSON.parse` would silently take the last one. */
function repeatedKey(text: string): string | undefined {
  const keys = new Set<string>();
  for (const [, string = "", colon] of text.matchAll(/("(?:[^"\\]|\\.)*")(\s*:)?/g)) {
    if (colon === undefined) continue;
    if (keys.has(string)) return string;
    keys.add(string);
  }
  return undefined;
}

function fileFault(path: string, problem: string): BerthError {
  return new BerthError("INVALID_ARGUMENT", `Configuration file ${path}: ${problem}.`);
}

function given(
  { name, kind }: ConfigOption<unknown>,
  { flags, env }: ConfigSources,
  file: ConfigFile,
): Given | undefined {
  const flag = flags[name];
  if (flag !== undefined) return { texts: [flag].flat().map(String), source: `--${name}` };
  const variable = variableOf(name);
  const text = env[variable];
  if (text !== undefined && text !== "") {
    // In a variable, the elements of a list are separated by commas.
    const texts =
      kind === "list"
        ? text
            .split(",")
            .map((part) => part.trim())
            .filter(Boolean)
        : [text];
    return { texts, source: variable };
  }
  const texts = file.values[name];
  return texts && { texts, source: `${file.path}: ${name}` };
}

function readOption<T>(option: ConfigOption<T>, value: Given | undefined): T {
  try {
    if (option.kind === "list") return option.read(value?.texts ?? []);
    const [text, ...more] = value?.texts ?? [];
    if (more.length > 0 || (value && text === undefined)) throw new ValueError("it takes exactly one value");
    if (option.kind === "switch") return option.read(text !== undefined && parseSwitch(text));
    if (text !== undefined) return option.read(text);
    return typeof option.fallback === "string" ? option.read(option.fallback) : option.fallback.make();
  } catch (error) {
    if (error instanceof ValueError || error instanceof BerthError) {
      throw atFault(value?.source ?? `default of --${option.name}`, error.message, error);
    }
    throw error;
  }
}

/** Checks that the options are consistent. */
function checkTogether(config: Config, givenAt: Readonly<Partial<Record<keyof Config, string>>>): void {
  const { listen, tlsCert, tlsKey, tlsClientCa, tokens, insecure, auditLog, auditReads } = config;
  if (tlsCert !== undefined && tlsKey === undefined) {
    throw atFault(givenAt.tlsCert ?? "--tls-cert", "it requires --tls-key as well");
  }
  if (tlsKey !== undefined && tlsCert === undefined) {
    throw atFault(givenAt.tlsKey ?? "--tls-key", "it requires --tls-cert as well");
  }
  if (tlsClientCa !== undefined && tlsCert === undefined) {
    throw atFault(givenAt.tlsClientCa ?? "--tls-client-ca", "it requires --tls-cert and --tls-key as well");
  }
  if (auditReads && auditLog === undefined) {
    throw atFault(givenAt.auditReads ?? "--audit-reads", "it requires --audit-log as well");
  }
  if (isLocalAddress(listen) || insecure) return;
  const dangers = [
    tokens === undefined && "without tokens anyone who reaches it can run code",
    tlsCert === undefined && "without TLS anyone on the network path can read everything, tokens included",
  ].filter((danger) => danger !== false);
  if (dangers.length === 0) return;
  const missing = [tokens === undefined && "--tokens", tlsCert === undefined && "--tls-cert and --tls-key"];
  throw atFault(
    givenAt.listen ?? "--listen",
    `${formatListenAddress(listen)} can be reached from other machines; ${dangers.join(", and ")}. ` +
      `Give ${missing.filter((flag) => flag !== false).join(", ")}, listen on 127.0.0.1:PORT or unix:PATH, or accept it with --insecure`,
  );
}

function atFault(source: string, problem: string, cause?: unknown): BerthError {
  return new BerthError("INVALID_ARGUMENT", `${source}: ${problem.replace(/\.$/, "")}.`, {
    metadata: { source },
    cause,
  });
}
