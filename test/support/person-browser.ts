import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { launch, type Page } from "puppeteer-core";
import { DESKTOP_IMAGE } from "./images.ts";

/**
 * A person's browser on this machine, driven by puppeteer: Chromium from the desktop image, on the machine's network.
 */
export class PersonBrowser implements AsyncDisposable {
  readonly page: Page;
  readonly #dir: string;

  private constructor(page: Page, dir: string) {
    this.page = page;
    this.#dir = dir;
  }

  static async start(): Promise<PersonBrowser> {
    const dir = mkdtempSync(path.join(tmpdir(), "berth-person-"));
    const program = path.join(dir, "chromium");
    // Puppeteer uses descriptors 3 and 4 of the program that it starts. When they close, the browser and its container
    // end.
    const inside = 'exec /usr/lib/chromium/chromium "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1';
    const container = `docker run --interactive --rm --init --network host ${DESKTOP_IMAGE} sh -c '${inside}'`;
    writeFileSync(program, `#!/bin/sh\nexec ${container} chromium "$@" <&3 >&4\n`);
    chmodSync(program, 0o755);
    const browser = await launch({
      executablePath: program,
      pipe: true,
      headless: true,
      args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"],
      userDataDir: "/tmp/profile",
      defaultViewport: { width: 1000, height: 800 },
    });
    const [page] = await browser.pages();
    if (page === undefined) throw new Error("the browser has no page");
    return new PersonBrowser(page, dir);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.page.browser().close();
    rmSync(this.#dir, { recursive: true });
  }
}
