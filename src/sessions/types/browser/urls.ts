import { invalidArgument } from "../../../base/errors.ts";

const MAX_URL = 4_000;
/** Parsing a host name takes time quadratic in its length. */
const MAX_HOST = 2_048;
const HOST = /^[\0- ]*(?:https?|file):[\\/]*([^\\/?#]*)/i;
const MAX_DATA_URL = 200;
const SCHEMES: ReadonlySet<string> = new Set(["http:", "https:", "data:", "file:", "about:"]);

/** Parses the URL of a page. @throws `INVALID_ARGUMENT` if it is invalid or has a scheme that pages cannot have. */
export function pageUrl(field: string, text: string): string {
  // URL parsers ignore these characters everywhere.
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

/** A URL for results. Truncates very long ones, such as data: URLs. */
export function shownUrl(url: string): string {
  const max = url.startsWith("data:") ? MAX_DATA_URL : MAX_URL;
  return (url.length > max ? `${url.slice(0, max)}…` : url).toWellFormed();
}
