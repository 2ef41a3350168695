import { invalidArgument } from "../../../base/errors.ts";

const MAX_URL = 4_000;
/** To parse a name of a host takes time by the square of it. */
const MAX_HOST = 2_048;
const HOST = /^[\0- ]*(?:https?|file):[\\/]*([^\\/?#]*)/i;
const MAX_DATA_URL = 200;
const SCHEMES: ReadonlySet<string> = new Set(["http:", "https:", "data:", "file:", "about:"]);

/** Parses the URL of a page. @throws `INVALID_ARGUMENT` for one that is none, or of a scheme that pages do not have. */
export function pageUrl(field: string, text: string): string {
  // As URLs are parsed: these count for nothing, wherever they are.
  const host = HOST.exec(text.replace(/[\t\n\r]/g, ""))?.[1] ?? "";
  const parsed = host.length <= MAX_HOST ? URL.parse(text) : null;
  if (parsed === null) {
    throw invalidArgument(
      field,
      "is not a URL. Give it whole, for instance https://example.org/ or file:///workspace/page.html.",
    );
  }
  const { protocol } = parsed;
  if (SCHEMES.has(protocol)) return text;
  throw invalidArgument(
    field,
    `has the scheme ${JSON.stringify(protocol)}. There are http, https, data, file and about.`,
  );
}

/** A URL as results have it: what is very long, as a page in its own URL is, is cut. */
export function shownUrl(url: string): string {
  const max = url.startsWith("data:") ? MAX_DATA_URL : MAX_URL;
  return (url.length > max ? `${url.slice(0, max)}…` : url).toWellFormed();
}
