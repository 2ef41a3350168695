import type { Command, Option } from "commander";
import { CLIENT_OPTIONS, type ClientFlags } from "../host.ts";

/** A word that may be at the cursor. */
export interface Candidate {
  /** The whole word. */
  readonly value: string;
  /** For shells that show descriptions. May be empty. */
  readonly description: string;
}

/** How to complete a word. */
interface Completion {
  readonly candidates: readonly Candidate[];
  /** Whether local files may be there, too. */
  readonly files: boolean;
}

/** What has been typed, as far as it is understood. */
export interface Typed {
  /** The command's path, for example `session ls`. */
  readonly command: string;
  /** The operands before the cursor. */
  readonly operands: readonly string[];
  /** The flags that say how to reach the service. */
  readonly flags: ClientFlags;
  /** The part of the word at the cursor that has been typed. */
  readonly current: string;
}

/** The sources of candidates. */
interface Sources {
  /** Every command by name. */
  readonly commands: Readonly<Record<string, () => Promise<Command>>>;
  /** Whether commands are described. For that all of them must be loaded. */
  readonly described: boolean;
  /** The service's things of a kind. Undefined if the service has no such kind. */
  readonly live: (kind: string, typed: Typed) => Promise<readonly Candidate[] | undefined>;
}

const NOTHING: Completion = { candidates: [], files: false };

/**
 * Placeholders of values that are local files. Those of the service's options are in capitals. Files in a sandbox have
 * other placeholders.
 */
const FILE = /^(path|file|source|target|FILE|DIR|PATH|FILE\|DIR)$/;

/** Completes the last of the words after the program's name. It never fails: unknown input gets no candidates. */
export async function complete(words: readonly string[], sources: Sources): Promise<Completion> {
  const { commands, live } = sources;
  const current = words.at(-1) ?? "";
  const path: string[] = [];
  const operands: string[] = [];
  let command: Command | undefined;
  /** The option that expects a value. */
  let awaiting: Option | undefined;
  let optionsOver = false;
  const flags: Record<string, string> = {};
  const keep = (option: Option, value: string) => {
    if (CLIENT_OPTIONS.some(({ long }) => long === option.long)) flags[option.attributeName()] = value;
  };
  const options = () => command?.createHelp().visibleOptions(command) ?? CLIENT_OPTIONS;
  for (const word of words.slice(0, -1)) {
    if (awaiting) {
      keep(awaiting, word);
      awaiting = undefined;
    } else if (!optionsOver && word === "--") optionsOver = true;
    else if (!optionsOver && word.startsWith("-") && word !== "-") {
      const [name, value] = splitOption(word);
      const option = options().find(({ long, short }) => long === name || short === name);
      if (option?.required && value !== undefined) keep(option, value);
      else if (option?.required) awaiting = option;
    } else if (command === undefined || command.commands.length > 0) {
      const make = Object.hasOwn(commands, word) ? commands[word] : undefined;
      command = command ? command.commands.find((one) => one.name() === word) : await make?.();
      if (command === undefined) return NOTHING;
      path.push(word);
    } else operands.push(word);
  }
  const typed: Typed = { command: path.join(" "), operands, flags, current };
  const ask = async (kind: string, prefix = ""): Promise<Completion> => {
    const found = await live(kind, typed);
    const files = FILE.test(kind);
    return { candidates: found ? fitting(found, current, prefix) : [], files };
  };
  const valuesOf = (option: Option, prefix = ""): Promise<Completion> | Completion =>
    option.argChoices
      ? { candidates: fitting(option.argChoices.map(named), current, prefix), files: false }
      : ask(kindOf(option), prefix);

  if (awaiting) return valuesOf(awaiting);
  if (!optionsOver && current.startsWith("-")) {
    const [name, value] = splitOption(current);
    const option = options().find(({ long }) => long === name);
    if (value !== undefined) return option?.required ? valuesOf(option, `${name}=`) : NOTHING;
    return { candidates: fitting(options().map(ofOption), current), files: false };
  }
  if (command === undefined) return { candidates: fitting(await firstWords(sources), current), files: false };
  if (command.commands.length > 0) {
    const children = command.createHelp().visibleCommands(command);
    return { candidates: fitting(children.map(ofCommand), current), files: false };
  }
  const last = command.registeredArguments.at(-1);
  const argument = command.registeredArguments[operands.length] ?? (last?.variadic ? last : undefined);
  if (argument === undefined) return NOTHING;
  if (argument.argChoices)
    return { candidates: fitting(argument.argChoices.map(named), current), files: false };
  return ask(argument.name());
}

/** The kind of an option's value: its own name if that names a thing, otherwise its placeholder. */
function kindOf({ long, flags }: Option): string {
  const name = (long ?? "").replace(/^--/, "");
  const placeholder = /<([^>]*)>/.exec(flags)?.[1] ?? "";
  // `--id` is the id of something new.
  return placeholder !== "id" ? placeholder : name === "id" ? "" : name;
}

async function firstWords({ commands, described }: Sources): Promise<Candidate[]> {
  if (!described) return Object.keys(commands).map(named);
  return (await Promise.all(Object.values(commands).map((make) => make()))).map(ofCommand);
}

function splitOption(word: string): [name: string, value: string | undefined] {
  const at = word.startsWith("--") ? word.indexOf("=") : -1;
  return at < 0 ? [word, undefined] : [word.slice(0, at), word.slice(at + 1)];
}

function fitting(candidates: readonly Candidate[], current: string, prefix = ""): Candidate[] {
  return candidates
    .map((candidate) => ({ ...candidate, value: prefix + candidate.value }))
    .filter(({ value }) => value.startsWith(current));
}

function named(value: string): Candidate {
  return { value, description: "" };
}

function ofCommand(command: Command): Candidate {
  return { value: command.name(), description: firstSentence(command.summary() || command.description()) };
}

function firstSentence(text: string): string {
  return /^.*?(?=[.:;]?$|[.:;]\s)/s.exec(text)?.[0] ?? text;
}

function ofOption({ long, short, description }: Option): Candidate {
  return { value: long ?? short ?? "", description };
}
