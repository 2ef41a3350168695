import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import type { Page } from "puppeteer-core";
import { build } from "rolldown";
import { afterAll, beforeAll, expect, test } from "vitest";
import type * as client from "../../../clients/typescript/src/web.ts";
import { eventually } from "../../support/eventually.ts";
import { PersonBrowser } from "../../support/person-browser.ts";
import { ServeProcess } from "../../support/program.ts";

const WEB = path.join(import.meta.dirname, "../../../clients/typescript/src/web.ts");

let pages: http.Server;
let service: ServeProcess;
let browser: PersonBrowser;
let page: Page;

/** What the page has: the client as a bundle, as in any web application. */
declare const berth: typeof client;

async function bundle(): Promise<string> {
  const { output } = await build({
    input: WEB,
    write: false,
    platform: "browser",
    output: { format: "iife", name: "berth", minify: true },
  });
  return output[0].code;
}

beforeAll(async () => {
  const script = await bundle();
  pages = http.createServer((request, response) => {
    response.setHeader("content-type", request.url === "/berth.js" ? "text/javascript" : "text/html");
    response.end(request.url === "/berth.js" ? script : '<script src="/berth.js"></script>');
  });
  pages.listen(0, "127.0.0.1");
  await once(pages, "listening");
  const origin = `http://127.0.0.1:${(pages.address() as AddressInfo).port}`;
  service = await ServeProcess.start([], { BERTH_ENGINE: "bubblewrap", BERTH_CORS_ORIGIN: origin });
  browser = await PersonBrowser.start();
  page = browser.page;
  await page.goto(origin);
});

afterAll(async () => {
  await browser?.[Symbol.asyncDispose]();
  await service?.dispose();
  pages?.close();
});

test("bundles without Node's modules, and without unused code", async () => {
  const entry = "virtual:page";
  const { output } = await build({
    input: entry,
    write: false,
    platform: "browser",
    plugins: [
      {
        name: "page",
        resolveId: (id) => (id === entry ? id : null),
        load: (id) =>
          id === entry ? `import { BerthError } from ${JSON.stringify(WEB)}; console.log(BerthError);` : null,
      },
    ],
  });
  const kept = Object.entries(output[0].modules).filter(([, { renderedLength }]) => renderedLength > 0);
  expect(kept.map(([name]) => name).filter((name) => name.includes("clients/typescript/src/"))).toEqual([
    expect.stringContaining("clients/typescript/src/errors.ts"),
  ]);
  expect(output[0].imports).toEqual([]);
});

test("makes calls from a page of another origin, and streams", async () => {
  const result = await page.evaluate(async (address) => {
    const { engine } = await berth.Berth.connect(address).sandboxes.stats();
    const client = berth.Berth.connect(address);
    const sandbox = await client.sandboxes.create();
    const { stdout, exitCode } = await sandbox.run("echo hello; exit 3");
    const texts: string[] = [];
    for await (const { text } of sandbox.exec("for i in 1 2 3; do echo $i; sleep 0.05; done"))
      texts.push(text);
    await sandbox.delete();
    await client.close();
    return { engine, stdout, exitCode, texts: texts.join("") };
  }, `http://${service.address}`);
  expect(result).toEqual({ engine: "bubblewrap", stdout: "hello\n", exitCode: 3, texts: "1\n2\n3\n" });
});

test("a service that is not there, or does not answer the page's origin, is UNAVAILABLE", async () => {
  const other = await ServeProcess.start([], { BERTH_ENGINE: "bubblewrap" });
  const failure = (address: string) =>
    page.evaluate(async (at) => {
      const client = berth.Berth.connect(at, { retryForMs: 0 });
      return client.sandboxes.stats().catch(({ code, message }) => ({ code, message }));
    }, `http://${address}`);
  const expected = (address: string) => ({
    code: "UNAVAILABLE",
    message: expect.stringContaining(
      `The service at http://${address} cannot be reached, or does not answer pages of this origin (--cors-origin)`,
    ),
  });
  try {
    expect(await failure(other.address)).toEqual(expected(other.address));
  } finally {
    await other.dispose();
  }
  expect(await failure(other.address)).toEqual(expected(other.address));
});

test("leaving a loop in a page ends the command", async () => {
  const { processId, sandboxId } = await page.evaluate(async (address) => {
    const sandbox = await berth.Berth.connect(address).sandboxes.create();
    const process = sandbox.exec("echo started; exec sleep 1000");
    for await (const { text } of process) if (text === "started\n") break;
    return { processId: process.processId, sandboxId: sandbox.sandboxId };
  }, `http://${service.address}`);
  const status = () =>
    page.evaluate(
      async (address, sandbox, id) =>
        (await (await berth.Berth.connect(address).sandboxes.get(sandbox)).process(id)).status,
      `http://${service.address}`,
      sandboxId,
      processId,
    );
  expect(await eventually(async () => (await status()) ?? undefined)).toMatchObject({
    cause: "SIGNALED",
    signal: 9,
  });
});

test("transfers files both ways, and reports what a browser cannot do", async () => {
  const result = await page.evaluate(async (address) => {
    const sandbox = await berth.Berth.connect(address).sandboxes.create();
    const { files } = sandbox;
    await files.write("big", "old", { mode: 0o640 });
    const bytes = new Uint8Array(9 << 20).fill(7);
    const { name, size, mode } = await files.upload("big/", new Blob([bytes]));
    const down = await new Response(files.download("big")).arrayBuffer();
    const names = (await files.list()).map(({ name }) => name);
    const archive = await files.uploadArchive("").catch((error) => error.reason);
    const missing = await files.read("nothing").catch((error) => [error.name, error.reason]);
    await sandbox.delete();
    return { name, size, mode, down: down.byteLength, names, archive, missing };
  }, `http://${service.address}`);
  expect(result).toEqual({
    name: "big",
    size: 9 << 20,
    mode: 0o640,
    down: 9 << 20,
    names: ["big"],
    archive: "UNSUPPORTED",
    missing: ["BerthError", "FILE_NOT_FOUND"],
  });
});
