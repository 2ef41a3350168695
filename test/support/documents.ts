import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";

const root = path.join(import.meta.dirname, "../..");

/** A code block in a document. */
export interface Snippet {
  /** `README.md:42`, the line above its first. */
  readonly place: string;
  /** `sh`, `ts` and so on. Empty for a picture or output. */
  readonly language: string;
  readonly text: string;
}

/** The documents that people read, as paths relative to the root, with `/`. Leaves out generated ones. */
export function documents(): string[] {
  const below = readdirSync(path.join(root, "docs"), { recursive: true, encoding: "utf8" });
  return [
    "README.md",
    "CONTRIBUTING.md",
    ...readdirSync(path.join(root, "clients")).map((name) => `clients/${name}/README.md`),
    ...below.filter((name) => name.endsWith(".md")).map((name) => `docs/${name}`),
  ].sort();
}

export function readDocument(name: string): string {
  return readFileSync(path.join(root, name), "utf8");
}

/** The fenced blocks of a document, in order, without the indentation of a list around them. */
export function snippetsOf(name: string): Snippet[] {
  const text = readDocument(name);
  return [...text.matchAll(/^( *)```(\w*)\n(.*?)^\1```$/gms)].map((match) => {
    const [, indent = "", language = "", block = ""] = match;
    const line = text.slice(0, match.index).split("\n").length;
    return {
      place: `${name}:${line}`,
      language,
      text: indent === "" ? block : block.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
    };
  });
}
