/** The page. Everything that it needs comes from the same server. */
export const PAGE_HTML = `<!doctype html>
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

export const PAGE_CSS = `:root { color-scheme: dark; }
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
export const PAGE_SCRIPT = `import RFB from "./novnc/core/rfb.js";

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
