import { type ZodType, z } from "zod";
import { invalidArgument } from "../../core/errors.ts";

const DEFAULT_SIZE = 50;
const MAX_SIZE = 1000;
/** Tokens hold a position, which is small; a longer one is not ours. */
const MAX_TOKEN_LENGTH = 2048;

/**
 * Reads `page_size`: 0 is the default of 50, and more than 1000 counts as 1000.
 *
 * @throws BerthError `INVALID_ARGUMENT` if it is negative
 */
export function pageSize(value: number, field = "page_size"): number {
  if (value < 0) throw invalidArgument(field, "must not be negative");
  return value === 0 ? DEFAULT_SIZE : Math.min(value, MAX_SIZE);
}

/** One page of a list. */
export interface Page<T> {
  readonly items: readonly T[];
  /** Empty on the last page. */
  readonly nextPageToken: string;
}

/**
 * Cuts a page out of a list that keeps its order, and only grows at its front
 * or loses elements. The token names the last element that was shown.
 *
 * @throws BerthError `INVALID_ARGUMENT` for a bad size or token, and where the element it names has gone
 */
export function page<T>(
  request: { readonly pageSize: number; readonly pageToken: string },
  all: readonly T[],
  nameOf: (item: T) => string,
): Page<T> {
  const size = pageSize(request.pageSize);
  const after = decodePageToken(request.pageToken, z.string());
  const start = after === undefined ? 0 : all.findIndex((item) => nameOf(item) === after) + 1;
  if (after !== undefined && start === 0) {
    throw invalidArgument("page_token", "names an element that has gone; list again from the beginning");
  }
  const items = all.slice(start, start + size);
  const last = items.at(-1);
  const more = last !== undefined && start + size < all.length;
  return { items, nextPageToken: more ? encodePageToken(nameOf(last)) : "" };
}

/** Writes where the next page begins as an opaque `next_page_token`. `position` is small and plain JSON. */
export function encodePageToken(position: unknown): string {
  return Buffer.from(JSON.stringify(position)).toString("base64url");
}

/**
 * Reads a `page_token` that {@link encodePageToken} wrote. Clients can forge
 * one, so it must never stand for a right.
 *
 * @returns undefined for the first page, which has no token
 * @throws BerthError `INVALID_ARGUMENT` for anything that is not of the schema
 */
export function decodePageToken<T>(token: string, schema: ZodType<T>, field = "page_token"): T | undefined {
  if (token === "") return undefined;
  const position = schema.safeParse(parse(token));
  if (!position.success) {
    throw invalidArgument(field, "is not a token of this list; pass next_page_token of the page before");
  }
  return position.data;
}

function parse(token: string): unknown {
  if (token.length > MAX_TOKEN_LENGTH || !/^[\w-]+$/.test(token)) return undefined;
  try {
    return JSON.parse(Buffer.from(token, "base64url").toString());
  } catch {
    return undefined;
  }
}
