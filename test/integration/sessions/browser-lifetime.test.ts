import { beforeAll, describe, expect, test } from "vitest";
import { startTestApp, useApp } from "../../support/app.ts";
import { BrowserClient } from "../../support/browser.ts";
import { Client } from "../../support/client.ts";
import { DESKTOP_ENGINES, desktopSandbox } from "../../support/desktop.ts";
import { testsInTurn } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { DESKTOP_IMAGE, TEST_IMAGE } from "../../support/images.ts";
import { LastingService } from "../../support/lasting-service.ts";
import { newDataDir } from "../../support/settings.ts";
import { Worker } from "../../support/worker.ts";

/** Processes of a browser, and files that it may leave behind. */
const TRACES =
  "ps ax -o stat=,args= | grep -v '^Z' | grep -ciE '[c]hrom|berth-[b]rowser'; find /tmp /dev/shm /var/tmp \"$HOME\" -newer mark 2>/dev/null | grep -ciE 'chrom|berth-browser'; true";
const NONE = "0\n0\n";

describe.each(DESKTOP_ENGINES)("on $name", ({ name, settings }) => {
  const it = testsInTurn(name);
  const app = useApp(settings);
  let sandboxId = "";
  let shell: Worker;

  beforeAll(async () => {
    sandboxId = await desktopSandbox(app.client, name);
    shell = new Worker(app.client, "shell");
    expect((await shell.create("bash", undefined, { sandbox_id: sandboxId })).failure).toBeNull();
    await shell.bash("touch mark");
  });

  const tracesOf = async (): Promise<string> => (await shell.bash(TRACES)).stdout;
  const untilNoTraces = () => eventually(async () => (await tracesOf()) === NONE, { describe: tracesOf });

  test("a browser that is destroyed leaves nothing in a sandbox that stays", async () => {
    const browser = new BrowserClient(new Worker(app.client, "leaves"));
    await browser.worker.create("browser", undefined, { sandbox_id: sandboxId });
    await browser.show("<iframe sandbox src='data:text/html,x'></iframe>");
    expect(await tracesOf()).not.toBe(NONE);
    await browser.worker.destroy();
    expect(await tracesOf()).toBe(NONE);
  });

  test("one that was killed, or does not end, leaves nothing either", async () => {
    const browser = new BrowserClient(new Worker(app.client, "stubborn"));
    await browser.worker.create("browser", undefined, { sandbox_id: sandboxId });
    await shell.bash("pkill -STOP -f remote-debugging-pipe");
    await browser.worker.destroy();
    await untilNoTraces();
    await browser.worker.create("browser", undefined, { sandbox_id: sandboxId });
    // What it leaves behind does not end by itself.
    await shell.bash("pkill -STOP -f type=zygote; pkill -9 -f remote-debugging-pipe");
    await browser.worker.destroy();
    await untilNoTraces();
  });

  test.each<[Record<string, unknown>, string]>([
    [{ viewport: [0, 800] }, "config.viewport.0"],
    [{ viewport: [1280, 100_000] }, "config.viewport.1"],
    [{ viewport: [1280] }, "config.viewport"],
    [{ locale: "../../etc" }, "config.locale"],
    [{ user_agent: "a\nb" }, "config.user_agent"],
    [{ dialogs: "ignore" }, "config.dialogs"],
    [{ env: { "A=B": "" } }, "config.env"],
    [{ unknown: 1 }, "config"],
  ])("the config %j is refused, naming %s", async (config, field) => {
    const { failure } = await new Worker(app.client, "refused").create("browser", config);
    expect(failure).toMatchObject({
      message: expect.stringContaining(field),
      detail: { reason: "ERROR_REASON_INVALID_ARGUMENT" },
    });
  });

  it("viewport, locale, user agent and environment are as configured", async () => {
    const browser = new BrowserClient(new Worker(app.client, "configured"));
    const config = {
      viewport: [400, 300],
      locale: "de-DE",
      user_agent: "Berth/1",
      env: { TZ: "Asia/Tokyo" },
      dialogs: "dismiss",
    };
    expect((await browser.worker.create("browser", config)).failure).toBeNull();
    const script =
      "[innerWidth, innerHeight, navigator.language, navigator.userAgent, Intl.DateTimeFormat().resolvedOptions().timeZone, confirm('?')]";
    expect(await browser.evaluate(script)).toEqual([400, 300, "de-DE", "Berth/1", "Asia/Tokyo", false]);
    const larger = await browser.worker.reinitialize("browser", { viewport: [2560, 1440] });
    expect(larger.failure).toBeNull();
    expect(await browser.ok("screenshot")).toMatchObject({ width: 2560, height: 1440 });
    await browser.worker.destroy();
  });

  it("a call without a session has a browser of its own, which ends with it", async () => {
    const worker = new Worker(app.client, "passing");
    const shot = await worker.execute("browser:screenshot");
    expect(shot).toMatchObject({
      code: 0,
      data: { width: 1280, height: 800 },
      meta: { temporary_session: true },
    });
    expect(await worker.list()).toEqual([]);
  });
});

/** Sandboxes of bubblewrap end with the service. */
test("after a restart of the service a session continues, with a new browser in its sandbox", async () => {
  const dataDir = newDataDir();
  const first = await startTestApp({ dataDir, leaveSandboxes: true });
  const { failure } = await new Worker(first.client, "stays").create("browser", { viewport: [400, 300] });
  expect(failure).toBeNull();
  first.client.close();
  await first.app.stop();
  const second = await startTestApp({ dataDir, instance: first.instance });
  try {
    const browser = new BrowserClient(new Worker(second.client, "stays"));
    expect(await browser.ok("screenshot")).toMatchObject({ width: 400, session_restarted: true });
    expect(await browser.ok("screenshot")).toMatchObject({ session_restarted: false });
  } finally {
    await second.stop();
  }
});

test("a browser ends by itself when the service is killed", async () => {
  await using service = await LastingService.start({
    BERTH_DESKTOP_IMAGE: DESKTOP_IMAGE,
    BERTH_ENGINE: "docker",
  });
  const client = new Client(service.address);
  const before = new Worker(client, "killed");
  const { session, failure } = await before.create("browser");
  expect(failure).toBeNull();
  await new BrowserClient(before).show("<p>here");
  await service.kill();
  client.close();
  await service.begin();
  const again = new Client(service.address);
  try {
    const shell = new Worker(again, "shell");
    expect((await shell.create("bash", undefined, { sandbox_id: session?.sandbox_id })).failure).toBeNull();
    const traces = async (): Promise<string> => (await shell.bash(`touch -d @0 mark; ${TRACES}`)).stdout;
    await eventually(async () => (await traces()) === NONE, { describe: traces });
  } finally {
    again.close();
  }
});

describe("on docker, which has images", () => {
  const app = useApp({ engine: "docker" });

  test("a profile that cannot be removed does not delay the end", async () => {
    const sandboxId = await desktopSandbox(app.client, "docker");
    const place = { sandbox_id: sandboxId };
    const browser = new BrowserClient(new Worker(app.client, "kept"));
    expect((await browser.worker.create("browser", undefined, place)).failure).toBeNull();
    const shell = new Worker(app.client, "replaced");
    await shell.create("bash", undefined, place);
    await shell.bash("printf '#!/bin/sh\\nexec sleep 9999\\n' >/usr/bin/rm");
    expect((await browser.worker.destroy("browser"))[0]).toMatchObject({ failure: null });
    expect((await shell.bash("pgrep -c chromium; pgrep -fc '^sleep 9999'")).stdout).toBe("0\n0\n");
  });

  test("without Chromium, creating says so and how to get one", async () => {
    const { sandbox_id: bare } = await app.client.createSandbox({ image: TEST_IMAGE });
    const worker = new Worker(app.client, "bare");
    const { failure } = await worker.create("browser", undefined, { sandbox_id: bare });
    expect(failure).toMatchObject({
      message: expect.stringMatching(/no Chromium in the sandbox.*berth\/desktop/),
      detail: { reason: "ERROR_REASON_SESSION_START_FAILED" },
    });
  });
});
