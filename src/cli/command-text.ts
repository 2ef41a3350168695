import type { Process } from "../../gen/ts/berth/v1/process_pb.js";

const PLAIN_WORD = /^[\w@%+=:,./-]+$/;
/** What would act on a terminal, or change how the rest is read. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** A process's command on one line, as a shell would take it, safe to be shown, at most so many characters long. */
export function commandText(command: Process["command"], most: number): string {
  const text = command.case === "argv" ? command.value.args.map(quote).join(" ") : (command.value ?? "");
  const line = text.replace(UNSEEN, escapeOf);
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

function quote(word: string): string {
  return PLAIN_WORD.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function escapeOf(character: string): string {
  if (character === "\n") return "\\n";
  if (character === "\t") return "\\t";
  return `\\u{${character.codePointAt(0)?.toString(16)}}`;
}
