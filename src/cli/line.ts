import type { Command, Option } from "commander";

/** A command line, split at the name of the command. */
interface Line {
  /** The client options before the command. */
  readonly before: readonly string[];
  /** The first word that is neither an option nor an option's value. Undefined if there is none. */
  readonly name: string | undefined;
  readonly rest: readonly string[];
}

/** Finds the command in a line. Options may come before it. */
export function splitLine(words: readonly string[], before: readonly Option[]): Line {
  const count = countOptions(words, before);
  return { before: words.slice(0, count), name: words[count], rest: words.slice(count + 1) };
}

/**
 * Moves the options of a line to where commander accepts them, so that users may write them anywhere: options before
 * the command, or between its words, move behind it. Options after the operands of a command that passes the rest of
 * its line on move before them.
 */
export function arrangeLine({ before, name = "", rest }: Line, root: Command, anywhere: readonly Option[]) {
  const path = [name];
  const options = [...before];
  let words = [...rest];
  let command = root;
  for (;;) {
    const count = countOptions(words, anywhere);
    const child = command.commands.find((one) => one.name() === words[count]);
    if (child === undefined) break;
    options.push(...words.slice(0, count));
    path.push(child.name());
    words = words.slice(count + 1);
    command = child;
  }
  const operands: string[] = [];
  const most = command.registeredArguments.filter(({ variadic }) => !variadic).length;
  for (;;) {
    options.push(...words.splice(0, countOptions(words, command.options, { unknown: true })));
    const [word] = words;
    if (operands.length === most || word === undefined || word === "--") break;
    operands.push(word);
    words.shift();
  }
  return [...path, ...options, ...operands, ...words];
}

/**
 * The line that shows the help of the command with these names, such as `session create`. If a name is unknown, it
 * stays as the last word, so that it is refused.
 */
export function helpLine(names: readonly string[], program: Command): string[] {
  const path: string[] = [];
  let command = program;
  for (const name of names) {
    if (command.commands.length === 0) break;
    path.push(name);
    const child = command.commands.find((one) => one.name() === name);
    if (child === undefined) return path;
    command = child;
  }
  return [...path, "--help"];
}

/** The number of words at the start that are options or their values. */
function countOptions(
  words: readonly string[],
  options: readonly Option[],
  { unknown = false }: { readonly unknown?: boolean } = {},
): number {
  let count = 0;
  for (;;) {
    const word = words[count];
    if (word === undefined || word === "-" || word === "--" || !word.startsWith("-")) return count;
    const values = valuesBehind(word, options);
    if (values === undefined && !unknown) return count;
    count = Math.min(words.length, count + 1 + (values ?? 0));
  }
}

/**
 * How many values follow an option's word, which may combine several short options or include the value. Undefined: the
 * option is unknown.
 */
function valuesBehind(word: string, options: readonly Option[]): number | undefined {
  if (word.startsWith("--")) {
    const [name, value] = word.split("=", 2);
    const option = options.find(({ long }) => long === name);
    return option && (option.required && value === undefined ? 1 : 0);
  }
  for (const [index, letter] of [...word].entries()) {
    if (index === 0) continue;
    const option = options.find(({ short }) => short === `-${letter}`);
    if (option === undefined) return undefined;
    if (option.required) return index === word.length - 1 ? 1 : 0;
  }
  return 0;
}
