import { existsSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { documents, readDocument } from "../support/documents.ts";

const root = path.join(import.meta.dirname, "../..");

/** The anchors of a document's headings, as GitHub generates them. */
function anchorsOf(name: string): Set<string> {
  const text = readDocument(name).replaceAll(/^ *```.*?^ *```$/gms, "");
  return new Set(
    [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) =>
      heading
        .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
        .replaceAll(" ", "-"),
    ),
  );
}

test.each(documents())("every link of %s leads somewhere", (name) => {
  const text = readDocument(name).replaceAll(/^ *```.*?^ *```$/gms, "");
  const links = [...text.matchAll(/\]\(\s*([^)\s]+)\s*\)/g)].map(([, target = ""]) => target);
  const dead = links.filter((link) => {
    if (/^[a-z]+:/.test(link)) return false;
    const [file = "", anchor] = link.split("#", 2);
    const target = file === "" ? name : path.join(path.dirname(name), file);
    if (!existsSync(path.join(root, target))) return true;
    return anchor !== undefined && target.endsWith(".md") && !anchorsOf(target).has(anchor);
  });
  expect(dead).toEqual([]);
});
