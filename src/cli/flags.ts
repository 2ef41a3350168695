import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
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

/** Gathers the values of a flag that may be repeated. */
export function collect(text: string, before: readonly string[] | undefined): string[] {
  return [...(before ?? []), text];
}

/**
 * Reads a flag's value; undefined where it was not given.
 * @throws UsageError that names the flag and what to write
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
 * The id that a flag names; undefined where it was not given. An empty one, such as a variable that is not set, would
 * reach the service as none.
 */
export function idValue(flag: string, text: string | undefined): string | undefined {
  if (text === "") throw new UsageError(`${flag}: the id is empty; name one, or leave ${flag} out`);
  return text;
}

/** Reads the values of a repeated flag, as {@link flagValue} does one. */
export function flagValues<T>(flag: string, texts: readonly string[] = [], read: (text: string) => T): T[] {
  return texts.map((text) => flagValue(flag, text, read) as T);
}

/** Reads the values of a repeated `KEY=VALUE` flag. The last one of a key counts. */
export function keyValues(flag: string, texts?: readonly string[]): Record<string, string> {
  return Object.fromEntries(flagValues(flag, texts, parseKeyValue));
}

/** Reads the words of a repeated flag, each as what it stands for. */
export function wordValues<T>(
  flag: string,
  texts: readonly string[] | undefined,
  values: Readonly<Record<string, T>>,
): T[] {
  return flagValues(flag, texts, (text) => values[parseWord(text, Object.keys(values))] as T);
}

/** What the command line says of how a command is to run in a sandbox. */
export interface ExecFlags extends SecretFlags {
  readonly env?: readonly string[];
  readonly workdir?: string;
  readonly user?: string;
}

/** What the command line says of the secrets of what it starts. */
export interface SecretFlags {
  readonly secretEnv?: readonly string[];
  readonly redactSecrets?: boolean;
}

/** Adds the flags of every command that starts something with secrets. @param where their values are redacted */
export function addSecretFlags(command: Command, where: string): Command {
  return command
    .option(
      "--secret-env <NAME=SECRET>",
      "environment variable set to a secret of the service, may be repeated",
      collect,
    )
    .option("--redact-secrets", `replace secrets by [redacted] in ${where}`);
}

/** Adds the flags of every command that runs one in a sandbox that is there. */
export function addExecFlags(command: Command): Command {
  const withEnv = command.option("-e, --env <KEY=VALUE>", "environment variable, may be repeated", collect);
  return addSecretFlags(withEnv, "its environment")
    .option("-w, --workdir <dir>", "directory to start in (default: the sandbox's)")
    .option("-u, --user <user>", "user to run as: a name or uid[:gid] (default: the sandbox's)");
}

/** The part of a request that the flags make. */
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

/** What follows the sandbox's id: the command, with or without `--` before it. Empty where there is none. */
export function argvOf(words: readonly string[]): string[] {
  return words.slice(words[0] === "--" ? 1 : 0);
}

/** What the command line says of a sandbox to be made. */
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

/** The part of a spec that the flags make. */
export type SpecInit = MessageInitShape<typeof SandboxSpecSchema>;

/** Adds the flags that every command which makes a sandbox has. */
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

/** Adds the flag that makes a workspace the place where commands start. */
export function addWorkspaceFlag(command: Command): Command {
  return command.option("--workspace <id>", "workspace to mount at the working directory");
}

/** Where commands start by the service's own default. */
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

/** Makes a spec of what was said; the rest is the service's to fill in. */
export function specOf(flags: SpecFlags): SpecInit {
  const memoryBytes = flagValue("--memory", flags.memory, (text) => BigInt(parseSize(text)));
  const cpuMillis = flagValue("--cpus", flags.cpus, parseCpus);
  const duration = (text: string) => durationFromMs(parseDuration(text));
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
    idleTimeout: flagValue("--idle-timeout", flags.idleTimeout, duration),
    maxLifetime: flagValue("--max-lifetime", flags.maxLifetime, duration),
    runtime: flags.runtime,
    mounts: mountsOf(flags),
  };
}

/** The flags of every command about sessions. */
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

/** The worker that a command is about. */
export function workerOf(flags: WorkerFlags, env: NodeJS.ProcessEnv): string {
  return flags.worker ?? (env.BERTH_WORKER || "default");
}

/** Reads a JSON object from a flag. */
export function jsonObject(flag: string, text: string): JsonObject {
  const value = json(flag, text);
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as JsonObject;
  throw new UsageError(`${flag}: it is not JSON object; write for instance {"cwd": "/tmp"}`);
}

/** Reads `NAME=TEXT` and `NAME:=JSON`; the last one of a name counts. */
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
