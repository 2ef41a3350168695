import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import { type Duration, durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import type { ExecRequestSchema } from "../../gen/ts/berth/v1/process_pb.js";
import { NetworkMode, type SandboxSpecSchema } from "../../gen/ts/berth/v1/sandbox_pb.js";
import {
  parseCpus,
  parseDuration,
  parseKeyValue,
  parseSize,
  parseWord,
  ValueError,
} from "../config/values.ts";
import { UsageError } from "./exit.ts";
import { type ClientFlags, clientCommand } from "./host.ts";
import { type MountInit, parseMount, parseVolume } from "./mounts.ts";

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
function flagValues<T>(flag: string, texts: readonly string[] = [], read: (text: string) => T): T[] {
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

/** Flags that describe a new sandbox. */
export interface SpecFlags {
  readonly image?: string;
  readonly env?: readonly string[];
  readonly secretEnv?: readonly string[];
  readonly workdir?: string;
  readonly user?: string;
  readonly memory?: string;
  readonly cpus?: string;
  readonly network?: boolean;
  readonly egressDomain?: readonly string[];
  readonly label?: readonly string[];
  readonly idleTimeout?: string;
  readonly maxLifetime?: string;
  readonly runtime?: string;
  readonly volume?: readonly string[];
  readonly mount?: readonly string[];
  readonly workspace?: string;
}

/** The part of a spec that the flags set. */
export type SpecInit = MessageInitShape<typeof SandboxSpecSchema>;

/** Adds the flags of commands that create a sandbox. */
export function addSpecFlags(command: Command): Command {
  return command
    .option("--image <image>", "image to start from (default: the service's)")
    .option("-e, --env <KEY=VALUE>", "environment variable, may be repeated", collect)
    .option(
      "--secret-env <NAME=SECRET>",
      "environment variable set to a secret of the service, may be repeated",
      collect,
    )
    .option("-w, --workdir <dir>", "directory to start in, created if missing (default: /workspace)")
    .option("-u, --user <user>", "user to run as: a name or uid[:gid] (default: the image's)")
    .option("--memory <size>", "memory limit, such as 512MiB (default: the service's)")
    .option("--cpus <n>", "CPU limit, such as 0.5 (default: the service's)")
    .option("--network", "allow access to public addresses (default: no network)")
    .option(
      "--egress-domain <domain>",
      "allow access to this domain only: example.org, *.example.org or example.org:8443, may be repeated",
      collect,
    )
    .option("-l, --label <KEY=VALUE>", "label for `berth ls -l`, may be repeated", collect)
    .option("--runtime <name>", "OCI runtime that the operator allowed, such as runsc")
    .option(
      "-v, --volume <SOURCE:TARGET[:ro]>",
      "mount a workspace, or a directory of the service's machine by its absolute path, may be repeated",
      collect,
    )
    .option(
      "--mount <settings>",
      "the same, with named settings: type=workspace|bind,source=…,target=…[,readonly], may be repeated",
      collect,
    );
}

/** Adds the flag that mounts a workspace where commands start. */
export function addWorkspaceFlag(command: Command): Command {
  return command.option("--workspace <id>", "workspace to mount at the working directory");
}

/** The service's default working directory. */
const DEFAULT_WORKDIR = "/workspace";

function mountsOf({ volume = [], mount = [], workspace, workdir }: SpecFlags): MountInit[] {
  const own: MountInit[] =
    workspace === undefined
      ? []
      : [{ source: { case: "workspaceId", value: workspace }, target: workdir ?? DEFAULT_WORKDIR }];
  return [
    ...own,
    ...flagValues("--volume", volume, parseVolume),
    ...flagValues("--mount", mount, parseMount),
  ];
}

/** Creates a spec from the flags. The service fills in the rest. */
export function specOf(flags: SpecFlags): SpecInit {
  const memoryBytes = flagValue("--memory", flags.memory, (text) => BigInt(parseSize(text)));
  const cpuMillis = flagValue("--cpus", flags.cpus, parseCpus);
  return {
    image: flags.image,
    env: keyValues("--env", flags.env),
    secretEnv: keyValues("--secret-env", flags.secretEnv),
    workingDir: flags.workdir,
    user: flags.user,
    resources: { memoryBytes, cpuMillis },
    network: flags.network ? { mode: NetworkMode.EGRESS } : undefined,
    egressDomains: [...(flags.egressDomain ?? [])],
    labels: keyValues("--label", flags.label),
    idleTimeout: durationValue("--idle-timeout", flags.idleTimeout),
    maxLifetime: durationValue("--max-lifetime", flags.maxLifetime),
    runtime: flags.runtime,
    mounts: mountsOf(flags),
  };
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
  return flags.worker ?? (env.BERTH_WORKER || "default");
}

/** Parses a flag's value as a JSON object. */
export function jsonObject(flag: string, text: string): JsonObject {
  const value = json(flag, text);
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as JsonObject;
  throw new UsageError(`${flag}: it is not JSON object; write for instance {"cwd": "/tmp"}`);
}

/** Parses `NAME=TEXT` and `NAME:=JSON`. The last value of a name counts. */
export function toolParams(words: readonly string[]): JsonObject {
  const params: JsonObject = {};
  for (const word of words) {
    const found = /^([^=:]+)(:?)=(.*)$/s.exec(word);
    if (found === null) throw new UsageError(`${JSON.stringify(word)}: write NAME=TEXT, or NAME:=JSON`);
    const [, name = "", isJson, value = ""] = found;
    params[name] = isJson ? (json(name, value) as JsonObject) : value;
  }
  return params;
}

function json(name: string, text: string): unknown {
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
