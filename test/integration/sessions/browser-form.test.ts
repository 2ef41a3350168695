import { beforeAll, describe, expect } from "vitest";
import { useApp } from "../../support/app.ts";
import { BrowserClient, refIn } from "../../support/browser.ts";
import { DESKTOP_ENGINES } from "../../support/desktop.ts";
import { testsInTurn } from "../../support/engines.ts";
import { Worker } from "../../support/worker.ts";

/** Reports the form's values to the parent page on every change. */
const REPORT = `<script>
  const tell = event => parent.postMessage({ [event.target.name]: event.target.value }, "*");
  addEventListener("input", tell);
  addEventListener("click", event => event.target.name === "press" && tell(event));
</script>`;

const attribute = (html: string): string => html.replaceAll("&", "&amp;").replaceAll('"', "&quot;");
const dataUrl = (html: string): string => `data:text/html,${encodeURIComponent(html)}`;

const DEEPEST = `<label>Deepest <input name=deepest></label>${REPORT}`;
const CROSS = `<label>Across <input name=across></label><button name=press value=pressed>Press</button>${REPORT}
  <iframe title=deeper sandbox=allow-scripts src="${dataUrl(DEEPEST)}"></iframe>
  <script>addEventListener("message", event => parent.postMessage(event.data, "*"))</script>`;

const PAGE = `<!doctype html><title>Sign up</title>
<style>body { height: 3000px } #far { margin-top: 1200px }</style>
<form id=form>
  <label>Name <input name=name></label>
  <label>Password <input name=password type=password></label>
  <label>Mail <input name=mail type=email value=old></label>
  <label><input name=agree type=checkbox value=yes> I agree</label>
  <fieldset><legend>Plan</legend>
    <label><input name=plan type=radio value=free checked> Free</label>
    <label><input name=plan type=radio value=paid> Paid</label>
  </fieldset>
  <label>Country <select name=country><option value=de>Germany<option value=jp>Japan</select></label>
  <label>Tags <select name=tags multiple><option>a<option>b<option>c</select></label>
  <label>About <textarea name=about></textarea></label>
  <label>Born <input name=born type=date></label>
  <label>At <input name=at type=time></label>
  <label>Color <input name=color type=color></label>
  <label>Level <input name=level type=range min=0 max=10></label>
  <label>Papers <input name=papers type=file multiple></label>
</form>
<div id=open></div><div id=closed></div>
<div id=edit contenteditable role=textbox aria-label=Notes></div>
<canvas id=canvas width=200 height=100 style="margin-left: 40px"></canvas>
<iframe title=inner srcdoc="${attribute(`<label>Inside <input name=inside></label>${REPORT}`)}"></iframe>
<iframe id=far title=cross sandbox=allow-scripts src="${dataUrl(CROSS)}" width=600 height=400></iframe>
<script>
  const state = {};
  addEventListener("message", event => Object.assign(state, event.data));
  canvas.onclick = event => { state.canvas = [event.offsetX, event.offsetY] };
  for (const mode of ["open", "closed"]) {
    const root = document.getElementById(mode).attachShadow({ mode });
    root.innerHTML = "<label>" + mode + " shadow <input></label>";
    root.querySelector("input").oninput = event => { state[mode] = event.target.value };
  }
  function read() {
    const data = new FormData(form);
    const fields = Object.fromEntries([...data.keys()].map(key => [key, data.getAll(key).map(value => value.name ?? value)]));
    return { ...state, ...fields, notes: edit.textContent };
  }
</script>`;

describe.each(DESKTOP_ENGINES)("on $name", ({ name, settings }) => {
  const app = useApp(settings);
  const it = testsInTurn(name);
  let browser: BrowserClient;

  beforeAll(async () => {
    browser = new BrowserClient(new Worker(app.client, "form"));
    expect((await browser.worker.create("browser")).failure).toBeNull();
    const { session } = await browser.worker.create("bash", undefined, {
      sandbox_id: (await browser.worker.list())[0]?.sandbox_id,
    });
    expect(session).not.toBeNull();
  });

  it("a page with frames, shadow roots, a canvas and a file input is filled by references alone", async () => {
    await browser.worker.bash("printf one >'first paper.txt'; printf two >second.txt");
    await browser.show(PAGE);
    const { tree } = await browser.ok("tree");
    const ref = (role: string, name?: string): string => refIn(tree, role, name);

    await browser.ok("type", { ref: ref("textbox", "Name"), text: "Ada Lovelace, 東京 😀" });
    await browser.ok("type", { ref: ref("textbox", "Password"), text: 'a"B\\c' });
    await browser.ok("type", { ref: ref("textbox", "Mail"), text: "ada@example.org", clear: true });
    await browser.ok("click", { ref: ref("checkbox", "I agree") });
    await browser.ok("click", { ref: ref("radio", "Paid") });
    await browser.ok("select", { ref: ref("combobox", "Country"), values: ["Japan"] });
    await browser.ok("select", { ref: ref("listbox", "Tags"), values: ["a", "c"] });
    await browser.ok("type", { ref: ref("textbox", "About"), text: "one\ntwo" });
    await browser.ok("type", { ref: ref("date", "Born"), text: "1815-12-10" });
    await browser.ok("type", { ref: ref("time", "At"), text: "13:45" });
    await browser.ok("type", { ref: ref("color", "Color"), text: "#336699" });
    await browser.ok("type", { ref: ref("slider", "Level"), text: "7" });
    await browser.ok("upload", { ref: ref("file", "Papers"), paths: ["first paper.txt", "second.txt"] });
    await browser.ok("type", { ref: ref("textbox", "open shadow"), text: "in the open" });
    await browser.ok("type", { ref: ref("textbox", "closed shadow"), text: "behind a door" });
    await browser.ok("type", { ref: ref("textbox", "Notes"), text: "noted" });
    await browser.ok("click", { ref: ref("canvas"), x: 30, y: 20 });
    await browser.ok("type", { ref: ref("textbox", "Inside"), text: "framed" });
    await browser.ok("type", { ref: ref("textbox", "Across"), text: "another origin" });
    await browser.ok("type", { ref: ref("textbox", "Deepest"), text: "bottom" });
    await browser.ok("click", { ref: ref("button", "Press") });

    // Other processes report what happened in their frames.
    await expect
      .poll(() => browser.evaluate("read()"))
      .toEqual({
        name: ["Ada Lovelace, 東京 😀"],
        password: ['a"B\\c'],
        mail: ["ada@example.org"],
        agree: ["yes"],
        plan: ["paid"],
        country: ["jp"],
        tags: ["a", "c"],
        about: ["one\ntwo"],
        born: ["1815-12-10"],
        at: ["13:45"],
        color: ["#336699"],
        level: ["7"],
        papers: ["first paper.txt", "second.txt"],
        open: "in the open",
        closed: "behind a door",
        notes: "noted",
        canvas: [30, 20],
        inside: "framed",
        across: "another origin",
        deepest: "bottom",
        press: "pressed",
      });
    const uploaded = "Promise.all([...form.papers.files].map(file => file.text()))";
    expect(await browser.evaluate(uploaded)).toEqual(["one", "two"]);
    await browser.evaluate("form.papers.onchange = () => { state.cleared = form.papers.files.length }");
    expect(await browser.ok("upload", { ref: ref("file", "Papers"), paths: [] })).toMatchObject({
      files: [],
    });
    expect(await browser.evaluate("state.cleared")).toBe(0);
  });

  it("a reference keeps its element, and one whose element is gone says so", async () => {
    await browser.show("<button id=a>A</button><button id=b>B</button>");
    const before = await browser.ok("tree");
    await browser.evaluate("document.body.prepend(b); a.textContent = 'C'");
    const after = await browser.ok("tree");
    expect(refIn(after.tree, "button", "C")).toBe(refIn(before.tree, "button", "A"));
    expect(refIn(after.tree, "button", "B")).toBe(refIn(before.tree, "button", "B"));
    const ref = refIn(after.tree, "button", "C");
    await browser.evaluate("a.remove()");
    const gone = { code: 4001, message: expect.stringContaining(`The element of ${ref} is gone. Call tree`) };
    expect(await browser.call("click", { ref })).toMatchObject(gone);
    const other = refIn(after.tree, "button", "B");
    await browser.show("<button>B</button>");
    expect(await browser.call("click", { ref: other })).toMatchObject({ code: 4001 });
    expect(await browser.call("click", { ref: "e999999" })).toMatchObject({
      code: 4001,
      message: "There is no reference e999999. Call tree for current ones.",
    });
  });
});
