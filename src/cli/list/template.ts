import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { safeJson } from "../../base/safe-json.ts";
import { UsageError } from "../exit.ts";
import { visible } from "../visible.ts";

/** What a template refers to. */
export interface TemplateSubject<T> {
  /** Defines the fields: a message type, by its JSON, or a list of names. */
  readonly schema: DescMessage | Named;
  /** The columns of a list, by heading. They take precedence over fields. */
  readonly columns: readonly { readonly heading: string; text(item: T): string }[];
}

/** The fields of an item that is not a message. */
interface Named {
  readonly named: readonly string[];
}

/** An item, as a template sees it. */
interface TemplateItem<T> {
  readonly item: T;
  /** The item as JSON, with the API's names. */
  readonly json: unknown;
}

/** A part of a template: text, a column or a field. */
interface Part<T> {
  /** Its heading in a table. */
  readonly heading: string;
  of(item: TemplateItem<T>): string;
}

/** A parsed template. */
export interface Template<T> {
  /** The text with headings instead of values. */
  readonly headings: string;
  /** The text for one item. */
  of(item: TemplateItem<T>): string;
}

const FORMS = 'write {{.FIELD}}, {{json .FIELD}} or {{index .FIELD "KEY"}}';
const EXPRESSION =
  /^(?:(?<json>json\s+)?(?<path>\.|(?:\.\w+)+)|index\s+(?<map>(?:\.\w+)+)\s+(?<key>"(?:[^"\\]|\\.)*"))$/;

/**
 * Parses a template such as `{{.ID}}\t{{.spec.image}}`: text, in which `\t` and `\n` mean tab and newline, with columns
 * and fields of the item in braces. Every field is checked against the schema, so that no item can fail later.
 * @throws UsageError that says what is wrong and what to write
 */
export function parseTemplate<T>(text: string, subject: TemplateSubject<T>): Template<T> {
  const parts: Part<T>[] = [];
  let at = 0;
  while (at < text.length) {
    const open = text.indexOf("{{", at);
    const literal = text.slice(at, open === -1 ? undefined : open);
    if (literal !== "") parts.push(literalPart(literal));
    if (open === -1) break;
    const close = text.indexOf("}}", open);
    if (close === -1) throw new UsageError(`--format: "{{" has no "}}" after it; ${FORMS}`);
    parts.push(expressionPart(text.slice(open + 2, close), subject));
    at = close + 2;
  }
  return {
    headings: parts.map(({ heading }) => heading).join(""),
    of: (item) => parts.map((part) => part.of(item)).join(""),
  };
}

function literalPart<T>(written: string): Part<T> {
  const text = written.replace(/\\([tn\\])/g, (_, letter: string) => ESCAPES[letter] ?? letter);
  return { heading: text, of: () => text };
}

const ESCAPES: Readonly<Record<string, string>> = { t: "\t", n: "\n" };

function expressionPart<T>(written: string, { schema, columns }: TemplateSubject<T>): Part<T> {
  const groups = EXPRESSION.exec(written.trim())?.groups;
  if (!groups) throw new UsageError(`--format: {{${written}}} is not understood; ${FORMS}`);
  const { json, path = groups.map ?? "", key } = groups;
  const names = path.split(".").filter((name) => name !== "");
  const column = columns.find(({ heading }) => heading.toLowerCase() === names[0]?.toLowerCase());
  if (column && names.length === 1 && key === undefined) {
    const { heading, text } = column;
    return { heading, of: ({ item }) => (json ? safeJson(text(item)) : visible(text(item))) };
  }
  const keys = key === undefined ? names : [...names, keyOf(key)];
  checkPath(schema, keys, written, columns);
  return {
    heading: (keys.at(-1) ?? ("name" in schema ? schema.name : "")).toUpperCase(),
    of: (item) => {
      const value = keys.reduce(member, item.json);
      if (json) return safeJson(value ?? null);
      return typeof value === "string" ? visible(value) : value === undefined ? "" : safeJson(value);
    },
  };
}

function keyOf(quoted: string): string {
  try {
    return JSON.parse(quoted);
  } catch (cause) {
    throw new UsageError(`--format: ${quoted} is not a quoted text as in JSON`, { cause });
  }
}

function member(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null && Object.hasOwn(value, name)
    ? value[name as keyof typeof value]
    : undefined;
}

/** What may follow a field: the fields of a message, the keys of a map or list, anything, or nothing. */
type Inside =
  | DescMessage
  | Named
  | { readonly each: Inside; readonly numbered: boolean }
  | "free"
  | undefined;

/** @throws UsageError if there is no such field. Lists those that exist. */
function checkPath(
  schema: DescMessage | Named,
  keys: readonly string[],
  written: string,
  columns: readonly { readonly heading: string }[],
): void {
  let inside: Inside = schema;
  for (const [depth, key] of keys.entries()) {
    if (inside === "free") return;
    const wrong = (why: string) => new UsageError(`--format: {{${written}}}: ${why}`);
    if (inside === undefined) throw wrong(`"${keys[depth - 1]}" has no fields`);
    if ("each" in inside) {
      if (inside.numbered && !/^\d+$/.test(key))
        throw wrong(`"${keys[depth - 1]}" is a list; write its place, from 0`);
      inside = inside.each;
      continue;
    }
    const names: readonly string[] =
      "named" in inside ? inside.named : inside.fields.map(({ jsonName }) => jsonName);
    if (!names.includes(key)) {
      const headings = depth === 0 ? columns.map(({ heading }) => heading) : [];
      const known = [...headings, ...names].join(", ");
      throw wrong(`there is no field ${JSON.stringify(key)}; there are: ${known}`);
    }
    inside = "named" in inside ? undefined : insideOf(inside.fields.find(({ jsonName }) => jsonName === key));
  }
}

function insideOf(field: DescField | undefined): Inside {
  if (field === undefined) return undefined;
  const { message } = field;
  // Well-known types are text in JSON, or arbitrary JSON.
  const one = message?.typeName.startsWith("google.protobuf.")
    ? /\.(Struct|Value|ListValue|Any)$/.test(message.typeName)
      ? "free"
      : undefined
    : message;
  if (field.fieldKind === "map") return { each: one, numbered: false };
  return field.fieldKind === "list" ? { each: one, numbered: true } : one;
}
