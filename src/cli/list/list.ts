import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import type { Command } from "commander";
import type { ServiceClient } from "../client.ts";
import { paintFor, type Tone } from "../colour.ts";
import { EXIT, UsageError } from "../exit.ts";
import { formatTable, messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";
import { parseTemplate, type Template, type TemplateSubject } from "./template.ts";

/** Flags that say how to print a list. */
export interface ListFlags extends ClientFlags {
  readonly quiet?: boolean;
  readonly format?: string;
}

/** A column of a list. Its text is safe to print. */
interface Column<T> {
  readonly heading: string;
  text(item: T): string;
  /** The colour of a cell. */
  tone?(item: T): Tone | undefined;
}

/** A kind of thing to list. `A` is the API's response with all of them, `T` is one of them. */
export interface ListKind<A extends DescMessage, T extends DescMessage> {
  readonly answer: A;
  readonly item: T;
  itemsOf(answer: MessageShape<A>): readonly MessageShape<T>[];
  /** The id of an item, for other commands. */
  idOf(item: MessageShape<T>): string;
  readonly columns: readonly Column<MessageShape<T>>[];
}

/** How to list things that are not messages of the API. */
export interface ListForm<T> extends Pick<TemplateSubject<T>, "schema"> {
  jsonOf(item: T): unknown;
  /** The id of an item, for other commands. */
  idOf(item: T): string;
  readonly columns: readonly Column<T>[];
}

/** Creates a command that lists things of the service: as a table, as ids, with a template or as JSON. */
export function listCommand(name: string): Command {
  return addListFlags(clientCommand(name));
}

/** Adds the flags that say how to print a list. */
export function addListFlags(command: Command): Command {
  return command
    .option("-q, --quiet", "print only the ids")
    .option(
      "--format <format>",
      "json (one object per line), a template for each line such as '{{.ID}} {{.spec.image}}', or 'table TEMPLATE' " +
        "with columns separated by \\t",
    )
    .addHelpText(
      "after",
      "\nIn a template, {{.NAME}} is a column, in any case, or a field as --json names it. {{json .FIELD}} writes JSON and\n" +
        '{{index .FIELD "KEY"}} reads a map, as in {{index .spec.labels "team"}}; \\t and \\n are a tab and a new line.',
    );
}

/** The command line of a list command. */
export interface ListCall<F extends ListFlags> {
  /** The command's arguments. */
  readonly args: readonly (string | undefined)[];
  readonly flags: F;
  readonly signal: AbortSignal;
}

/**
 * An action that lists things.
 * @param read requests all of them from the service
 */
export function listAction<A extends DescMessage, T extends DescMessage, F extends ListFlags>(
  host: CommandHost,
  kind: ListKind<A, T>,
  read: (client: ServiceClient, call: ListCall<F>) => Promise<MessageShape<A>>,
  complain?: (answer: MessageShape<A>) => string,
) {
  return host.action(async (...given: unknown[]) => {
    // Commander passes the flags and the command after the arguments.
    const flags = given.at(-2) as F;
    const args = given.slice(0, -2) as (string | undefined)[];
    const { idOf, columns, item: schema } = kind;
    const jsonOf = (item: MessageShape<T>) => messageJson(schema, item);
    const print = printerFor<MessageShape<T>>(host, flags, { schema, jsonOf, idOf, columns });
    return withClient(host, flags, EXIT.failed, async (client) => {
      const answer = await read(client, { args, flags, signal: host.interrupts.signal });
      await print(kind.itemsOf(answer), () => messageJson(kind.answer, answer));
      if (!flags.json && complain) await write(host.io.stderr, complain(answer));
      return EXIT.ok;
    });
  });
}

/** Prints items. With `--json`, prints the result of `whole` instead. */
type Print<T> = (items: readonly T[], whole: () => unknown) => Promise<void>;

/** How the flags say to print a list. @throws UsageError before anything is read */
export function printerFor<T>(
  { io, interrupts: { signal } }: CommandHost,
  { json, quiet, format }: Pick<ListFlags, "json" | "quiet" | "format">,
  form: ListForm<T>,
): Print<T> {
  const { stdout } = io;
  if ([json, quiet, format !== undefined].filter(Boolean).length > 1) {
    throw new UsageError("--json, --quiet and --format cannot be used together: choose one");
  }
  if (json) return (_, whole) => writeJson(stdout, whole(), signal);
  const textOf = quiet
    ? (items: readonly T[]) => items.map((item) => `${form.idOf(item)}\n`).join("")
    : formatOf(format ?? "table", form, io);
  return (items) => write(stdout, textOf(items), signal);
}

function formatOf<T>(
  format: string,
  { columns, schema, jsonOf }: ListForm<T>,
  io: CommandHost["io"],
): (items: readonly T[]) => string {
  const seen = (item: T) => ({ item, json: jsonOf(item) });
  if (format === "table") {
    const paint = paintFor(io.stdout, io.env);
    return (items) =>
      formatTable(
        columns.map(({ heading }) => heading),
        items.map((item) => columns.map((column) => column.text(item))),
        (text, row, column) => paint(text, columns[column]?.tone?.(items[row] as T)),
      );
  }
  const isTable = format.startsWith("table ");
  const text = format === "json" ? "{{json .}}" : isTable ? format.slice("table ".length) : format;
  if (!text.includes("{{")) {
    throw new UsageError(
      `--format: ${JSON.stringify(format)} is not a format; write json, table or a template, as '{{.${columns[0]?.heading}}}'`,
    );
  }
  const template: Template<T> = parseTemplate(text, { schema, columns });
  if (!isTable) return (items) => items.map((item) => `${template.of(seen(item))}\n`).join("");
  return (items) =>
    formatTable(
      template.headings.split("\t"),
      items.map((item) => template.of(seen(item)).split("\t")),
    );
}
