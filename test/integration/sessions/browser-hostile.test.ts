import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { BrowserClient } from "../../support/browser.ts";
import { DESKTOP_ENGINES } from "../../support/desktop.ts";
import { Worker } from "../../support/worker.ts";

describe.each(DESKTOP_ENGINES)("on $name", ({ name, settings }) => {
  const app = useApp(settings);
  let browser: BrowserClient;
  const shell = (command: string) => browser.worker.bash(command);

  beforeAll(async () => {
    browser = new BrowserClient(new Worker(app.client, "hostile"));
    const { failure, session } = await browser.worker.create("browser");
    expect(failure).toBeNull();
    const sandbox = { sandbox_id: session?.sandbox_id };
    expect((await browser.worker.create("bash", undefined, sandbox)).failure).toBeNull();
  });

  test("a script that never returns is stopped, and the page stays", async () => {
    await browser.show("<title>here</title>");
    const endless = { script: "while (true);", timeout: 0.5 };
    expect(await browser.call("evaluate", endless)).toMatchObject({ code: 5006, data: { tab_lost: false } });
    const promise = { script: "new Promise(() => {})", timeout: 0.5 };
    expect(await browser.call("evaluate", promise)).toMatchObject({ code: 5006, data: { tab_lost: false } });
    expect(await browser.evaluate("document.title")).toBe("here");
    await browser.evaluate("setTimeout(() => { while (true); }); 0");
    expect(await browser.call("screenshot", { timeout: 1 })).toMatchObject({ code: 5006 });
    expect(await browser.ok("screenshot")).toMatchObject({ title: "here" });
  });

  test("a canceled call stops its script, and the next one goes on", async () => {
    await browser.show("<title>here</title>");
    const cancel = new AbortController();
    const params = { script: "document.title = 'runs'; while (true);" };
    const call = browser.worker.execute("browser:evaluate", params, {}, { signal: cancel.signal });
    setTimeout(() => cancel.abort(), 300);
    await expect(call).rejects.toThrow(/CANCELLED/);
    expect(await browser.evaluate("document.title")).toBe("runs");
  });

  test("an endless row of dialogs ends its tab, and the next call has another one", async () => {
    await browser.show("<title>here</title>");
    const { code, message, data } = await browser.call("evaluate", { script: "while (true) alert(1)" });
    expect({ code, message }).toEqual({ code: 4001, message: expect.stringContaining("dialogs") });
    expect(data.dialogs.at(-1)).toEqual({ more: expect.any(Number) });
    const next = await browser.ok("evaluate", { script: "1" });
    expect(next).toMatchObject({ result: 1, tab_restarted: true, session_restarted: false });
    await browser.ok("goto", { url: "about:blank" });
  });

  test("a page that crashes is told of, and the next call has another tab", async () => {
    await browser.show("<title>here</title>");
    const waiting = browser.call("wait_for", { selector: "#never" });
    await shell("sleep 0.3; pkill -9 -f type=renderer");
    expect(await waiting).toMatchObject({ code: 4001, message: expect.stringContaining("The tab crashed") });
    expect(await browser.ok("goto", { url: "about:blank" })).toMatchObject({ tab_restarted: true });
    expect(await browser.ok("screenshot")).toMatchObject({ tab_restarted: false, session_restarted: false });
  });

  test("a browser that crashes is told of, and the next call has another one", async () => {
    await browser.show("<title>here</title>");
    const waiting = browser.call("wait_for", { selector: "#never" });
    await shell("sleep 0.3; pkill -9 -f remote-debugging-pipe");
    const { code, message, data } = await waiting;
    expect({ code, message }).toEqual({ code: 4001, message: expect.stringContaining("lost its Chromium") });
    expect(data).toMatchObject({ session_lost: true });
    expect(await browser.ok("goto", { url: "about:blank" })).toMatchObject({ session_restarted: true });
    expect(await browser.ok("goto", { url: "about:blank" })).toMatchObject({ session_restarted: false });
    expect((await shell("ls -d /tmp/berth-browser-* | wc -l")).stdout).toBe("1\n");
  });

  test("a page that eats the sandbox's memory ends alone, or with a cause", async () => {
    await browser.show("<title>here</title>");
    const script = "const all = []; while (true) all.push(new Uint8Array(2 ** 26).fill(1))";
    const ended = await browser
      .call("evaluate", { script, timeout: 60 })
      .catch((error: unknown) => String(error));
    if (typeof ended === "string") expect(ended).toMatch(/memory/);
    else if (ended.data.error === undefined) expect(ended).toMatchObject({ code: 4001 });
    await browser.show("<title>again</title>");
    expect(await browser.evaluate("document.title")).toBe("again");
  });

  test("floods from a page do not hold up the service", async () => {
    const other = new Worker(app.client, "bystander");
    await other.create("bash", undefined, { sandbox_id: (await browser.worker.list())[0]?.sandbox_id });
    await browser.show("<title>flood</title>");
    const flood = browser.call("evaluate", {
      script: `const end = performance.now() + 3000;
        const frame = document.documentElement.appendChild(document.createElement("iframe"));
        while (performance.now() < end) { console.log("x".repeat(1e5), {}); document.title = Math.random(); frame.contentWindow.location.hash = Math.random() }`,
      timeout: 10,
    });
    const delays: number[] = [];
    let last = performance.now();
    const timer = setInterval(() => {
      delays.push(performance.now() - last - 10);
      last = performance.now();
    }, 10);
    const answer = await flood;
    clearInterval(timer);
    expect(answer).toMatchObject({ code: 0, data: { error: null } });
    expect(delays.sort((a, b) => b - a)[0]).toBeLessThan(1_000);
    await other.destroy();
  });

  test("pages open no more tabs than there may be", async () => {
    await browser.show(
      "<button onclick=\"for (let i = 0; i < 60; i++) window.open('about:blank', 'w' + i)\">Open</button>",
    );
    await browser.ok("click", { selector: "button" });
    const { tabs } = await browser.ok("tabs");
    expect(tabs.length).toBeLessThanOrEqual(20);
    for (const { id } of tabs.slice(1)) await browser.ok("tabs", { action: "close", tab: id });
  });

  test.runIf(name === "docker")("a huge page has a tree, or says that it is too large", async () => {
    await browser.show("<title>huge</title>");
    await browser.evaluate("document.body.innerHTML = '<p>one <button>two</button></p>'.repeat(30000); 0");
    const { code, message } = await browser.call("tree");
    if (code !== 0)
      expect({ code, message }).toEqual({ code: 4001, message: expect.stringContaining("too large") });
    expect(await browser.evaluate("1")).toBe(1);
  });
});
