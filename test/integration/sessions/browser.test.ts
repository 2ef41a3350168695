import { dirname } from "node:path/posix";
import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { BrowserClient } from "../../support/browser.ts";
import { DESKTOP_ENGINES } from "../../support/desktop.ts";
import { shareOf, testsInTurn } from "../../support/engines.ts";
import { Worker } from "../../support/worker.ts";

describe.each(DESKTOP_ENGINES)("on $name", ({ name, settings }) => {
  const app = useApp(settings);
  const it = testsInTurn(name);
  let browser: BrowserClient;
  /** In the same sandbox. */
  const shell = (command: string) => browser.worker.bash(command);
  /**
   * Expects that an action does not wait as long as for a page that it causes to load. On a busy machine a single one may
   * take longer.
   */
  const expectNoWait = (action: () => Promise<unknown>) =>
    expect
      .poll(
        async () => {
          const start = performance.now();
          await action();
          return performance.now() - start;
        },
        { timeout: 150_000 },
      )
      .toBeLessThan(5_000);

  beforeAll(async () => {
    browser = new BrowserClient(new Worker(app.client, "surfer"));
    const { failure, session } = await browser.worker.create("browser", { viewport: [800, 600] });
    expect(failure).toBeNull();
    const sandbox = { sandbox_id: session?.sandbox_id };
    expect((await browser.worker.create("bash", undefined, sandbox)).failure).toBeNull();
  });

  test("data, files of the sandbox and servers inside it are opened without a network; the web is not", async () => {
    expect(await browser.show("<title>One</title>one")).toMatchObject({ title: "One", status: null });
    await shell("echo '<title>Two</title>two' >two.html");
    const { stdout } = await shell("pwd");
    const file = `file://${stdout.trim()}/two.html`;
    expect(await browser.ok("goto", { url: file })).toMatchObject({ url: file, title: "Two" });
    await shell(
      "python3 -m http.server 8123 >server.log 2>&1 & until grep -q Serving server.log; do sleep 0.02; python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:8123/two.html\")' 2>>server.log && break; done",
    );
    const served = "http://localhost:8123/two.html";
    expect(await browser.ok("goto", { url: served })).toMatchObject({
      url: served,
      title: "Two",
      status: 200,
    });
    expect(await browser.ok("goto", { url: `${served}-not` })).toMatchObject({ status: 404 });
    const web = await browser.call("goto", { url: "https://example.org/" });
    expect(web.code).toBe(4001);
    expect(web.message).toMatch(/could not be loaded: net::ERR_.*has no network.*EGRESS/);
  });

  it("a screenshot shows the viewport, the page, or an element, and has its size", async () => {
    await browser.show(
      "<style>*{margin:0}</style><div style='background:#123456;height:1500px'></div><p id=p style='width:120px;height:50px;background:red'>",
    );
    const viewport = await browser.call("screenshot");
    expect(viewport.data).toMatchObject({ width: 800, height: 600, truncated: false });
    expect(viewport.attachments).toMatchObject([{ name: "screenshot", media_type: "image/png" }]);
    expect((await browser.ok("screenshot", { full_page: true })).height).toBe(1550);
    const element = await browser.call("screenshot", { selector: "#p" });
    expect(element.data).toMatchObject({ width: 120, height: 50 });
    const image = `data:image/png;base64,${element.attachments[0]?.content.toString("base64")}`;
    const pixel = `(async () => {
      const image = new Image(); image.src = ${JSON.stringify(image)}; await image.decode();
      const context = new OffscreenCanvas(120, 50).getContext("2d");
      context.drawImage(image, 0, 0);
      return [...context.getImageData(60, 25, 1, 1).data];
    })()`;
    expect(await browser.evaluate(pixel)).toEqual([255, 0, 0, 255]);
    await browser.show(
      "<style>*{font:20px/30px monospace;margin:0}</style><div style='width:0'><a>one two</a>",
    );
    const { width, height } = await browser.ok("screenshot", { selector: "a" });
    expect({ width, isOfBothLines: height > 30 }).toEqual({
      width: expect.closeTo(36, -1),
      isOfBothLines: true,
    });
    await browser.show(`<body style="height:100000px">`);
    expect(await browser.ok("screenshot", { full_page: true })).toMatchObject({
      height: 16_384,
      truncated: true,
    });
  });

  it("a script's value is JSON, its exception is data, and a value that is too large is cut", async () => {
    await browser.show("<title>T</title>");
    expect(await browser.evaluate("1 + 1")).toBe(2);
    expect(await browser.evaluate("return document.title")).toBe("T");
    expect(await browser.evaluate("const a = await Promise.resolve([1, {b: null}]); a")).toEqual([
      1,
      { b: null },
    ]);
    expect(await browser.evaluate("() => Promise.resolve('called')")).toBe("called");
    expect(await browser.evaluate("undefined")).toBeNull();
    expect(await browser.evaluate("document.createElement('a').foo = 7")).toBe(7);
    const thrown = await browser.call("evaluate", { script: "throw new TypeError('no')" });
    expect(thrown).toMatchObject({
      code: 0,
      data: { result: null, error: { name: "TypeError", value: "no" } },
    });
    const broken = await browser.call("evaluate", { script: "1 +" });
    expect(broken).toMatchObject({ code: 0, data: { error: { name: "SyntaxError" } } });
    const long = await browser.ok("evaluate", { script: "'x'.repeat(1e6)" });
    expect(long.truncated).toBe(true);
    expect((long.result as string).length).toBe(256 * 1024);
    const many = await browser.ok("evaluate", { script: "Array(1e6).fill(1)" });
    expect(many.truncated).toBe(true);
    const deep = await browser.ok("evaluate", {
      script: "let d = []; for (let i = 0; i < 1000; i++) d = [d]; d",
    });
    expect(deep.truncated).toBe(true);
    const huge = await browser.call("evaluate", { script: "'x'.repeat(2 ** 26)" });
    expect(huge).toMatchObject({ code: 4001, message: expect.stringContaining("too large") });
    expect(await browser.evaluate("'usable'")).toBe("usable");
    expect(await browser.evaluate("'\\ud800'")).toBe("\ufffd");
  });

  it("a script that is a function is called, and one that ends in a function runs once and calls nothing", async () => {
    await browser.show("<title>T</title>");
    const body = `/* ${"long ".repeat(20_000)} */ return 5;`;
    for (const script of [
      ...[
        "() => 5",
        "(() => 5)",
        "async () => 5;",
        "// why\n() => 5; // what",
        "/* why */ (function () { return 5 });",
      ],
      ...[
        "function () { return 5 }",
        "async function () { return 5 };",
        "function* f() {}\n5",
        `() => { ${body} }`,
      ],
    ])
      expect(await browser.evaluate(script), script.slice(0, 40)).toBe(5);
    const handler = "globalThis.runs = (globalThis.runs ?? 0) + 1; onclick = () => { globalThis.clicks = 1 }";
    expect(await browser.evaluate(handler)).toBe("() => { globalThis.clicks = 1 }");
    expect(await browser.evaluate("[globalThis.runs, globalThis.clicks]")).toEqual([1, null]);
    expect(await browser.evaluate("let once = 0; once++; const get = () => once; get")).toBe("() => once");
    expect(await browser.evaluate("once")).toBe(1);
    expect(await browser.evaluate("class A {}; A")).toBe("class A {}");
    expect(await browser.evaluate("document.querySelector")).toBe(
      "function querySelector() { [native code] }",
    );
    const thrown = await browser.ok("evaluate", { script: "() => { throw new RangeError('far') }" });
    expect(thrown.error).toMatchObject({ name: "RangeError", value: "far" });
  });

  it("content and text are truncated if long, with more of them attached", async () => {
    await browser.show(
      "<!doctype html><p>visible</p><p style='display:none'>hidden</p><iframe srcdoc='framed'></iframe>",
    );
    const { text } = await browser.ok("text");
    expect(text).toContain("visible");
    expect(text).toContain("framed");
    expect(text).not.toContain("hidden");
    expect((await browser.ok("content")).html).toMatch(/^<!DOCTYPE html>\n<html>.*hidden/s);
    expect((await browser.ok("content", { selector: "p" })).html).toBe("<p>visible</p>");
    await browser.evaluate("document.body.innerHTML = '<p>' + 'long '.repeat(2e6); 0");
    const long = await browser.call("text");
    expect(long.data.truncated).toBe(true);
    expect(long.data.text.length).toBe(200_000);
    expect(long.attachments[0]?.content.length).toBe(1_000_000);
    // As JSON, each of these takes six bytes.
    await browser.evaluate("document.body.textContent = '字'.repeat(900_000); 0");
    for (const tool of ["text", "content"]) {
      const { code, data, attachments } = await browser.call(tool);
      expect({ code, truncated: data.truncated }).toEqual({ code: 0, truncated: true });
      expect(data.length).toBeGreaterThanOrEqual(900_000);
      expect(attachments[0]?.content.toString().endsWith("字".repeat(600_000))).toBe(true);
    }
  });

  it("clicks, keys, the wheel and typing reach the page", async () => {
    await browser.show(`<body style="height:5000px"><input id=i><button id=b>B</button><script>
      const seen = [];
      for (const type of ["click", "dblclick", "contextmenu", "auxclick"]) b.addEventListener(type, () => seen.push(type));
      i.onkeydown = ({ key, code, ctrlKey, shiftKey }) => seen.push([key, code, ctrlKey, shiftKey]);
    </script>`);
    await browser.ok("click", { selector: "#b", count: 2 });
    await browser.ok("click", { selector: "#b", button: "right" });
    await browser.ok("type", { selector: "#i", text: "aB" });
    await browser.ok("key", { key: "Control+a" });
    await browser.ok("key", { key: "x" });
    await browser.ok("key", { key: "Shift+ArrowLeft" });
    expect(await browser.evaluate("seen")).toEqual([
      ...["click", "click", "dblclick", "contextmenu", "auxclick"],
      ["a", "KeyA", false, false],
      ["B", "KeyB", false, false],
      ["Control", "ControlLeft", true, false],
      ["a", "KeyA", true, false],
      ["x", "KeyX", false, false],
      ["Shift", "ShiftLeft", false, true],
      ["ArrowLeft", "ArrowLeft", false, true],
    ]);
    expect(await browser.evaluate("i.value")).toBe("x");
    expect(await browser.ok("scroll", { pixels: 500 })).toMatchObject({ height: expect.any(Number) });
    await browser.ok("wait_for", { state: "load" });
    expect(
      await browser.evaluate(
        "new Promise(done => { const look = () => scrollY === 500 ? done(scrollY) : setTimeout(look, 10); look() })",
      ),
    ).toBe(500);
    const text = "line\n".repeat(400);
    await browser.show("<textarea id=t></textarea>");
    await browser.ok("type", { selector: "#t", text });
    expect(await browser.evaluate("t.value")).toBe(text);
  });

  it("text is typed at the end of what is there, in every kind of input, and its line ends once", async () => {
    await browser.show(
      `<input id=email type=email value=ann@old><input id=number type=number value=12><textarea id=area>one</textarea>`,
    );
    await browser.ok("type", { selector: "#email", text: ".example" });
    await browser.ok("type", { selector: "#number", text: "3" });
    await browser.ok("type", { selector: "#area", text: " two\r\nthree\n" });
    expect(await browser.evaluate("[email, number, area].map(input => input.value)")).toEqual([
      "ann@old.example",
      "123",
      "one two\nthree\n",
    ]);
    await browser.ok("key", { key: "Shift+1" });
    expect(await browser.evaluate("area.value.at(-1)")).toBe("!");
  });

  it("an element that does not fit into the page is clicked and scrolled at its middle", async () => {
    await browser.show(`<style>*{margin:0}</style><div id=tall style="height:4000px">tall</div>
      <div id=box style="height:200px;overflow:auto"><div id=inner style="height:2000px;width:50px">inner</div></div>
      <script>const at = []; onclick = ({ target, offsetY }) => at.push([target.id, offsetY])</script>`);
    await browser.ok("click", { selector: "#tall" });
    await browser.ok("click", { selector: "#tall", x: 5, y: 3990 });
    await browser.ok("click", { selector: "#inner" });
    await browser.ok("click", { selector: "#inner", x: 5, y: 10 });
    expect(await browser.evaluate("at")).toEqual([
      ["tall", 2000],
      ["tall", 3990],
      ["inner", 1000],
      ["inner", 10],
    ]);
    await browser.evaluate("scrollTo(0, 0)");
    await browser.ok("scroll", { selector: "#inner", pixels: 300 });
    await expect.poll(() => browser.evaluate("box.scrollTop")).toBeGreaterThan(900);
    expect(await browser.ok("scroll", { selector: "#inner", pixels: 1 })).toMatchObject({
      height: expect.any(Number),
      scrolled: { x: 0, y: expect.any(Number), height: 2000 },
    });
    expect(await browser.ok("scroll", { selector: "#tall", pixels: 1 })).toMatchObject({ scrolled: null });
  });

  it("scrolled is of the box or frame that scrolls, whatever is around the element", async () => {
    await browser.show(`<!doctype html><style>html,body{height:100%;margin:0} body{overflow:auto}</style>
      <div id=host><div id=slotted style="height:2000px">slotted</div></div><div id=tall style="height:4000px">tall</div>
      <iframe id=still srcdoc="<!doctype html><p id=framed>framed"></iframe>
      <script>host.attachShadow({ mode: "open" }).innerHTML = '<div style="height:200px;overflow:auto"><slot></slot></div>'</script>`);
    const inBox = { scrolled: { x: 0, y: expect.any(Number), height: 2000 } };
    const tree: string = (await browser.ok("tree")).tree;
    const refOf = (text: string) => new RegExp(`"${text}" \\[ref=(e\\d+)\\]`).exec(tree)?.[1] ?? "none";
    expect(await browser.ok("scroll", { selector: "#slotted", pixels: 1 })).toMatchObject(inBox);
    expect(await browser.ok("scroll", { ref: refOf("slotted"), pixels: 1 })).toMatchObject(inBox);
    expect(await browser.ok("scroll", { selector: "#tall", pixels: 1 })).toMatchObject({ scrolled: null });
    expect(await browser.ok("scroll", { ref: refOf("framed"), pixels: 1 })).toMatchObject({ scrolled: null });
  });

  it("scrolled is of the box around a frame, also if the frame has its own process", async () => {
    await shell(`mkdir boxed && cd boxed && echo '<!doctype html><p>apart' >apart.html
      echo '<!doctype html><div style="height:200px;overflow:auto"><div style="height:900px">
        <iframe srcdoc="<!doctype html><iframe width=50 height=50 srcdoc=&quot;<!doctype html><i>nested</i>&quot;></iframe>"></iframe></div></div>
        <div style="height:200px;overflow:auto"><div style="height:700px"><iframe src="http://127.0.0.1:8133/apart.html"></iframe></div></div>' >outer.html`);
    await shell(
      "cd boxed; python3 -u -m http.server --bind 127.0.0.1 8133 >server.log 2>&1 & until grep -q Serving server.log; do sleep 0.02; done",
    );
    await browser.ok("goto", { url: "http://localhost:8133/outer.html" });
    expect(await browser.ok("scroll", { selector: "i", pixels: 1 })).toMatchObject({
      scrolled: { x: 0, y: expect.any(Number), height: 900 },
    });
    expect(await browser.ok("scroll", { selector: "p", pixels: 1 })).toMatchObject({
      scrolled: { x: 0, y: expect.any(Number), height: 700 },
    });
  });

  it("a click waits for the page that it opens, and the history goes back and forward", async () => {
    await shell(
      "echo '<title>A</title><a href=b.html>b</a>' >a.html; echo '<title>B</title><form action=a.html><input name=q></form>' >b.html",
    );
    const { stdout } = await shell("pwd");
    await browser.ok("goto", { url: `file://${stdout.trim()}/a.html` });
    expect((await browser.ok("click", { selector: "a" })).title).toBe("B");
    expect((await browser.ok("type", { selector: "input", text: "x", submit: true })).url).toMatch(
      /a\.html\?q=x$/,
    );
    expect((await browser.ok("back")).title).toBe("B");
    expect((await browser.ok("back")).title).toBe("A");
    expect((await browser.ok("forward")).title).toBe("B");
    expect((await browser.ok("reload")).title).toBe("B");
  });

  it("a page that stops loading while it is parsed counts as there", async () => {
    const page = "<title>Stopped</title>one<script>window.stop()</script>two";
    const url = `data:text/html,${encodeURIComponent(page)}`;
    for (const state of ["dom", "load", "network_idle"]) {
      const loading = { wait_until: state };
      const opened = await browser.call("goto", { url, ...loading });
      expect(opened).toMatchObject({ code: 0, data: { title: "Stopped" } });
      expect(await browser.call("reload", loading)).toMatchObject({ code: 0, data: { title: "Stopped" } });
    }
  });

  it("an action that opens a URL which cannot be loaded is a failure that names the URL", async () => {
    const { stdout } = await shell("pwd");
    const missing = `file://${stdout.trim()}/nowhere.html`;
    await shell(
      `echo '<form action=nowhere.html></form><a href=nowhere.html>a</a><input><select><option>1<option>2</select>' >leading.html`,
    );
    const failure = {
      code: 4001,
      message: `The page moved on to ${missing}, which could not be loaded.`,
    };
    const leading = { url: `file://${stdout.trim()}/leading.html` };
    await browser.ok("goto", leading);
    expect(await browser.call("click", { selector: "a" })).toMatchObject(failure);
    expect(await browser.ok("tree")).toMatchObject({ url: missing });
    expect(await browser.ok("screenshot")).toMatchObject({ url: missing });
    await browser.ok("goto", leading);
    await browser.evaluate("document.querySelector('input').onkeydown = () => { location = 'nowhere.html' }");
    expect(await browser.call("type", { selector: "input", text: "x" })).toMatchObject(failure);
    await browser.ok("goto", leading);
    await browser.evaluate("document.querySelector('a').focus()");
    expect(await browser.call("key", { key: "Enter" })).toMatchObject(failure);
    await browser.ok("goto", leading);
    await browser.evaluate("document.querySelector('a').onmouseenter = () => { location = 'nowhere.html' }");
    expect(await browser.call("hover", { selector: "a" })).toMatchObject(failure);
    await browser.ok("goto", leading);
    await browser.evaluate("document.querySelector('select').onchange = () => { location = 'nowhere.html' }");
    expect(await browser.call("select", { selector: "select", values: ["2"] })).toMatchObject(failure);
    await browser.ok("goto", leading);
    await browser.evaluate("setTimeout(() => { location = 'nowhere.html' }, 500)");
    expect(await browser.call("wait_for", { selector: "a", hidden: true })).toMatchObject(failure);
    expect(await browser.call("wait_for", { state: "load" })).toMatchObject({
      code: 0,
      data: { url: missing },
    });
  });

  it("an action on the page about an earlier error is no failure", async () => {
    const { stdout } = await shell("pwd");
    const url = `file://${stdout.trim()}/nowhere-at-all.html`;
    expect(await browser.call("goto", { url })).toMatchObject({ code: 4001 });
    expect(await browser.call("key", { key: "End" })).toMatchObject({ code: 0, data: { url } });
    expect(await browser.call("type", { text: "x" })).toMatchObject({ code: 0, data: { url } });
    expect(await browser.call("reload")).toMatchObject({ code: 4001 });
  });

  it("a page that moves on to a URL which cannot be loaded is a failure that names the URL", async () => {
    const { stdout } = await shell("pwd");
    const missing = `file://${stdout.trim()}/missing.html`;
    await shell(
      `echo '<title>A</title>a' >a.html; echo '<script>location = "missing.html"</script>' >on.html`,
    );
    const failure = {
      code: 4001,
      message: `The page moved on to ${missing}, which could not be loaded.`,
    };
    expect(await browser.call("goto", { url: `file://${stdout.trim()}/on.html` })).toMatchObject(failure);
    expect(await browser.call("reload")).toMatchObject(failure);
    await browser.ok("goto", { url: `file://${stdout.trim()}/a.html` });
    expect(await browser.call("back")).toMatchObject(failure);
    await shell("echo '<title>Found</title>' >missing.html");
    expect((await browser.ok("reload")).title).toBe("Found");
  });

  it("an action waits for the page that a busy page opens only later", async () => {
    const busy =
      "setTimeout(() => { const end = performance.now() + 300; while (performance.now() < end); })";
    await shell("echo '<title>A</title>' >a.html; echo '<title>B</title>' >b.html");
    await shell(
      `echo '<title>Busy</title><form action=a.html><input name=q onkeypress="${busy}"></form><a onclick="${busy}; setTimeout(() => location = &quot;b.html&quot;, 5)">b</a>' >busy.html`,
    );
    const { stdout } = await shell("pwd");
    const page = { url: `file://${stdout.trim()}/busy.html` };
    await browser.ok("goto", page);
    expect((await browser.ok("type", { selector: "input", text: "", submit: true })).url).toMatch(
      /a\.html\?q=$/,
    );
    await browser.ok("goto", page);
    expect((await browser.ok("click", { selector: "a" })).title).toBe("B");
    await browser.ok("goto", page);
    await browser.ok("type", { selector: "input", text: "" });
    expect((await browser.ok("key", { key: "Enter" })).title).toBe("A");
  });

  it("an action in a frame with its own process waits for the page that the frame opens only later", async () => {
    const later =
      "setTimeout(() => { const end = performance.now() + 300; while (performance.now() < end); }); setTimeout(() => { top.location = `http://localhost:8127/b.html` }, 5)";
    await shell(`mkdir framed && cd framed && echo '<title>B</title>' >b.html
      echo '<title>Outer</title><iframe src="http://127.0.0.1:8127/inner.html"></iframe>' >outer.html
      echo '<a onclick="${later}">b</a><input onkeydown="${later}">' >inner.html`);
    await shell(
      "cd framed; python3 -u -m http.server --bind 127.0.0.1 8127 >server.log 2>&1 & until grep -q Serving server.log; do sleep 0.02; done",
    );
    const page = { url: "http://localhost:8127/outer.html" };
    await browser.ok("goto", page);
    expect((await browser.ok("click", { selector: "a" })).title).toBe("B");
    await browser.ok("goto", page);
    await browser.ok("type", { selector: "input", text: "" });
    expect((await browser.ok("key", { key: "x" })).title).toBe("B");
  });

  it("a frame with its own process that hangs keeps one call waiting, not each", async () => {
    await shell(`mkdir hung && cd hung
      echo '<title>Outer</title><button onclick="document.title += 1">b</button><iframe title=hung src="http://127.0.0.1:8129/inner.html"></iframe><script>onmessage = () => { document.title = "Hung" }</script>' >outer.html
      echo '<script>setTimeout(() => { parent.postMessage("hung", "*"); setTimeout(() => { while (true); }, 50); })</script>' >inner.html`);
    await shell(
      "cd hung; python3 -u -m http.server --bind 127.0.0.1 8129 >server.log 2>&1 & until grep -q Serving server.log; do sleep 0.02; done",
    );
    await browser.ok("goto", { url: "http://localhost:8129/outer.html" });
    await expect.poll(() => browser.evaluate("document.title"), { timeout: 60_000 }).toBe("Hung");
    await browser.ok("key", { key: "x" });
    await expectNoWait(async () => {
      for (let round = 0; round < 3; round++) await browser.ok("key", { key: "x" });
    });
    const soon = { timeout: 60 };
    expect(await browser.ok("click", { selector: "button", ...soon })).toMatchObject({ title: "Hung1" });
    expect((await browser.ok("tree", soon)).tree).toMatch(/- iframe "hung" \[ref=e\d+\] \[hangs\]$/m);
    expect(await browser.ok("text", soon)).toMatchObject({ text: "b", hanging_frames: 1 });
    await browser.ok("wait_for", { text: "b", selector: "button", ...soon });
    expect(await browser.call("click", { selector: "#missing", ...soon })).toMatchObject({
      code: 4001,
      message: expect.stringContaining("A frame of the page hangs, and was not searched."),
    });
    // A timeout stops the frame's script too. Then the frame answers again.
    expect(await browser.call("wait_for", { selector: "#missing", timeout: 1 })).toMatchObject({
      code: 5006,
    });
    await expect.poll(async () => (await browser.ok("tree")).tree).not.toContain("[hangs]");
    expect(await browser.ok("text")).toMatchObject({ hanging_frames: 0 });
    await browser.show("");
  });

  it("an action on a page that may run no scripts does not wait for them", async () => {
    const server = `
import http.server
class Still(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Security-Policy", "sandbox")
        self.end_headers()
        self.wfile.write(b"<title>%s</title><button>nothing</button><a href=/second>go</a>" % self.path.encode())
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8128), Still)
open("/tmp/still", "w").close()
server.serve_forever()`;
    await shell(`cat >/tmp/still.py <<'END'\n${server}\nEND`);
    await shell("python3 /tmp/still.py >/dev/null 2>&1 & until [ -e /tmp/still ]; do sleep 0.02; done");
    await browser.ok("goto", { url: "http://localhost:8128/first" });
    await expectNoWait(() => browser.ok("click", { selector: "button" }));
    expect((await browser.ok("click", { selector: "a" })).title).toBe("/second");
  });

  it("a part of a page that never loads does not block actions on the page", async () => {
    const server = `
import http.server, threading
class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/never": threading.Event().wait()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        page = "<title>%s</title><img src=/never><button onclick=document.title+=1>more</button><a href=/second>go</a>"
        self.wfile.write((page % self.path).encode())
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8126), Slow)
open("/tmp/slow", "w").close()
server.serve_forever()`;
    await shell(`cat >/tmp/slow.py <<'END'\n${server}\nEND`);
    await shell("python3 /tmp/slow.py >/dev/null 2>&1 & until [ -e /tmp/slow ]; do sleep 0.02; done");
    const first = { url: "http://localhost:8126/first", wait_until: "dom" };
    const click = async (selector: string, title: RegExp) =>
      expect((await browser.ok("click", { selector })).title).toMatch(title);
    await browser.ok("goto", first);
    await expectNoWait(() => click("button", /^\/first1+$/));
    await expectNoWait(async () => {
      await browser.ok("goto", first);
      await click("a", /^\/second$/);
    });
    await expectNoWait(() => click("button", /^\/second1+$/));
    await browser.show("");
  });

  it("a page that navigates on by itself fails neither the action before it nor a wait", async () => {
    const server = `
import http.server
class Leading(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        left = int(self.path.split("=")[1])
        go = "setTimeout(() => { location.href = %r }, 5)"
        script = go % ("/?left=%d" % (left - 1)) if left else "document.body.append(%r)" % "end"
        start = "<button onclick=\\"%s\\">start</button>" % (go.replace("%r", "&quot;/?left=6&quot;"))
        page = "<title>%d</title>%s<script>onload = () => { %s }</script>" % (left, start, script)
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(page.encode())
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8125), Leading)
open("/tmp/leading", "w").close()
server.serve_forever()`;
    await shell(`cat >/tmp/leading.py <<'END'\n${server}\nEND`);
    await shell("python3 /tmp/leading.py >/dev/null 2>&1 & until [ -e /tmp/leading ]; do sleep 0.02; done");
    for (let round = 0; round < 5; round++) {
      await browser.ok("goto", { url: "http://localhost:8125/?left=6" });
      await browser.ok("wait_for", { selector: "button", text: "end" });
      await browser.ok("click", { selector: "button" });
      expect(await browser.ok("wait_for", { url: "left=0", text: "end" })).toMatchObject({ title: "0" });
    }
  });

  it("wait_for sees later changes, and its timeout says so", async () => {
    await browser.show(
      "<script>setTimeout(() => document.body.innerHTML = '<p id=p>late text</p>', 300)</script>",
    );
    await browser.ok("wait_for", { selector: "#p", text: "late", url: "data:text/html" });
    expect(await browser.call("wait_for", { selector: "#never", timeout: 0.5 })).toMatchObject({
      code: 5006,
      message: expect.stringContaining("exceeded its timeout of 0.5 s"),
    });
    await browser.evaluate("setTimeout(() => p.remove(), 200)");
    await browser.ok("wait_for", { selector: "#p", hidden: true });
  });

  it("a URL has its fragment, in results and in wait_for", async () => {
    await shell("echo '<title>App</title>' >app.html");
    const file = `file://${(await shell("pwd")).stdout.trim()}/app.html`;
    expect(await browser.ok("goto", { url: `${file}#/one` })).toMatchObject({ url: `${file}#/one` });
    await browser.evaluate("setTimeout(() => { location.hash = '#/two' }, 100)");
    expect(await browser.ok("wait_for", { url: "#/two", timeout: 60 })).toMatchObject({
      url: `${file}#/two`,
    });
  });

  it("tabs are opened, selected and closed, and a page's own tabs are reported", async () => {
    await browser.show("<title>first</title><button onclick=\"window.open('about:blank')\">Open</button>");
    const [popup] = (await browser.ok("click", { selector: "button" })).opened_tabs;
    expect(popup).toMatch(/^t\d+$/);
    expect(await browser.evaluate("document.title")).toBe("first");
    await browser.ok("tabs", { action: "select", tab: popup });
    await browser.show("<title>second</title>");
    expect((await browser.ok("screenshot")).width).toBe(800);
    await browser.ok("tabs", { action: "new" });
    const { tabs } = await browser.ok("tabs");
    expect(tabs.map(({ active }) => active)).toEqual([false, false, true]);
    await browser.ok("tabs", { action: "close" });
    await browser.ok("tabs", { action: "close", tab: popup });
    expect(await browser.evaluate("document.title")).toBe("first");
    const closed = await browser.ok("tabs", { action: "close" });
    expect(closed.tabs).toEqual([]);
    expect(await browser.ok("evaluate", { script: "1" })).toMatchObject({
      result: 1,
      session_restarted: false,
    });
  });

  test("a download is stored in the sandbox, from a URL or from a click, and nothing else is", async () => {
    const text = await browser.ok("download", { url: "data:text/plain,hello" });
    expect(text).toMatchObject({ size: 5 });
    expect((await shell(`cat '${text.path}'`)).stdout).toBe("hello");
    await browser.show("<a download='report.csv' href='data:text/csv,1,2'>Report</a>");
    const report = await browser.ok("download", { selector: "a", directory: "got" });
    expect(report).toMatchObject({ path: expect.stringMatching(/\/got\/report\.csv$/), size: 3 });
    expect((await shell(`cat '${report.path}'`)).stdout).toBe("1,2");
    expect((await shell(`stat -c %a '${dirname(report.path)}' '${report.path}'`)).stdout).toBe("755\n644\n");
    await browser.ok("click", { selector: "a" });
    await browser.ok("click", { selector: "a" });
    expect((await shell("find / -name 'report*.csv*' -not -path '/proc/*' 2>/dev/null | wc -l")).stdout).toBe(
      "1\n",
    );
  });

  it("a download overwrites nothing: a name that is taken gets a number", async () => {
    await shell("mkdir -p /tmp/kept/dir.txt && printf mine >/tmp/kept/main.tar.gz");
    const offer = async (name: string, content: string) => {
      await browser.show(`<a download='${name}' href='data:application/octet-stream,${content}'>Get</a>`);
      return (await browser.ok("download", { selector: "a", directory: "/tmp/kept" })).path;
    };
    expect(await offer("main.tar.gz", "one")).toMatch(/\/kept\/main\.tar \(1\)\.gz$/);
    expect(await offer("main.tar.gz", "two")).toMatch(/\/kept\/main\.tar \(2\)\.gz$/);
    expect(await offer("dir.txt", "three")).toMatch(/\/kept\/dir \(1\)\.txt$/);
    expect(await offer("東京 😀.csv", "four")).toMatch(/\/kept\/東京 😀\.csv$/);
    const { stdout } = await shell('cd /tmp/kept; for file in *; do echo "$file: $(cat "$file" 2>&1)"; done');
    expect(stdout.split("\n").sort()).toEqual([
      "",
      expect.stringMatching(/^dir \(1\)\.txt: three$/),
      expect.stringMatching(/^dir\.txt: .*directory/),
      "main.tar (1).gz: one",
      "main.tar (2).gz: two",
      "main.tar.gz: mine",
      "東京 😀.csv: four",
    ]);
  });

  it("a directory that cannot be made for a download is named", async () => {
    await shell("touch /tmp/plain");
    const asked = { url: "data:text/plain,hello", directory: "/tmp/plain/new" };
    const { code, message } = await browser.call("download", asked);
    expect({ code, message }).toEqual({ code: 4001, message: expect.stringContaining("/tmp/plain/new") });
  });

  it("what frames in other tabs download is not taken for what a click downloads", async () => {
    const script = `<script>
      const link = document.createElement("a");
      link.download = "other"; link.href = "data:application/octet-stream,other";
      setInterval(() => link.click(), 20);
    </script>`;
    const inner = script.replaceAll('"', "&quot;");
    const near = `<iframe srcdoc="${inner}"></iframe>`;
    const far = `<iframe sandbox="allow-scripts allow-downloads" src="data:text/html,${inner}"></iframe>`;
    for (const frame of [near, far]) {
      await browser.show(`<body>${frame}`);
      await browser.ok("tabs", { action: "new" });
      await browser.show("<button>Get</button>");
      expect(await browser.call("download", { selector: "button", timeout: 2 })).toMatchObject({
        code: 5006,
        message: expect.stringContaining("No download had started"),
      });
      await browser.ok("tabs", { action: "close" });
    }
  });

  it("a download that never begins says so at its timeout", async () => {
    await browser.show("<button>Get</button>");
    expect(await browser.call("download", { selector: "button", timeout: 2 })).toMatchObject({
      code: 5006,
      message: expect.stringContaining("No download had started"),
      data: { tab_lost: false },
    });
  });

  it("a server's refusal in the form of a download is not a download, and nobody waits for it", async () => {
    const server = `
import http.server
class Refusing(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(404)
        self.send_header("Content-Disposition", "attachment; filename=gone.txt")
        self.end_headers()
        self.wfile.write(b"gone")
server = http.server.HTTPServer(("127.0.0.1", 8124), Refusing)
open("/tmp/refusing", "w").close()
server.serve_forever()`;
    await shell(`python3 -c '${server}' >/dev/null 2>&1 & until [ -e /tmp/refusing ]; do sleep 0.02; done`);
    const url = "http://localhost:8124/gone.txt";
    const problem = expect.stringMatching(/could not be loaded: net::ERR_INVALID_RESPONSE/);
    expect(await browser.call("download", { url })).toMatchObject({ code: 4001, message: problem });
    expect(await browser.call("goto", { url })).toMatchObject({ code: 4001, message: problem });
  });

  it("a server that answers without a page is not blamed on the network", async () => {
    const server = `
import http.server
class Pageless(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(self.path[1:]))
        self.send_header("WWW-Authenticate", "Basic realm=here")
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8131), Pageless)
open("/tmp/pageless", "w").close()
server.serve_forever()`;
    await shell(`python3 -c '${server}' >/dev/null 2>&1 & until [ -e /tmp/pageless ]; do sleep 0.02; done`);
    for (const [status, problem] of [
      [
        204,
        "net::ERR_ABORTED. The server sent no page, as with the status 204 or a download, or the page was stopped.",
      ],
      [500, "net::ERR_HTTP_RESPONSE_CODE_FAILURE. The server answered with an error status and no page."],
      [401, "net::ERR_INVALID_AUTH_CREDENTIALS. The server asks for a name and a password."],
    ] as const) {
      const { code, message } = await browser.call("goto", { url: `http://localhost:8131/${status}` });
      expect({ code, message }).toEqual({ code: 4001, message: expect.stringContaining(problem) });
      expect(message).not.toContain("no network");
    }
  });

  describe("a page that its server sends only once", () => {
    const url = (path: string) => `http://localhost:8132/${path}`;

    beforeAll(async () => {
      const server = `
import http.server, time
seen = set()
class Changing(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        again = self.path in seen
        seen.add(self.path)
        if self.path == "/image" or again: time.sleep(0.5)
        self.send_response(204 if again and self.path == "/nothing" else 200)
        self.send_header("Cache-Control", "no-store")
        if again and self.path == "/file": self.send_header("Content-Disposition", "attachment")
        self.end_headers()
        if again and self.path == "/nothing": return
        self.wfile.write(b"<title>page</title><img src=/image><script>onload = () => document.title = 'loaded'</script>")
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8132), Changing)
open("/tmp/changing", "w").close()
server.serve_forever()`;
      await shell(
        `echo ${Buffer.from(server).toString("base64")} | base64 -d >changing.py; python3 changing.py >/dev/null 2>&1 & until [ -e /tmp/changing ]; do sleep 0.02; done`,
      );
    });

    for (const [title, path] of [
      ["is not loaded again if the server then sends nothing", "nothing"],
      ["is not loaded again if the server then sends a file", "file"],
    ] as const) {
      it(title, async () => {
        const problem = expect.stringContaining(
          "The server sent no page, as with the status 204 or a download",
        );
        await browser.ok("goto", { url: url(path) });
        expect(await browser.call("reload", { timeout: 20 })).toMatchObject({ code: 4001, message: problem });
        await browser.show("<title>here</title>");
        expect(await browser.call("back", { timeout: 20 })).toMatchObject({ code: 4001, message: problem });
        expect(await browser.evaluate("document.title")).toBe("here");
      });
    }

    it("is complete when it is gone back to, however late the server answers", async () => {
      await browser.ok("goto", { url: url("page") });
      await browser.show("<title>here</title>");
      expect(await browser.ok("back")).toMatchObject({ url: url("page"), title: "loaded" });
    });
  });

  it("dialogs are answered at once, and the result reports them", async () => {
    await browser.show("<script>var answers</script>");
    const { dialogs } = await browser.ok("evaluate", {
      script: "answers = [alert('a'), confirm('sure?'), prompt('name', 'Ada')]",
    });
    expect(dialogs).toEqual([
      { type: "alert", message: "a", accepted: true },
      { type: "confirm", message: "sure?", accepted: true },
      { type: "prompt", message: "name", accepted: true },
    ]);
    expect(await browser.evaluate("answers.slice(1)")).toEqual([true, "Ada"]);
    expect(await browser.evaluate("prompt('text', 'long '.repeat(1_000)).length")).toBe(5_000);
    await browser.evaluate("onbeforeunload = event => event.preventDefault()");
    await browser.ok("click", { selector: "html" });
    expect((await browser.ok("goto", { url: "about:blank" })).dialogs).toMatchObject([
      { type: "beforeunload" },
    ]);
    await browser.evaluate("setTimeout(() => alert('between calls')); 0");
    await browser.ok("wait_for", { state: "load" });
    await browser.evaluate("new Promise(done => setTimeout(done, 50))");
  });

  it("a prompt with a default text of any size is answered, and its tab stays", async () => {
    await browser.show("<title>here</title>");
    const { result, dialogs } = await browser.ok("evaluate", {
      script: "prompt('text', 'x'.repeat(5_000_000))",
    });
    expect(result).toBeNull();
    expect(dialogs).toEqual([{ type: "prompt", message: "", accepted: false }]);
    expect(await browser.ok("evaluate", { script: "confirm(document.title)" })).toMatchObject({
      result: true,
      tab_restarted: false,
    });
  });

  it("a page that opens one dialog after another can be left", async () => {
    await shell('for each in here there; do echo "<title>$each</title>" >$each.html; done');
    const { stdout } = await shell("pwd");
    const open = (name: string) => browser.call("goto", { url: `file://${stdout.trim()}/${name}.html` });
    // Whether a dialog opens at the moment that matters is a matter of luck.
    for (let round = 0; round < 3; round++) {
      await open("here");
      await browser.evaluate("setInterval(() => alert('here'), 5); 0");
      expect(await open("there")).toMatchObject({ code: 0, data: { title: "there", tab_restarted: false } });
    }
  });

  test.each(
    shareOf<[string, Record<string, unknown>, string]>(name, [
      ["goto", { url: "no url" }, "params.url"],
      ["goto", { url: "chrome://crash" }, "params.url"],
      ["goto", { url: "javascript:1" }, "params.url"],
      ["goto", {}, "params.url"],
      ["goto", { url: "about:blank", wait_until: "soon" }, "params.wait_until"],
      ["goto", { url: "about:blank", timeout: 0 }, "params.timeout"],
      ["click", {}, "params.selector"],
      ["click", { selector: "a", ref: "e1" }, "params.selector"],
      ["click", { ref: "12" }, "params.ref"],
      ["click", { selector: "a", x: 1 }, "params.y"],
      ["click", { selector: "a", button: "fourth" }, "params.button"],
      ["key", { key: "Hyper+x" }, "params.key"],
      ["key", { key: "NoKey" }, "params.key"],
      ["screenshot", { full_page: true, selector: "a" }, "params.full_page"],
      ["wait_for", {}, "params"],
      ["wait_for", { text: "Loading", hidden: true }, "params.hidden"],
      ["tabs", { action: "select" }, "params.tab"],
      ["download", { url: "file:///etc/passwd" }, "params.url"],
      ["download", { url: "data:,", directory: "../.." }, "working_dir"],
      ["upload", { ref: "e1", paths: ["a\0b"] }, "params.paths.0"],
      ["evaluate", { script: "" }, "params.script"],
      ["content", { unknown: 1 }, "params"],
    ]),
  )("%s with %j is refused, naming %s", async (tool, params, field) => {
    const error = await browser.call(tool, params).catch((refusal: unknown) => String(refusal));
    expect(error).toMatch(new RegExp(`INVALID_ARGUMENT: ${field.replaceAll(".", "\\.")}`));
  });

  test.each(
    shareOf<[string, Record<string, unknown>, string]>(name, [
      ["click", { selector: "#missing" }, 'No element matches "#missing"'],
      ["click", { selector: "a[" }, "not a valid selector"],
      ["click", { selector: "#hidden" }, "not visible"],
      ["click", { selector: "#p", x: 100_000, y: 0 }, "has only"],
      ["type", { selector: "#p", text: "x" }, "takes no text"],
      ["type", { selector: "#off", text: "x" }, "disabled"],
      ["type", { selector: "#date", text: "tomorrow" }, "does not take"],
      ["select", { selector: "#p", values: [] }, "not a select element"],
      ["select", { selector: "select", values: ["x"] }, 'has no option "x". It has: "one"'],
      ["select", { selector: "select", values: ["off"] }, 'has the option "off", but it is disabled'],
      ["upload", { selector: "#p", paths: ["two.html"] }, "not a file input"],
      ["upload", { selector: "#file", paths: ["missing.txt"] }, "missing.txt"],
      ["upload", { selector: "#file", paths: ["/tmp"] }, "is not a file"],
      ["tabs", { action: "close", tab: "t999" }, "There is no tab t999"],
      ["back", {}, "no page to go back to"],
    ]),
  )("%s with %j fails, saying %s", async (tool, params, problem) => {
    await browser.ok("tabs", { action: "new" });
    await browser.ok("evaluate", {
      script: `document.body.innerHTML = "<p id=p>p</p><p id=hidden hidden>h</p><input id=off disabled><input id=date type=date><input id=file type=file><select><option>one<option disabled>off</select>"`,
    });
    const answer = await browser.call(tool, params);
    expect(answer).toMatchObject({ code: 4001, message: expect.stringContaining(problem) });
    await browser.ok("tabs", { action: "close" });
  });
});
