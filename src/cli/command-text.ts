import type { Process } from "../../gen/ts/berth/v1/process_pb.js";
import { visible } from "./format.ts";

const PLAIN_WORD = /^[\w@%+=:,./-]+$/;
/** A process's command on one line, as a shell would take it, safe to be shown, at most so many characters long. */
export function commandText(command: Process["command"], most: number): string {
  const text = command.case === "argv" ? command.value.args.map(quote).join(" ") : (command.value ?? "");
  const line = visible(text);
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

function quote(word: string): string {
  return PLAIN_WORD.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
