import { readdir } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { PAGE_CSS, PAGE_HTML, PAGE_SCRIPT } from "./page.ts";

/** A file of the page: its content, or where that is on disk. */
export interface PageFile {
  readonly type: string;
  readonly content: string | { readonly path: string };
}

/** What the page says of itself. */
export interface About {
  /** What is shown, for a person. */
  readonly title: string;
  readonly readOnly: boolean;
}

const SCRIPT = "text/javascript; charset=utf-8";
/** The folders of noVNC that its client imports from. */
const FOLDERS = ["core", "vendor"];

/** Every file that the page consists of, by its name in the URL: nothing else is served. */
export async function pageFiles(about: About): Promise<ReadonlyMap<string, PageFile>> {
  const client = createRequire(import.meta.url).resolve("@novnc/novnc");
  const root = path.dirname(path.dirname(client));
  const files = new Map<string, PageFile>([
    ["", { type: "text/html; charset=utf-8", content: PAGE_HTML }],
    ["view.css", { type: "text/css; charset=utf-8", content: PAGE_CSS }],
    ["view.js", { type: SCRIPT, content: PAGE_SCRIPT }],
    ["about.json", { type: "application/json", content: JSON.stringify(about) }],
  ]);
  for (const folder of FOLDERS) {
    for (const name of await readdir(path.join(root, folder), { recursive: true })) {
      if (!name.endsWith(".js")) continue;
      const url = `novnc/${[folder, ...name.split(path.sep)].join("/")}`;
      files.set(url, { type: SCRIPT, content: { path: path.join(root, folder, name) } });
    }
  }
  return files;
}
