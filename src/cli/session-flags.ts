import type { JsonObject } from "@bufbuild/protobuf";
import type { Command } from "commander";
import { UsageError } from "./exit.ts";
import { type ClientFlags, clientCommand } from "./host.ts";

/** The flags of every command about sessions. */
export interface WorkerFlags extends ClientFlags {
  readonly worker?: string;
}

/** Begins a command about a worker's sessions. */
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
  throw new UsageError(`${flag}: it is no JSON object; write for instance {"cwd": "/tmp"}`);
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
    throw new UsageError(`${name}: it is no JSON`, { cause });
  }
}
