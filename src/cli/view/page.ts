import { readdir } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";

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

/** The page. Everything that it needs comes from the same server. */
const PAGE_HTML = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Berth</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="view.css">
<script type="module" src="view.js"></script>
<header>
  <strong id="title">Berth</strong>
  <span id="read-only" hidden>read-only</span>
  <span id="status" role="status">Connecting …</span>
  <button id="reconnect" hidden>Reconnect</button>
</header>
<main id="screen"></main>
</html>
`;

const PAGE_CSS = `:root { color-scheme: dark; }
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body { margin: 0; height: 100vh; display: flex; flex-direction: column; background: #14161a; color: #d8dce3;
  font: 14px/1.4 system-ui, sans-serif; }
header { display: flex; align-items: center; gap: 12px; padding: 6px 12px; background: #1e2127; border-bottom: 1px solid #2c3038; }
#status { margin-left: auto; color: #9aa2af; }
#read-only { padding: 0 8px; border-radius: 9px; background: #5a4514; color: #ffd98a; font-size: 12px; }
button { padding: 3px 12px; border: 1px solid #454b57; border-radius: 6px; background: #2c3038; color: inherit; font: inherit; cursor: pointer; }
button:hover { background: #3a404b; }
main { flex: 1; min-height: 0; }
`;

/** Shows the desktop, and the state of the connection. */
const PAGE_SCRIPT = `import RFB from "./novnc/core/rfb.js";

const $ = (id) => document.getElementById(id);
const { title, readOnly } = await (await fetch("about.json")).json();
document.title = title + " – Berth";
$("title").textContent = title;
$("read-only").hidden = !readOnly;

function connect() {
  $("reconnect").hidden = true;
  $("screen").replaceChildren();
  $("status").textContent = "Connecting …";
  const url = new URL("socket", location.href);
  url.protocol = "ws:";
  const socket = new WebSocket(url, "binary");
  let why = "The connection to berth ended.";
  socket.addEventListener("close", ({ reason }) => {
    if (reason) why = reason;
  });
  const rfb = new RFB($("screen"), socket, { shared: true });
  rfb.scaleViewport = true;
  rfb.viewOnly = readOnly;
  rfb.background = "transparent";
  rfb.addEventListener("connect", () => {
    $("status").textContent = "Connected";
    rfb.focus();
  });
  rfb.addEventListener("disconnect", () => {
    $("status").textContent = why;
    $("reconnect").hidden = false;
  });
}

$("reconnect").addEventListener("click", connect);
connect();
`;
