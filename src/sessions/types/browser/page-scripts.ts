/**
 * Functions that run in pages, whenever possible in an isolated world. There a page can change elements, but not the
 * functions that these scripts call.
 */

/** (selector) → the first element that matches, in the document and its open shadow roots. */
export const FIND = `function(selector) {
  const roots = [document];
  for (let root = roots.shift(); root; root = roots.shift()) {
    const found = root.querySelector(selector);
    if (found) return found;
    for (const element of root.querySelectorAll("*")) if (element.shadowRoot) roots.push(element.shadowRoot);
  }
  return null;
}`;

/** On an element: whether it is still attached to its document. */
export const IS_CONNECTED = "function() { return this.isConnected }";

/** On an element: focuses it, and returns how to enter text. */
export const PREPARE_TYPING = `function(clear) {
  const VALUES = ["date", "time", "month", "week", "datetime-local", "color", "range"];
  const NO_TEXT = ["button", "checkbox", "file", "hidden", "image", "radio", "reset", "submit"];
  const isInput = this instanceof HTMLInputElement;
  if (this.disabled || this.readOnly) return "disabled";
  if (isInput && VALUES.includes(this.type)) return "value";
  if (isInput ? NO_TEXT.includes(this.type) : !(this instanceof HTMLTextAreaElement || this.isContentEditable)) return "none";
  this.focus();
  if (isInput || this instanceof HTMLTextAreaElement) {
    if (clear) this.select();
    else try {
      this.setSelectionRange(this.value.length, this.value.length);
    } catch {
      // Inputs such as numbers have no positions.
      getSelection().modify("move", "forward", "documentboundary");
    }
  } else {
    const selection = getSelection();
    selection.selectAllChildren(this);
    if (!clear) selection.collapseToEnd();
  }
  return "text";
}`;

/** On an input: sets its value as if a person had picked it. Returns the resulting value. */
export const SET_VALUE = `function(text) {
  this.focus();
  this.value = text;
  this.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
  this.dispatchEvent(new Event("change", { bubbles: true }));
  return this.value;
}`;

/** On a select: selects options by value or text. Returns the selected values, or the available options. */
export const SELECT = `function(wanted) {
  if (!(this instanceof HTMLSelectElement)) return { problem: "is not a select element" };
  if (this.disabled) return { problem: "is disabled" };
  if (wanted.length > 1 && !this.multiple) return { problem: "takes one value only" };
  const options = [...this.options];
  const found = [];
  for (const text of wanted) {
    const option = options.find(o => o.value === text) ?? options.find(o => o.label === text || o.text === text);
    if (option?.matches(":disabled")) return { problem: "has the option " + JSON.stringify(text) + ", but it is disabled" };
    if (!option) return { problem: "has no option " + JSON.stringify(text) + ". It has: " + options.slice(0, 50).map(o => JSON.stringify(o.label.slice(0, 100))).join(", ") };
    found.push(option);
  }
  this.focus();
  for (const option of options) option.selected = found.includes(option);
  this.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
  this.dispatchEvent(new Event("change", { bubbles: true }));
  return { values: [...this.selectedOptions].map(o => o.value).slice(0, 1000) };
}`;

/**
 * Truncates a text to a number of characters, and so that it fits into an answer: as JSON, which the browser writes in
 * ASCII, it has at most 4 MB.
 */
const CUT = `const cut = (text, limit) => {
    let end = 0;
    for (let bytes = 0; end < text.length && end < limit && bytes < 4_000_000; end++) {
      const code = text.charCodeAt(end);
      bytes += code < 9 || code > 126 ? 6 : 2;
    }
    return { text: text.slice(0, end), length: text.length };
  };`;

/** On an element or document: its HTML, truncated to a number of characters. */
export const HTML = `function(limit) {
  ${CUT}
  const text = this instanceof Document ? (this.doctype ? new XMLSerializer().serializeToString(this.doctype) + "\\n" : "") + (this.documentElement?.outerHTML ?? "") : this.outerHTML;
  return cut(text, limit);
}`;

/** On an element, or in a frame: its readable text, truncated to a number of characters. */
export const TEXT = `function(limit) {
  ${CUT}
  const element = this instanceof Node ? this : document.body ?? document.documentElement;
  const text = element ? element.innerText ?? element.textContent ?? "" : "";
  return cut(text, limit);
}`;

/** () → the URL, the title, and the HTTP status of the document: 0 if it has none. */
export const ABOUT = `function() {
  return { url: location.href.slice(0, 5000), title: document.title.slice(0, 1000), status: performance.getEntriesByType("navigation")[0]?.responseStatus ?? 0 };
}`;

/** (ms) → resolves after a timer of the page. Without scripts, a page has no timers: resolves at once. */
export const REST = `function(ms) {
  if (matchMedia("(scripting: none)").matches) return;
  return new Promise(resolve => setTimeout(resolve, ms));
}`;

/** () → the scroll position and size of the document. */
export const SCROLL_STATE = `function() {
  const page = document.scrollingElement ?? document.documentElement;
  return { x: scrollX, y: scrollY, width: page?.scrollWidth ?? 0, height: page?.scrollHeight ?? 0 };
}`;

/** On an element or a text: how far the nearest box around it in its frame that scrolls, or the frame, is scrolled. Null: neither does. */
export const SCROLLED_AROUND = `function() {
  const overflows = (at) => [at.scrollWidth > at.clientWidth, at.scrollHeight > at.clientHeight];
  const around = (node) => node.assignedSlot ?? node.parentElement ?? node.getRootNode().host;
  for (let at = this instanceof Element ? this : around(this); at instanceof Element; at = around(at)) {
    const isRoot = at === document.scrollingElement;
    if (isRoot && window === top) return null;
    // The viewport takes the body's overflow, unless the root element has its own.
    if (!isRoot && at === document.body && getComputedStyle(document.documentElement).overflowY === "visible") continue;
    const { overflowX, overflowY } = getComputedStyle(at);
    const scrolls = [overflowX, overflowY].map((way) => isRoot || way === "auto" || way === "scroll");
    if (overflows(at).some((over, axis) => over && scrolls[axis]))
      return { x: at.scrollLeft, y: at.scrollTop, width: at.scrollWidth, height: at.scrollHeight };
  }
  return null;
}`;

/** (text) → whether the page shows the text. */
export const SHOWS_TEXT = `function(text) {
  const all = document.body?.innerText ?? "";
  return all.includes(text);
}`;

/** On an element: whether it is visible. */
export const IS_VISIBLE = `function() {
  return this.isConnected && this.checkVisibility({ visibilityProperty: true, opacityProperty: false }) && this.getClientRects().length > 0;
}`;

/** On a script's result: its JSON, truncated to a number of characters. */
export const TO_JSON = `function(limit) {
  const text = JSON.stringify(this, (_, value) => typeof value === "bigint" ? String(value) : value);
  return text === undefined ? { text: "null", length: 4 } : { text: text.slice(0, limit), length: text.length };
}`;

/** Starts the download of the page's own address. */
export const DOWNLOAD_SELF = `function() {
  const link = document.createElement("a");
  link.href = location.href;
  link.download = "";
  link.click();
}`;

/** On an element: (number of files) → why it cannot take the files. Empty if it can. */
export const FILES_PROBLEM = `function(count) {
  if (!(this instanceof HTMLInputElement && this.type === "file")) return "is not a file input";
  if (this.disabled) return "is disabled";
  return count > 1 && !this.multiple ? "takes one file only" : "";
}`;

/** On a file input: removes its files. */
export const CLEAR_FILES = `function() {
  if (this.files.length === 0) return;
  this.value = "";
  this.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
  this.dispatchEvent(new Event("change", { bubbles: true }));
}`;

/** On a file input: the names of its files. */
export const FILE_NAMES = "function() { return [...this.files].map(file => file.name) }";
