import { existsSync, readdirSync } from "node:fs";
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

/** The maps of folders of the source. */
const maps = readdirSync(path.join(root, "src"), { recursive: true, encoding: "utf8" })
  .filter((name) => path.basename(name) === "README.md")
  .map((name) => `src/${name}`);

test.each([...documents(), ...maps])("every link of %s leads somewhere", (name) => {
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

test.each(maps)("%s, or the map above it, names every file of its folder", (name) => {
  const folder = path.dirname(name);
  const above = `${path.dirname(folder)}/README.md`;
  const text = [name, above].filter((map) => maps.includes(map)).map(readDocument);
  const files = readdirSync(path.join(root, folder)).filter((file) => file.endsWith(".ts"));
  expect(files.filter((file) => !text.some((map) => map.includes(`\`${file}\``)))).toEqual([]);
});
