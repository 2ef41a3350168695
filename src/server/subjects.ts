import type { DescField, DescMessage } from "@bufbuild/protobuf";

/** Limits: how deep ids are searched in a message, how many are kept, and how much of each, in UTF-16 units. */
const MAX_DEPTH = 4;
const MAX_IDS = 64;
const MAX_ITEMS = 64;
const MAX_LENGTH = 256;

/** A field that is an id or contains ids. */
interface Place {
  readonly field: DescField;
  /** The fields of its messages. Undefined: the field itself is an id. */
  readonly inner: readonly Place[] | undefined;
}

const places = new WeakMap<DescMessage, readonly Place[]>();

/** The ids in the messages of a call, which say what it acted on. Keeps nothing else. */
export class Subjects {
  readonly #ids = new Map<string, Set<string>>();
  #count = 0;
  /** The caller's request id. Empty: none. */
  requestId = "";

  /** The ids, by field name. */
  get ids(): Readonly<Record<string, readonly string[]>> {
    return Object.fromEntries(Array.from(this.#ids, ([name, values]) => [name, [...values]]));
  }

  /** Adds the ids of a message, or of its initializer. Returns whether it has any. */
  add(type: DescMessage, message: unknown): boolean {
    let known = places.get(type);
    if (known === undefined) {
      known = placesIn(type, MAX_DEPTH);
      places.set(type, known);
    }
    return this.#take(known, message);
  }

  #take(from: readonly Place[], message: unknown): boolean {
    if (typeof message !== "object" || message === null) return false;
    let found = false;
    for (const { field, inner } of from) {
      const value = fieldOf(field, message as Record<string, unknown>);
      const values: readonly unknown[] = Array.isArray(value) ? value.slice(0, MAX_ITEMS) : [value];
      for (const item of values) {
        if (inner !== undefined) found = this.#take(inner, item) || found;
        else if (typeof item === "string" && item !== "") {
          this.#keep(field.name, item);
          found = true;
        }
      }
    }
    return found;
  }

  #keep(name: string, text: string): void {
    const id = text.slice(0, MAX_LENGTH);
    if (name === "request_id") {
      this.requestId ||= id;
      return;
    }
    const values = this.#ids.get(name) ?? new Set();
    if (values.has(id) || this.#count === MAX_IDS) return;
    this.#ids.set(name, values.add(id));
    this.#count++;
  }
}

function placesIn(type: DescMessage, depth: number): Place[] {
  return type.fields.flatMap((field): Place[] => {
    if (/_ids?$/.test(field.name)) return [{ field, inner: undefined }];
    if (field.message === undefined || field.fieldKind === "map" || depth === 1) return [];
    const inner = placesIn(field.message, depth - 1);
    return inner.length === 0 ? [] : [{ field, inner }];
  });
}

function fieldOf(field: DescField, message: Record<string, unknown>): unknown {
  if (field.oneof === undefined) return message[field.localName];
  const chosen = message[field.oneof.localName] as { case?: string; value?: unknown } | undefined;
  return chosen?.case === field.localName ? chosen.value : undefined;
}
