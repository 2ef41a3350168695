import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import WebSocket from "ws";
import { eventually } from "../../support/eventually.ts";
import { DESKTOP_IMAGE } from "../../support/images.ts";
import { ORDINARY_ID } from "../../support/ordinary-user.ts";
import { PersonBrowser } from "../../support/person-browser.ts";
import { endOf, type ProgramEnd, ServeProcess } from "../../support/program.ts";
import { RfbClient } from "../../support/rfb.ts";

let service: ServeProcess;
const dir = mkdtempSync(path.join(tmpdir(), "berth-view-"));
beforeAll(async () => {
  service = await ServeProcess.start(["--desktop-image", DESKTOP_IMAGE]);
  const created = await run(
    "session",
    "create",
    "-w",
    "ann",
    "vm",
    "screen_size:=[800,600]",
    "custom_name=shown",
  );
  expect(created).toMatchObject({ stdout: expect.stringMatching(/^vm_ann_001_shown_/), code: 0 });
});
afterAll(async () => {
  rmSync(dir, { recursive: true });
  await service.stop();
});

async function run(...args: string[]) {
  const { stdout, stderr, exitCode: code } = await service.runHere(args);
  return { stdout: stdout.toString(), stderr, code };
}

/** A served page. */
interface Page {
  readonly url: string;
  stop(): Promise<ProgramEnd>;
}
const pages: Page[] = [];
afterEach(() => Promise.all(pages.splice(0).map((page) => page.stop())));

async function view(...args: string[]): Promise<Page> {
  const env = { PATH: `${dir}:${process.env.PATH}` };
  const child = service.begin(["session", "view", ...args], { env });
  const end = endOf(child);
  let text = "";
  child.stdout.on("data", (data: Buffer) => {
    text += data;
  });
  const ended = end.then(({ stderr }) => Promise.reject(new Error(stderr)));
  ended.catch(() => {});
  const url = await Promise.race([eventually(() => /^(http:.*)\n/.exec(text)?.[1]), ended]);
  const page = {
    url,
    stop: () => {
      child.kill("SIGINT");
      return end;
    },
  };
  pages.push(page);
  return page;
}

/** A request with arbitrary headers and a literal path. */
function get(
  url: string,
  rawPath = new URL(url).pathname,
  headers: Record<string, string> = {},
  method = "GET",
) {
  const { hostname, port } = new URL(url);
  return new Promise<{ status: number; headers: http.IncomingHttpHeaders; body: string }>(
    (resolve, reject) => {
      const request = http.request({ hostname, port, path: rawPath, headers, method }, (response) => {
        let body = "";
        response.on("data", (data: Buffer) => {
          body += data;
        });
        response.on("end", () =>
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body }),
        );
      });
      request.on("error", reject).end();
    },
  );
}

function socketOf(
  url: string,
  origin = new URL(url).origin,
  headers: Record<string, string> = {},
): WebSocket {
  return new WebSocket(new URL("socket", url.replace("http:", "ws:")), "binary", { origin, headers });
}

/** The status with which a WebSocket is refused. */
function refusalOf(socket: WebSocket): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    socket.on("unexpected-response", (_, response) => resolve(response.statusCode));
    socket.on("open", () => reject(new Error("it was not refused")));
    socket.on("error", () => {});
  });
}

async function rfbOf(socket: WebSocket): Promise<RfbClient> {
  const queue: Uint8Array[] = [];
  let wake = () => {};
  let closed = false;
  socket.on("message", (data: Buffer) => {
    queue.push(data);
    wake();
  });
  socket.on("close", () => {
    closed = true;
    wake();
  });
  const incoming = (async function* () {
    for (;;) {
      for (let next = queue.shift(); next !== undefined; next = queue.shift()) yield next;
      if (closed) return;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  })();
  await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
  return RfbClient.connect({
    incoming,
    send: async (data) => socket.send(data),
    close: () => socket.terminate(),
  });
}

describe("the page", () => {
  test("is complete: every module it loads is served, and nothing is loaded from elsewhere", async () => {
    const { url } = await view("ann", "vm");
    expect(new URL(url).hostname).toBe("127.0.0.1");
    const page = await get(url);
    expect(page).toMatchObject({ status: 200, headers: { "content-type": "text/html; charset=utf-8" } });
    expect(page.headers["content-security-policy"]).toContain("default-src 'none'; script-src 'self'");
    expect(page.body).not.toMatch(/https?:|<script>|<style/);
    const waiting = [...page.body.matchAll(/(?:src|href)="([^":]+)"/g)].map(
      ([, name = ""]) => new URL(name, url).href,
    );
    const seen = new Set<string>();
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      if (seen.has(next)) continue;
      seen.add(next);
      const { status, headers, body } = await get(next);
      expect({ next, status }).toEqual({ next, status: 200 });
      if (!next.endsWith(".js")) continue;
      expect(headers["content-type"]).toBe("text/javascript; charset=utf-8");
      const imports = [...body.matchAll(/^\s*(?:import|export)\b[^'"]*?\bfrom\s+["']([^"']+)["']/gm)];
      for (const [, name = ""] of imports) waiting.push(new URL(name, next).href);
    }
    expect(seen.size).toBeGreaterThan(20);
    expect(JSON.parse((await get(new URL("about.json", url).href)).body)).toEqual({
      title: "ann · vm",
      readOnly: false,
    });
    // The script must be valid module syntax.
    const { body } = await get(new URL("view.js", url).href);
    execFileSync(process.execPath, ["--input-type=module", "--check"], { input: body });
  });

  test("shows the desktop over its WebSocket, takes pointer and keys, and every tab is a view", async () => {
    const { url } = await view("ann");
    const [one, two] = [await rfbOf(socketOf(url)), await rfbOf(socketOf(url))];
    await run("tool", "run", "-w", "ann", "vm:launch", "command=xsetroot -solid '#20c040'");
    for (const rfb of [one, two]) await rfb.until(() => rfb.pixel(790, 5) === 0x20c040);
    await one.pointer(123, 45);
    // Waits until the pointer is there.
    const follow = "until xdotool getmouselocation | grep -q x:123.y:45; do :; done; touch /tmp/there";
    await run("tool", "run", "-w", "ann", "vm:launch", `command=timeout 10 sh -c '${follow}'`);
    // Keys go to the window that has the focus.
    const take = 'until [ "$(xdotool getactivewindow getwindowname)" = keys ]; do :; done; cat > /tmp/keys';
    await run("tool", "run", "-w", "ann", "vm:launch", `command=xterm -title keys -e sh -c '${take}'`);
    const sandbox = JSON.parse((await run("session", "ls", "-w", "ann", "--json")).stdout).sessions[0]
      .sandboxId;
    const keys = async () =>
      (await run("exec", sandbox, "--", "sh", "-c", "cat /tmp/keys || echo none")).stdout;
    await eventually(async () => (await run("exec", sandbox, "--", "test", "-e", "/tmp/there")).code === 0);
    await eventually(async () => (await keys()) === "");
    const text = Array.from({ length: 20 }, (_, index) => `line ${index}\n`).join("");
    await two.type(text);
    await eventually(async () => (await keys()) === text, { describe: keys });
    one.close();
    two.close();
  });

  test("a read-only one says so and takes nothing; the end of the session is the reason of the close", async () => {
    await run("session", "create", "-w", "bob", "vm", "--config", '{"screen_size":[320,240]}');
    const { url } = await view("bob", "--read-only");
    expect(JSON.parse((await get(new URL("about.json", url).href)).body).readOnly).toBe(true);
    const socket = socketOf(url);
    const closed = new Promise((resolve) =>
      socket.on("close", (code, reason) => resolve([code, reason.toString()])),
    );
    const rfb = await rfbOf(socket);
    await rfb.update(false);
    await run("session", "rm", "-w", "bob");
    expect(await closed).toEqual([
      4001,
      expect.stringMatching(/^The session "vm_bob_\w+" was lost: it was destroyed/),
    ]);
  });

  test("Ctrl-C ends it, its connections and their views", async () => {
    const page = await view("ann");
    const socket = socketOf(page.url);
    const closed = new Promise((resolve) => socket.on("close", resolve));
    await rfbOf(socket);
    expect(await page.stop()).toMatchObject({ exitCode: 0 });
    await closed;
  });
});

describe("a client without the URL gets nothing", () => {
  let page: Page;
  let url: string;
  beforeAll(async () => {
    page = await view("ann");
    ({ url } = page);
    pages.splice(0);
  });
  afterAll(() => page.stop());

  test.each([
    ["no token", () => "/"],
    ["another token", (path: string) => path.replace(/[^/]/, (letter) => (letter === "A" ? "B" : "A"))],
    ["a part of the token", (path: string) => `${path.slice(0, 10)}/`],
    ["a way out of the directory", (path: string) => `${path}novnc/core/../../../../package.json`],
    ["an encoded way out", (path: string) => `${path}novnc/%2e%2e/package.json`],
    ["a file that is not a script", (path: string) => `${path}novnc/package.json`],
    ["another file", (path: string) => `${path}etc/passwd`],
  ])("%s", async (_, rawPath) => {
    expect(await get(url, rawPath(new URL(url).pathname))).toMatchObject({
      status: 404,
      body: "Not Found\n",
    });
  });

  test("another name of this machine", async () => {
    const { pathname, port } = new URL(url);
    expect(await get(url, pathname, { host: `evil.example:${port}` })).toMatchObject({ status: 404 });
    expect(await get(url, pathname, { host: `localhost:${port}` })).toMatchObject({ status: 200 });
    expect(await get(url, pathname, {}, "POST")).toMatchObject({ status: 405 });
  });

  test("a WebSocket of another origin, host or path", async () => {
    const { port } = new URL(url);
    expect(await refusalOf(socketOf(url, "http://evil.example"))).toBe(403);
    expect(await refusalOf(socketOf(url, "null"))).toBe(403);
    expect(await refusalOf(socketOf(url, undefined, { host: `evil.example:${port}` }))).toBe(403);
    expect(await refusalOf(socketOf(`http://127.0.0.1:${port}/`))).toBe(403);
    expect(await refusalOf(socketOf(new URL("novnc/", url).href))).toBe(403);
  });
});

test("--open gives the browser an address with which other users of the machine get nothing", async () => {
  const opened = path.join(dir, "opened");
  const browser = `#!/bin/sh\nprintf %s "$*" > '${opened}.part' && mv '${opened}.part' '${opened}'\n`;
  writeFileSync(path.join(dir, "xdg-open"), browser, { mode: 0o755 });
  const { url } = await view("ann", "--open");
  await eventually(() => existsSync(opened));
  const seen = readFileSync(opened, "utf8");
  const { pathname, port } = new URL(url);
  expect(seen).not.toContain(pathname.slice(1, -1));
  expect(await get(seen)).toMatchObject({ status: 303, headers: { location: pathname } });
  expect(await get(seen, undefined, { host: `evil.example:${port}` })).toMatchObject({ status: 404 });
  const request = `GET ${new URL(seen).pathname} HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\nconnection: close\r\n\r\n`;
  const script = 'exec 3<>"/dev/tcp/127.0.0.1/$1" && printf %s "$2" >&3 && cat <&3';
  const asOther = ["--reuid", `${ORDINARY_ID}`, "--regid", `${ORDINARY_ID}`, "--clear-groups"];
  const answer = execFileSync("setpriv", [...asOther, "bash", "-c", script, "bash", port, request], {
    encoding: "utf8",
  });
  expect(answer).toMatch(/^HTTP\/1\.1 403 /);
  expect(answer).not.toContain(pathname);
});

describe("an impossible view is an error at once", () => {
  test.each([
    [["nobody"], 1, /has no session of the type vm/],
    [["ann", "hologram"], 1, /there is no resource type "hologram"/],
    [["ann", "--port", "99999"], 2, /--port/],
  ])("%j", async (args, code, said) => {
    const end = await run("session", "view", ...args);
    expect(end).toMatchObject({ code, stdout: "", stderr: expect.stringMatching(said) });
  });
});

describe("attachments", () => {
  test("a screenshot to a file and to stdout, a PNG of the screen's size", async () => {
    const file = path.join(dir, "shot.png");
    const saved = await run("tool", "run", "-w", "ann", "vm:screenshot", "-o", file);
    expect(saved).toMatchObject({ code: 0, stderr: `${file}\n` });
    const piped = await service.run(["tool", "run", "-w", "ann", "vm:screenshot", "-o", "-"]);
    for (const png of [readFileSync(file), piped.stdout]) {
      expect(png.subarray(0, 8).toString("hex")).toBe("89504e470d0a1a0a");
      expect([png.readUInt32BE(16), png.readUInt32BE(20)]).toEqual([800, 600]);
    }
    const { stderr } = await run("tool", "run", "-w", "ann", "vm:screenshot");
    expect(stderr).toMatch(
      /^berth: it returned screenshot \(image\/png, .*\); write it to a file with -o FILE\n$/,
    );
  });

  test("-o with a tool that returns none fails", async () => {
    const end = await run("tool", "run", "-w", "ann", "vm:wait", "seconds:=0", "-o", path.join(dir, "none"));
    expect(end).toMatchObject({ code: 1, stderr: expect.stringContaining("nothing to write") });
  });
});

/** Runs in the page: where the picture has the colour of a terminal. False while it has not. */
const MIDDLE_OF_BLUE = `(() => {
  const canvas = document.querySelector("canvas");
  const pixels = canvas?.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let x = 0, y = 0, count = 0;
  for (let at = 0; at < (pixels?.length ?? 0); at += 4) {
    if (pixels[at] !== 0x20 || pixels[at + 1] !== 0x40 || pixels[at + 2] !== 0x80) continue;
    x += (at / 4) % canvas.width;
    y += Math.floor(at / 4 / canvas.width);
    count++;
  }
  if (count < 10_000) return false;
  const box = canvas.getBoundingClientRect();
  const scale = box.width / canvas.width;
  return { x: box.x + (x / count) * scale, y: box.y + (y / count) * scale };
})()`;

test("a person's browser shows the desktop, and takes its pointer and keys", async () => {
  const typed = "/tmp/typed-by-a-person";
  const launched = await run(
    ...["tool", "run", "-w", "ann", "vm:launch"],
    `command=xterm -bg '#204080' -geometry 60x20+100+100 -e sh -c 'cat > ${typed}'`,
  );
  expect(launched.code).toBe(0);
  const { url } = await view("ann", "vm");
  await using browser = await PersonBrowser.start();
  const { page } = browser;
  await page.goto(url);
  await page.waitForFunction("document.getElementById('status').textContent === 'Connected'");
  expect(await page.title()).toBe("ann · vm – Berth");
  const found = await page.waitForFunction(MIDDLE_OF_BLUE);
  const blue = (await found.jsonValue()) as { x: number; y: number };
  await page.mouse.click(blue.x, blue.y);
  await page.keyboard.type("Hello from a person");
  await page.keyboard.press("Enter");
  await eventually(async () => {
    const { stdout } = await run("tool", "run", "-w", "ann", "vm:windows");
    expect(stdout).toContain("XTerm");
    const sandbox = JSON.parse((await run("session", "ls", "-w", "ann", "--json")).stdout);
    const { sandboxId } = sandbox.sessions[0];
    return (await run("exec", sandboxId, "cat", typed)).stdout === "Hello from a person\n";
  });
});
