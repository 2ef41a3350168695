import type { Process } from "../../gen/ts/berth/v1/process_pb.js";
import { quoteIfNeeded } from "../base/shell-quote.ts";
import { visible } from "./format.ts";

/** A process's command on one line, as a shell would take it, safe to be shown, at most so many characters long. */
export function commandText(command: Process["command"], most: number): string {
  const text =
    command.case === "argv" ? command.value.args.map(quoteIfNeeded).join(" ") : (command.value ?? "");
  const line = visible(text);
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}
