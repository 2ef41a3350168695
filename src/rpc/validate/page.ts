import { type ZodType, z } from "zod";
import { invalidArgument } from "../../base/errors.ts";
import type { Position, Slice } from "../../base/ordered-index.ts";

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

const POSITION = z.strictObject({ at: z.number(), id: z.string() });

/**
 * Reads which part of a list is asked for.
 *
 * @throws BerthError `INVALID_ARGUMENT` for a bad size or token
 */
export function pageSlice(request: { readonly pageSize: number; readonly pageToken: string }): Slice {
  return { limit: pageSize(request.pageSize), after: decodePageToken(request.pageToken, POSITION) };
}

/** Writes where the next page starts; empty for none. */
export function nextPageToken(next: Position | undefined): string {
  return next === undefined ? "" : encodePageToken(next);
}

/**
 * Writes where the next page starts as an opaque `next_page_token`. `position`
 * is small and plain JSON, and means the same when the element there has gone.
 */
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
