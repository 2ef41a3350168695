import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import type { Command } from "commander";
import type { ServiceClient } from "../client.ts";
import { paintFor, type Tone } from "../colour.ts";
import { EXIT, UsageError } from "../exit.ts";
import { formatTable, messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";
import { parseTemplate, type Template } from "./template.ts";

/** What the command line says of how a list is written. */
export interface ListFlags extends ClientFlags {
  readonly quiet?: boolean;
  readonly format?: string;
}

/** One column of a list. Its text is safe to be shown. */
export interface Column<T> {
  readonly heading: string;
  text(item: T): string;
  /** How it is coloured, where colours are wanted. */
  tone?(item: T): Tone | undefined;
}

/** A kind of thing that is listed: `A` is the API's answer with all of them, `T` one of them. */
export interface ListKind<A extends DescMessage, T extends DescMessage> {
  readonly answer: A;
  readonly item: T;
  itemsOf(answer: MessageShape<A>): readonly MessageShape<T>[];
  /** What names an item to other commands. */
  idOf(item: MessageShape<T>): string;
  readonly columns: readonly Column<MessageShape<T>>[];
}

/** A command that lists things: as a table, as ids, by a template or as JSON. */
export function listCommand(name: string): Command {
  return clientCommand(name)
    .option("-q, --quiet", "print the ids alone")
    .option(
      "--format <format>",
      "json (one object a line), a template for each line such as '{{.ID}} {{.spec.image}}', or 'table TEMPLATE', " +
        "its columns separated by \\t",
    )
    .addHelpText(
      "after",
      "\nIn a template, {{.NAME}} is a column, in any case, or a field as --json names it. {{json .FIELD}} writes JSON and\n" +
        '{{index .FIELD "KEY"}} reads a map, as in {{index .spec.labels "team"}}; \\t and \\n are a tab and a new line.',
    );
}

/** What a list is asked for with. */
export interface ListCall<F extends ListFlags> {
  /** The command's arguments. */
  readonly args: readonly (string | undefined)[];
  readonly flags: F;
  readonly signal: AbortSignal;
}

/**
 * An action that lists things.
 * @param read asks the service for all of them
 */
export function listAction<A extends DescMessage, T extends DescMessage, F extends ListFlags>(
  host: CommandHost,
  kind: ListKind<A, T>,
  read: (client: ServiceClient, call: ListCall<F>) => Promise<MessageShape<A>>,
  complain?: (answer: MessageShape<A>) => string,
) {
  return host.action(async (...given: unknown[]) => {
    // Behind the arguments come the flags and the command itself.
    const flags = given.at(-2) as F;
    const args = given.slice(0, -2) as (string | undefined)[];
    const print = printerFor(host, flags, kind);
    return withClient(host, flags, EXIT.failed, async (client) => {
      const answer = await read(client, { args, flags, signal: host.interrupts.signal });
      await print(answer);
      if (!flags.json && complain) await write(host.io.stderr, complain(answer));
      return EXIT.ok;
    });
  });
}

/** How the flags want a list written. @throws UsageError before anything is asked of the service */
function printerFor<A extends DescMessage, T extends DescMessage>(
  { io }: CommandHost,
  { json, quiet, format }: ListFlags,
  kind: ListKind<A, T>,
): (answer: MessageShape<A>) => Promise<void> {
  const { stdout } = io;
  if ([json, quiet, format !== undefined].filter(Boolean).length > 1) {
    throw new UsageError("--json, --quiet and --format exclude each other: each says what is written");
  }
  if (json) return (answer) => writeJson(stdout, messageJson(kind.answer, answer));
  const textOf = quiet
    ? (items: readonly MessageShape<T>[]) => items.map((item) => `${kind.idOf(item)}\n`).join("")
    : formatOf(format ?? "table", kind, io);
  return (answer) => write(stdout, textOf(kind.itemsOf(answer)));
}

function formatOf<A extends DescMessage, T extends DescMessage>(
  format: string,
  kind: ListKind<A, T>,
  io: CommandHost["io"],
): (items: readonly MessageShape<T>[]) => string {
  const { columns, item: schema } = kind;
  const seen = (item: MessageShape<T>) => ({ item, json: messageJson(schema, item) });
  if (format === "table") {
    const paint = paintFor(io.stdout, io.env);
    return (items) =>
      formatTable(
        columns.map(({ heading }) => heading),
        items.map((item) => columns.map((column) => column.text(item))),
        (text, row, column) => paint(text, columns[column]?.tone?.(items[row] as MessageShape<T>)),
      );
  }
  const isTable = format.startsWith("table ");
  const text = format === "json" ? "{{json .}}" : isTable ? format.slice("table ".length) : format;
  if (!text.includes("{{")) {
    throw new UsageError(
      `--format: ${JSON.stringify(format)} is not a format; write json, table or a template, as '{{.${columns[0]?.heading}}}'`,
    );
  }
  const template: Template<MessageShape<T>> = parseTemplate(text, { schema, columns });
  if (!isTable) return (items) => items.map((item) => `${template.of(seen(item))}\n`).join("");
  return (items) =>
    formatTable(
      template.headings.split("\t"),
      items.map((item) => template.of(seen(item)).split("\t")),
    );
}
