import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { BrowserClient, refIn } from "../../support/browser.ts";
import { DESKTOP_ENGINES, desktopSandbox } from "../../support/desktop.ts";
import { testsInTurn } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { scaled } from "../../support/scale.ts";
import { followTurns } from "../../support/turns.ts";
import { Worker } from "../../support/worker.ts";

describe.each(DESKTOP_ENGINES)("on $name", ({ name, settings }) => {
  const app = useApp(settings);
  const it = testsInTurn(name);
  let browser: BrowserClient;
  const shell = (command: string) => browser.worker.bash(command);
  /**
   * Kills the busiest process of a page, repeatedly until the call has ended: at first that may be the starting process
   * of the next page.
   */
  const crashPageOf = async <T>(call: Promise<T>): Promise<T> => {
    let hasEnded = false;
    const note = () => {
      hasEnded = true;
    };
    call.then(note, note);
    const busiest =
      "ps ax --sort=-pcpu -o pid=,stat=,args= | awk '$2 ~ /^R/ && /[t]ype=renderer/ {print $1; exit}'";
    await eventually(async () => {
      await shell("sleep 0.5");
      if (!hasEnded) await shell(`kill -9 $(${busiest})`);
      return hasEnded;
    });
    return call;
  };

  /** A script that a page runs to report that it runs, and how to wait for that. */
  const calling = async (): Promise<{ readonly script: string; called(): Promise<unknown> }> => {
    const server =
      "import socket; server = socket.create_server(('127.0.0.1', 0)); print(server.getsockname()[1], flush=True); server.accept(); open('/tmp/called', 'w')";
    await shell(`rm -f /tmp/called /tmp/port; python3 -c "${server}" >/tmp/port 2>&1 &`);
    const port = (await shell("until [ -s /tmp/port ]; do sleep 0.02; done; cat /tmp/port")).stdout.trim();
    return {
      script: `var request = new XMLHttpRequest(); request.open('GET', 'http://127.0.0.1:${port}/', false); try { request.send() } catch {}`,
      called: () => shell("until [ -e /tmp/called ]; do sleep 0.02; done"),
    };
  };

  beforeAll(async () => {
    browser = new BrowserClient(new Worker(app.client, "hostile"));
    const { failure, session } = await browser.worker.create("browser");
    expect(failure).toBeNull();
    const sandbox = { sandbox_id: session?.sandbox_id };
    expect((await browser.worker.create("bash", undefined, sandbox)).failure).toBeNull();
  });

  it("a script that never returns is stopped, and the page stays", async () => {
    await browser.show("<title>here</title>");
    const endless = { script: "while (true);", timeout: 0.5 };
    expect(await browser.call("evaluate", endless)).toMatchObject({ code: 5006, data: { tab_lost: false } });
    const promise = { script: "new Promise(() => {})", timeout: 0.5 };
    expect(await browser.call("evaluate", promise)).toMatchObject({ code: 5006, data: { tab_lost: false } });
    expect(await browser.evaluate("document.title")).toBe("here");
    await browser.evaluate("setTimeout(() => { document.title = 'busy'; while (true); }); 0");
    await expect.poll(async () => (await browser.ok("tabs")).tabs).toMatchObject([{ title: "busy" }]);
    expect(await browser.call("screenshot", { timeout: 1 })).toMatchObject({ code: 5006 });
    expect(await browser.ok("screenshot")).toMatchObject({ title: "busy" });
  });

  it("a page that answers only later after a timeout stays", async () => {
    await browser.show("<title>here</title>");
    await shell("pkill -STOP -f type=renderer; (sleep 2.5; pkill -CONT -f type=renderer) >/dev/null 2>&1 &");
    const { code, data } = await browser.call("evaluate", { script: "while (true);", timeout: 0.3 });
    expect({ code, data }).toMatchObject({ code: 5006, data: { tab_lost: false } });
    expect(await browser.evaluate("document.title")).toBe("here");
  });

  it("a page that crashes after a timeout is not waited for", async () => {
    await browser.show("<title>here</title>");
    await shell(
      "rm -f /tmp/killed; pkill -STOP -f type=renderer; (sleep 1.5; pkill -KILL -f type=renderer; touch /tmp/killed) >/dev/null 2>&1 &",
    );
    const { code, message } = await browser.call("evaluate", { script: "while (true);", timeout: 0.3 });
    expect(code).toBe(5006);
    expect(message).not.toContain("did not answer");
    // Until then it kills the next page's process too.
    await shell("until [ -e /tmp/killed ]; do sleep 0.02; done");
    await browser.show("<title>again</title>");
    expect(await browser.evaluate("document.title")).toBe("again");
  });

  it("a canceled call stops its script, and the next one continues", async () => {
    await browser.show("<title>here</title>");
    const cancel = new AbortController();
    const { script, called } = await calling();
    const params = { script: `document.title = 'runs'; ${script}; while (true);` };
    const call = browser.worker.execute("browser:evaluate", params, {}, { signal: cancel.signal });
    call.catch(() => {});
    await called();
    cancel.abort();
    await expect(call).rejects.toThrow(/CANCELLED/);
    expect(await browser.evaluate("document.title")).toBe("runs");
  });

  it("an endless series of dialogs ends its tab, and the next call has another one", async () => {
    await browser.show("<title>here</title>");
    const { code, message, data } = await browser.call("evaluate", { script: "while (true) alert(1)" });
    expect({ code, message }).toEqual({ code: 4001, message: expect.stringContaining("dialogs") });
    expect(data.dialogs.at(-1)).toEqual({ more: expect.any(Number) });
    const next = await browser.ok("evaluate", { script: "1" });
    expect(next).toMatchObject({ result: 1, tab_restarted: true, session_restarted: false });
    const running = async (): Promise<string> =>
      (await shell("ps ax -o stat=,args= | grep -c '^R.*[t]ype=renderer'")).stdout;
    await eventually(async () => (await running()) === "0\n", { describe: running });
  });

  it("a page that crashes is reported, and the next call has another tab", async () => {
    await browser.show("<title>here</title>");
    const waiting = browser.call("evaluate", { script: "while (true);" });
    expect(await crashPageOf(waiting)).toMatchObject({
      code: 4001,
      message: expect.stringContaining("The tab crashed"),
    });
    expect(await browser.ok("goto", { url: "about:blank" })).toMatchObject({ tab_restarted: true });
    expect(await browser.ok("screenshot")).toMatchObject({ tab_restarted: false, session_restarted: false });
  });

  it("a page that crashes while it is downloaded ends the call", async () => {
    const url = "data:text/html,<script>while (true);</script>";
    const waiting = browser.call("download", { url });
    expect(await crashPageOf(waiting)).toMatchObject({
      code: 4001,
      message: expect.stringContaining("The tab crashed"),
    });
  });

  it("a page that downloads more than it was asked for leaves one file, and its long name holds nobody up", async () => {
    const give = `const give = (name) => {
      const link = document.createElement("a");
      link.download = name; link.href = "data:application/octet-stream," + name.length; link.click();
    }`;
    const click = "for (let more = 0; more < 3; more++) give('x'.repeat(1e5 + more) + '.txt')";
    await browser.show(`<script>${give}</script><button onclick="${click}">Get</button>`);
    const turns = followTurns();
    const { path } = await browser.ok("download", { selector: "button", directory: "/tmp/asked" });
    expect(Math.max(...turns())).toBeLessThan(1_000);
    expect(path).toBe(`/tmp/asked/${"x".repeat(200)}.txt`);
    const { stdout } = await shell("find /tmp/asked -type f -o -name '.*'; cat /tmp/asked/*");
    expect(stdout).toMatch(new RegExp(`^${path}\n10000[4-6]$`));
    const names = Array.from({ length: 99 }, (_, at) => `x (${at + 1})`).join("' '");
    await shell(`mkdir /tmp/taken; cd /tmp/taken; touch x '${names}'`);
    await browser.show("<a download=x href='data:application/octet-stream,1'>Get</a>");
    expect(await browser.call("download", { selector: "a", directory: "/tmp/taken" })).toMatchObject({
      code: 4001,
      message: expect.stringContaining("already has 100 files of the download's name"),
    });
    expect((await shell("ls -A /tmp/taken | wc -l; cat /tmp/taken/*")).stdout).toBe("100\n");
  });

  it("a browser that crashes is reported, and the next call has another one", async () => {
    await browser.show("<title>here</title>");
    const { script, called } = await calling();
    const waiting = browser.call("evaluate", { script: `${script}; new Promise(() => {})` });
    await called();
    await shell("pkill -9 -f remote-debugging-pipe");
    const { code, message, data } = await waiting;
    expect({ code, message }).toEqual({ code: 4001, message: expect.stringContaining("lost its Chromium") });
    expect(data).toMatchObject({ session_lost: true });
    expect(await browser.ok("goto", { url: "about:blank" })).toMatchObject({ session_restarted: true });
    expect(await browser.ok("goto", { url: "about:blank" })).toMatchObject({ session_restarted: false });
    await expect.poll(async () => (await shell("ls -d /tmp/berth-browser-* | wc -l")).stdout).toBe("1\n");
  });

  test("a page that uses up the sandbox's memory ends alone, or with a cause", async () => {
    await browser.show("<title>here</title>");
    const script = "const all = []; while (true) all.push(new Uint8Array(2 ** 26).fill(1))";
    const ended = await browser.call("evaluate", { script }).catch((error: unknown) => String(error));
    if (typeof ended === "string") expect(ended).toMatch(/memory/);
    else if (ended.data.error === undefined) expect(ended).toMatchObject({ code: 4001 });
    await browser.show("<title>again</title>");
    expect(await browser.evaluate("document.title")).toBe("again");
  });

  it("floods from a page do not block the service", async () => {
    await browser.show("<title>flood</title>");
    const flood = browser.call("evaluate", {
      script: `const end = performance.now() + 3000;
        const frame = document.documentElement.appendChild(document.createElement("iframe"));
        while (performance.now() < end) { console.log("x".repeat(1e5), {}); document.title = Math.random(); frame.contentWindow.location.hash = Math.random() }`,
    });
    const endOfTurns = followTurns();
    const answer = await flood;
    const turns = endOfTurns();
    expect(answer).toMatchObject({ code: 0, data: { error: null } });
    expect(Math.max(...turns)).toBeLessThan(200);
  });

  it("pages open no more tabs than allowed", async () => {
    await browser.show(
      "<button onclick=\"for (let i = 0; i < 60; i++) window.open('about:blank', 'w' + i)\">Open</button>",
    );
    await browser.ok("click", { selector: "button" });
    const { tabs } = await browser.ok("tabs");
    expect(tabs.length).toBeLessThanOrEqual(20);
    for (const { id } of tabs.slice(1)) await browser.ok("tabs", { action: "close", tab: id });
  });

  it("a page whose elements are deeply nested has a tree", async () => {
    for (const depth of [200, 500]) {
      await browser.show(`${"<div>".repeat(depth)}<button>deep</button><input type=file aria-label=file>`);
      const { tree } = await browser.ok("tree");
      expect(tree).toMatch(/- button "deep" \[ref=e\d+\]/);
      expect(tree).toMatch(/- file "file"[^\n]* \[ref=e\d+\]/);
      await browser.ok("click", { ref: refIn(tree, "button", "deep") });
    }
  });

  it("a huge page has a tree, which is cut", async () => {
    await browser.show("<title>huge</title>");
    const fill =
      "document.body.innerHTML = '<p>one <button>two</button></p>'.repeat(6000) + '<input type=file>'; 0";
    await browser.evaluate(fill);
    const { tree, truncated } = await browser.ok("tree");
    expect(truncated).toBe(true);
    expect(tree.split("\n").length).toBe(5_000);
    expect(await browser.evaluate("1")).toBe(1);
  });
});

/** Of 64 KiB. Eight times what the service accepts, or more than can be sent in time. */
const ENDLESS_CHUNKS = scaled(1 << 20, 4 << 10);

/** A program in place of Chromium. After the start it answers as the test says. */
const IMPOSTOR = `#!/usr/bin/python3
import json, os, sys
mode = os.environ.get("IMPOSTOR", "")
requests, answers = os.fdopen(3, "rb", 0), os.fdopen(4, "wb", 0)
def say(text): answers.write(text.encode() + b"\\0")
def answer(id, result): say(json.dumps({"id": id, "result": result}, separators=(",", ":")))
FRAME = {"frameTree": {"frame": {"id": "T", "loaderId": "L", "url": "about:blank"}}}
rest = b""
while True:
    chunk = requests.read(65536)
    if not chunk: break
    *whole, rest = (rest + chunk).split(b"\\0")
    for message in whole:
        request = json.loads(message)
        id, method = request["id"], request["method"]
        if method == "Target.setAutoAttach" and "sessionId" not in request:
            say('{"method":"Target.attachedToTarget","params":{"sessionId":"S","targetInfo":{"targetId":"T","type":"page"}}}')
        if method == "Page.getFrameTree": answer(id, FRAME)
        elif method == "Target.getTargetInfo": answer(id, {"targetInfo": {"url": "", "title": ""}})
        elif method == "Page.captureScreenshot" or method == "Runtime.evaluate":
            if mode == "garbage":
                for text in ["", "null", "[]", "{}", "\\xff", '{"id":%d' % id, '{"method":"Target.attachedToTarget","params":{"targetInfo":null}}', '{"method":"Page.lifecycleEvent"}', '{"method":"Target.targetCrashed","params":7}']: say(text)
                answer(id, {"data": 7, "result": 7})
            elif mode == "huge": say('{"id":%d,"result":{"x":"' % id + "x" * (40 << 20) + '"}}')
            elif mode == "values": say('{"id":%d,"result":{"x":[' % id + "1," * (1 << 20) + '1]}}')
            elif mode == "endless":
                for _ in range(${ENDLESS_CHUNKS}): answers.write(b"x" * 65536)
            elif mode == "dialogs":
                for _ in range(100000): say('{"method":"Page.javascriptDialogOpening","params":{"type":"alert","message":"x"},"sessionId":"S"}')
                answer(id, {"data": "", "result": {"type": "undefined"}})
            elif mode == "targets":
                for n in range(20000): say('{"method":"Target.attachedToTarget","params":{"sessionId":"S%d","targetInfo":{"targetId":"T%d","type":"page"}}}' % (n, n))
                answer(id, {"data": "", "result": {"type": "undefined"}})
            elif mode == "silent": pass
            elif mode == "exit": sys.exit(3)
        else: answer(id, {})
`;

// As root in a container, a sandbox can replace the browser by anything.
describe("a browser that lies, on docker", () => {
  const app = useApp(DESKTOP_ENGINES[0]?.settings);
  let sandboxId = "";

  beforeAll(async () => {
    sandboxId = await desktopSandbox(app.client, "docker");
    const shell = new Worker(app.client, "shell");
    await shell.create("bash", undefined, { sandbox_id: sandboxId });
    await shell.bash(`cat >/usr/lib/chromium/chromium <<'END'\n${IMPOSTOR}\nEND`);
  });

  test.each<[string, RegExp]>([
    ["garbage", /another form|no picture|refused/],
    ["huge", /too large/],
    ["values", /too large/],
    ["endless", /timeout/],
    ["dialogs", /dialogs|no picture|another form/],
    ["targets", /no picture|another form|closed|timeout/],
    ["silent", /timeout/],
    ["exit", /lost its Chromium: it exited with code 3/],
  ])("%s fails the call alone", async (mode, problem) => {
    const browser = new BrowserClient(new Worker(app.client, mode));
    const { failure } = await browser.worker.create(
      "browser",
      { env: { IMPOSTOR: mode } },
      { sandbox_id: sandboxId },
    );
    expect(failure).toBeNull();
    const endOfTurns = followTurns();
    // Cases that do get an answer need time for it on a busy machine.
    const timeout = problem.source === "timeout" ? 1 : 75;
    const shot = await browser.call("screenshot", { timeout });
    const script = await browser.call("evaluate", { script: "1", timeout });
    const turns = endOfTurns();
    expect(shot.code).not.toBe(0);
    expect(shot.message).toMatch(problem);
    if (script.code !== 0) expect(script.message).not.toBe("");
    expect(Math.max(...turns)).toBeLessThan(300);
    await browser.worker.destroy();
  });
});
