import type { JsonObject, JsonValue, MessageInitShape } from "@bufbuild/protobuf";
import { type Duration, durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import type { ExecRequestSchema } from "../../gen/ts/berth/v1/process_pb.js";
import { parseDuration, parseKeyValue, parseWord, ValueError } from "../config/values.ts";
import { UsageError } from "./exit.ts";
import { type ClientFlags, clientCommand } from "./host.ts";

/** Collects the values of a repeated flag. */
export function collect(text: string, before: readonly string[] | undefined): string[] {
  return [...(before ?? []), text];
}

/**
 * Parses a flag's value. Undefined if the flag is not set.
 * @throws UsageError that names the flag and says what to write
 */
export function flagValue<T>(
  flag: string,
  text: string | undefined,
  read: (text: string) => T,
): T | undefined {
  if (text === undefined) return undefined;
  try {
    return read(text);
  } catch (error) {
    if (error instanceof ValueError) throw new UsageError(`${flag}: ${error.message}`, { cause: error });
    throw error;
  }
}

/**
 * The id that a flag names. Undefined if the flag is not set. Refuses an empty id, for example from an unset variable,
 * because the service would treat it as no id.
 */
export function idValue(flag: string, text: string | undefined): string | undefined {
  if (text === "") throw new UsageError(`${flag}: the id is empty; name one, or leave ${flag} out`);
  return text;
}

/** The duration that a flag sets, at least `minMs`. Undefined if the flag is not set. */
export function durationValue(flag: string, text: string | undefined, minMs = 1): Duration | undefined {
  return flagValue(flag, text, (given) => durationFromMs(parseDuration(given, { minMs })));
}

/** Parses the values of a repeated flag: see {@link flagValue}. */
export function flagValues<T>(flag: string, texts: readonly string[] = [], read: (text: string) => T): T[] {
  return texts.map((text) => flagValue(flag, text, read) as T);
}

/** Parses the values of a repeated `KEY=VALUE` flag. The last value of a key counts. */
export function keyValues(flag: string, texts?: readonly string[]): Record<string, string> {
  return Object.fromEntries(flagValues(flag, texts, parseKeyValue));
}

/** Converts the words of a repeated flag to what they stand for. */
export function wordValues<T>(
  flag: string,
  texts: readonly string[] | undefined,
  values: Readonly<Record<string, T>>,
): T[] {
  return flagValues(flag, texts, (text) => values[parseWord(text, Object.keys(values))] as T);
}

/** Flags that say how to run a command in a sandbox. */
export interface ExecFlags extends SecretFlags {
  readonly env?: readonly string[];
  readonly workdir?: string;
  readonly user?: string;
}

/** Flags for secrets. */
export interface SecretFlags {
  readonly secretEnv?: readonly string[];
  readonly redactSecrets?: boolean;
}

/** Adds the flags for secrets. @param where their values are redacted */
export function addSecretFlags(command: Command, where: string): Command {
  return command
    .option(
      "--secret-env <NAME=SECRET>",
      "environment variable set to a secret of the service, may be repeated",
      collect,
    )
    .option("--redact-secrets", `replace secrets by [redacted] in ${where}`);
}

/** Adds the flags of commands that run something in an existing sandbox. */
export function addExecFlags(command: Command): Command {
  const withEnv = command.option("-e, --env <KEY=VALUE>", "environment variable, may be repeated", collect);
  return addSecretFlags(withEnv, "its environment")
    .option("-w, --workdir <dir>", "directory to start in (default: the sandbox's)")
    .option("-u, --user <user>", "user to run as: a name or uid[:gid] (default: the sandbox's)");
}

/** The part of a request that the flags set. */
export function execRequestOf(sandboxId: string, flags: ExecFlags) {
  return {
    sandboxId,
    env: keyValues("--env", flags.env),
    secretEnv: keyValues("--secret-env", flags.secretEnv),
    redactSecrets: flags.redactSecrets,
    workingDir: flags.workdir,
    user: flags.user,
  } satisfies MessageInitShape<typeof ExecRequestSchema>;
}

/** The words after the sandbox's id: the command, with or without `--` before it. May be empty. */
export function argvOf(words: readonly string[]): string[] {
  return words.slice(words[0] === "--" ? 1 : 0);
}

/** The flags of commands about sessions. */
export interface WorkerFlags extends ClientFlags {
  readonly worker?: string;
}

/** A command about a worker's sessions. */
export function workerCommand(name: string): Command {
  return clientCommand(name).option(
    "-w, --worker <id>",
    'whose sessions (env BERTH_WORKER, default "default")',
  );
}

/** The worker whose sessions a command is about. */
export function workerOf(flags: WorkerFlags, env: NodeJS.ProcessEnv): string {
  return idValue("--worker", flags.worker) ?? (env.BERTH_WORKER || "default");
}

/** Parses a flag's value as a JSON object. */
export function jsonObject(flag: string, text: string): JsonObject {
  const value = json(flag, text);
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  throw new UsageError(`${flag}: it is not a JSON object; write for instance {"cwd": "/tmp"}`);
}

/** Parses `NAME=TEXT` and `NAME:=JSON`. The last value of a name counts. */
export function toolParams(words: readonly string[]): JsonObject {
  const params = words.map((word): [string, JsonValue] => {
    const found = /^([^=:]+)(:?)=(.*)$/s.exec(word);
    if (found === null) throw new UsageError(`${JSON.stringify(word)}: write NAME=TEXT, or NAME:=JSON`);
    const [, name = "", isJson, value = ""] = found;
    return [name, isJson ? json(name, value) : value];
  });
  // An assignment to `__proto__` would be lost.
  return Object.fromEntries(params);
}

function json(name: string, text: string): JsonValue {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new UsageError(`${name}: it is not JSON`, { cause });
  }
}

/** Whether an id has the form of the service's process ids. Other ids may have any form. */
export function isProcessId(id: string): boolean {
  return /^prc_[a-z2-7]{20}$/.test(id);
}
