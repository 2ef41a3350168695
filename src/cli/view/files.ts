import { readdir } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { PAGE_CSS, PAGE_HTML, PAGE_SCRIPT } from "./page.ts";

/** A file of the page: its content, or its path on disk. */
export interface PageFile {
  readonly type: string;
  readonly content: string | { readonly path: string };
}

/** What the page shows about itself. */
export interface About {
  /** The name of what is shown, for people. */
  readonly title: string;
  readonly readOnly: boolean;
}

const SCRIPT = "text/javascript; charset=utf-8";
/** The folders of noVNC from which its client imports. */
const FOLDERS = ["core", "vendor"];

/** All files of the page, by name in the URL. Nothing else is served. */
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
