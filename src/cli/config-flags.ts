import { type Command, Option } from "commander";
import { CONFIG_FILE_FLAG, type Flags, variableOf } from "../config/load.ts";
import { CONFIG_OPTIONS, type ConfigOption } from "../config/options.ts";
import { collect } from "./flags.ts";

/** Adds a flag for every option of the service. */
export function addConfigFlags(command: Command): Command {
  command.option(
    `--${CONFIG_FILE_FLAG} <FILE>`,
    `Options in JSON, keys as the flags without dashes: {"max-sandboxes": 20}. (env ${variableOf(CONFIG_FILE_FLAG)})`,
  );
  for (const option of Object.values<ConfigOption<unknown>>(CONFIG_OPTIONS)) {
    for (const flag of flagsOf(option)) command.addOption(flag);
  }
  return command;
}

/** What the command line said of the service's options, by their names. */
export function configFlags(command: Command): Flags {
  const said = command.opts<Record<string, string | string[] | boolean>>();
  return Object.fromEntries(command.options.map((option) => [nameOf(option), said[option.attributeName()]]));
}

function flagsOf(option: ConfigOption<unknown>): Option[] {
  const { name, group, kind } = option;
  const hint = option.kind === "value" ? fallbackOf(option.fallback) : "";
  const repeat = kind === "list" ? " May be repeated." : "";
  const help = `${option.help}${repeat} (env ${variableOf(name)}${hint})`;
  if (option.kind === "switch") {
    const off = new Option(`--no-${name}`).hideHelp();
    return [new Option(`--${name}`, help).helpGroup(`${group}:`), off];
  }
  const flag = new Option(`--${name} <${option.placeholder}>`, help).helpGroup(`${group}:`);
  return [kind === "list" ? flag.argParser(collect) : flag];
}

function fallbackOf(fallback: string | { readonly shown: string }): string {
  const text = typeof fallback === "string" ? fallback : fallback.shown;
  return text === "" ? "" : `, default ${text}`;
}

function nameOf({ long }: Option): string {
  return (long ?? "").replace(/^--(no-)?/, "");
}
