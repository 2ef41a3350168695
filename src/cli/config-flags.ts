import { type Command, Option } from "commander";
import { CONFIG_FILE_FLAG, type Flags, variableOf } from "../config/load.ts";
import { CONFIG_OPTIONS, type Config, type ConfigOption } from "../config/options.ts";
import { collect } from "./flags.ts";

/**
 * Adds a flag for every option of the service.
 * @param shown options to show in the help. Default: all.
 */
export function addConfigFlags(command: Command, shown?: readonly (keyof Config)[]): Command {
  command.option(
    `--${CONFIG_FILE_FLAG} <FILE>`,
    `Options in JSON, keys as the flags without dashes: {"max-sandboxes": 20}. (env ${variableOf(CONFIG_FILE_FLAG)})`,
  );
  for (const [key, option] of Object.entries<ConfigOption<unknown>>(CONFIG_OPTIONS)) {
    const isShown = shown?.some((name) => name === key) ?? true;
    for (const flag of flagsOf(option)) command.addOption(isShown ? flag : flag.hideHelp());
  }
  return command;
}

/** The service's options on the command line, by name. */
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
