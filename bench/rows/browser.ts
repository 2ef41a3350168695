import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import type { JsonObject } from "@bufbuild/protobuf";
import Dockerode from "dockerode";
import { launch, type Page } from "puppeteer-core";
import { SessionService } from "../../gen/ts/berth/v1/session_pb.js";
import type { Figure, Row } from "../row.ts";
import type { BenchService } from "../service.ts";
import { quantile, timed } from "../stats.ts";
import { filled, latency } from "./desktop.ts";

const WORKER = "bench";
const VIEWPORT = { width: 1280, height: 800 };
/** Blocks of calls, alternating between Berth and the reference. */
const BLOCKS = 4;
/** A page with text, colours and a form. */
const PAGE = `data:text/html,${encodeURIComponent(
  `<title>bench</title><body style="font:16px sans-serif;background:linear-gradient(#def,#fed)"><h1>A page</h1>
   <input id=a><button id=b onclick="this.dataset.n=1">Press</button>${"<p>The quick brown fox jumps over the lazy dog.</p>".repeat(40)}`,
)}`;

/** Browsers, compared with puppeteer and its own Chromium in the same container. */
export const browser: Row = {
  name: "browser",
  limitSeconds: 240,
  run: async ({ scale, start, progress, oneUser }) => {
    if (oneUser) throw new Error("this row compares in a container: it needs Docker");
    const service = await start(["--warm-session", "browser=1"]);
    const rounds = Math.max(5, Math.round(25 * scale));
    const figures: Figure[] = [];
    const values: number[] = [];
    for (let i = 0; i < Math.max(3, Math.round(10 * scale)); i++) {
      await filled(service);
      const worker = `${WORKER}-${i}`;
      values.push(
        await timed(async () => {
          await create(service, worker);
          await tool(service, worker, "screenshot", {});
        }),
      );
      await service.client.unary(SessionService.method.destroySessions, { workerId: worker });
      progress(`session ${i + 1}`);
    }
    figures.push(latency("browser session of the warm pool, to its first screenshot", values, 300));
    const sandboxId = await create(service, WORKER);
    await tool(service, WORKER, "goto", { url: PAGE });
    await using reference = await Reference.start(sandboxId);
    progress("screenshots");
    figures.push(
      await paired("browser:screenshot 1280 × 800", rounds, 60, {
        ours: () => tool(service, WORKER, "screenshot", {}),
        reference: () => reference.page.screenshot(),
      }),
    );
    progress("evaluate");
    figures.push(
      await paired("browser:evaluate 6 * 7", rounds * 2, undefined, {
        ours: () => tool(service, WORKER, "evaluate", { script: "6 * 7" }),
        reference: () => reference.page.evaluate("6 * 7"),
      }),
    );
    progress("clicks");
    figures.push(
      await paired("browser:click", rounds, undefined, {
        ours: () => tool(service, WORKER, "click", { selector: "#b" }),
        reference: () => reference.page.click("#b"),
      }),
    );
    return figures;
  },
};

/** Puppeteer in ordinary use, with its own Chromium in a session's container. */
class Reference implements AsyncDisposable {
  readonly page: Page;
  readonly #dispose: () => Promise<void>;

  private constructor(page: Page, dispose: () => Promise<void>) {
    this.page = page;
    this.#dispose = dispose;
  }

  static async start(sandboxId: string): Promise<Reference> {
    const filters = { label: [`berth.sandbox_id=${sandboxId}`] };
    const [container] = await new Dockerode().listContainers({ filters });
    if (container === undefined) throw new Error("the session has no container");
    const dir = mkdtempSync(path.join(tmpdir(), "berth-bench-"));
    const program = path.join(dir, "chromium");
    // Puppeteer uses descriptors 3 and 4 of the program that it starts.
    const inside = 'exec /usr/lib/chromium/chromium "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1';
    writeFileSync(
      program,
      `#!/bin/sh\nexec docker exec -i ${container.Id} sh -c '${inside}' chromium "$@" <&3 >&4\n`,
    );
    chmodSync(program, 0o755);
    const args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
    const chromium = await launch({
      ...{ executablePath: program, pipe: true, headless: true, args },
      userDataDir: "/tmp/bench-profile",
      defaultViewport: VIEWPORT,
    });
    const [page] = await chromium.pages();
    if (page === undefined) throw new Error("the browser has no page");
    await page.goto(PAGE);
    return new Reference(page, async () => {
      await chromium.close();
      rmSync(dir, { recursive: true });
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#dispose();
  }
}

async function create(service: BenchService, workerId: string): Promise<string> {
  const resources = [{ resourceType: "browser" }];
  const { results } = await service.client.unary(SessionService.method.createSessions, {
    workerId,
    resources,
  });
  const [result] = results;
  if (result?.session === undefined) throw new Error(result?.failure?.message ?? "there is no result");
  return result.session.sandboxId;
}

async function tool(
  service: BenchService,
  workerId: string,
  name: string,
  params: JsonObject,
): Promise<void> {
  const request = { workerId, tool: `browser:${name}`, params };
  const { code, message } = await service.client.unary(SessionService.method.executeTool, request);
  if (code !== 0) throw new Error(message);
}

async function paired(
  name: string,
  rounds: number,
  goalMs: number | undefined,
  run: { readonly ours: () => Promise<unknown>; readonly reference: () => Promise<unknown> },
): Promise<Figure> {
  const ours: number[] = [];
  const reference: number[] = [];
  await run.ours();
  await run.reference();
  for (let block = 0; block < BLOCKS; block++) {
    for (let i = 0; i < rounds; i++) ours.push(await timed(run.ours));
    for (let i = 0; i < rounds; i++) reference.push(await timed(run.reference));
  }
  const p50 = quantile(ours, 0.5);
  const rawP50 = quantile(reference, 0.5);
  return {
    name,
    unit: "ms",
    p50,
    p99: quantile(ours, 0.99),
    rawP50,
    ratio: rawP50 / p50,
    // Berth's calls go over its API, puppeteer's directly to the browser: so the smallest of calls has no goal.
    ...(goalMs === undefined
      ? { goal: "" }
      : {
          goal: `p50 ≤ ${goalMs} ms and ≤ 1.3 × of puppeteer`,
          reached: p50 <= goalMs && p50 <= 1.3 * rawP50,
        }),
  };
}
