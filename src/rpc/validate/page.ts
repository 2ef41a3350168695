import { type ZodType, z } from "zod";
import { invalidArgument } from "../../base/errors.ts";
import type { Position, Slice } from "../../base/ordered-index.ts";

const DEFAULT_SIZE = 50;
const MAX_SIZE = 1000;
/** Berth's tokens contain a small position. A longer token is not one of them. */
const MAX_TOKEN_LENGTH = 2048;

/**
 * Validates `page_size`: 0 means the default of 50, and more than 1000 means 1000.
 *
 * @throws BerthError `INVALID_ARGUMENT` if it is negative
 */
export function pageSize(value: number): number {
  if (value < 0) throw invalidArgument("page_size", "must not be negative");
  return value === 0 ? DEFAULT_SIZE : Math.min(value, MAX_SIZE);
}

const POSITION = z.strictObject({ at: z.number(), id: z.string() });

/**
 * Converts the page fields of a request to a slice.
 *
 * @throws BerthError `INVALID_ARGUMENT` for a bad size or token
 */
export function pageSlice(request: { readonly pageSize: number; readonly pageToken: string }): Slice {
  return { limit: pageSize(request.pageSize), after: decodePageToken(request.pageToken, POSITION) };
}

/** The token for the next page. Empty if there is none. */
export function nextPageToken(next: Position | undefined): string {
  return next === undefined ? "" : encodePageToken(next);
}

/**
 * Encodes where the next page starts as an opaque `next_page_token`. `position` is small, plain JSON, and stays valid
 * when the element at it is gone.
 */
export function encodePageToken(position: unknown): string {
  return Buffer.from(JSON.stringify(position)).toString("base64url");
}

/**
 * Decodes a `page_token` of {@link encodePageToken}. Clients can forge one, so it must never grant access.
 *
 * @returns undefined for an empty token: the first page
 * @throws BerthError `INVALID_ARGUMENT` if it does not match the schema
 */
export function decodePageToken<T>(token: string, schema: ZodType<T>): T | undefined {
  if (token === "") return undefined;
  const position = schema.safeParse(parse(token));
  if (!position.success) {
    throw invalidArgument(
      "page_token",
      "is not a token of this list; pass next_page_token of the page before",
    );
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
