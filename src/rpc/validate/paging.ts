import { invalidArgument } from "../../core/errors.ts";

const DEFAULT_PAGE_SIZE = 50;
const MOST_PAGE_SIZE = 1000;

/** One page of a list, and the token of the next one; empty on the last. */
export interface Page<T> {
  readonly items: T[];
  readonly nextPageToken: string;
}

/**
 * Cuts a page out of a list that keeps its order and only grows at its front or
 * loses elements. The token names the last element shown; where that has gone
 * since, the caller is told to begin again.
 * @throws `INVALID_ARGUMENT` for a bad size or token.
 */
export function page<T>(
  request: { readonly pageSize: number; readonly pageToken: string },
  all: readonly T[],
  nameOf: (item: T) => string,
): Page<T> {
  const { pageSize, pageToken } = request;
  if (pageSize < 0 || pageSize > MOST_PAGE_SIZE) {
    throw invalidArgument("page_size", `${pageSize} is not between 0 and ${MOST_PAGE_SIZE}.`);
  }
  const start = pageToken === "" ? 0 : placeAfter(all.map(nameOf), pageToken);
  const end = start + (pageSize || DEFAULT_PAGE_SIZE);
  const items = all.slice(start, end);
  const last = items.at(-1);
  return { items, nextPageToken: last !== undefined && end < all.length ? tokenOf(nameOf(last)) : "" };
}

function placeAfter(names: readonly string[], token: string): number {
  const index = names.findIndex((name) => tokenOf(name) === token);
  if (index < 0) {
    throw invalidArgument(
      "page_token",
      "it is not one of ours, or what it named has gone. List again from the beginning.",
    );
  }
  return index + 1;
}

function tokenOf(name: string): string {
  return Buffer.from(name).toString("base64url");
}
