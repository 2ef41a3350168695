import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, afterEach } from "vitest";
import { BubblewrapEngine, type BubblewrapEngineOptions } from "../../../../src/engine/bubblewrap/engine.ts";
import { TEST_IMAGE } from "../../../support/images.ts";
import { silent } from "../docker/support.ts";

/** An engine whose sandboxes end with each test, and which is closed when the file's tests are through. */
export function useBubblewrap(options: Partial<BubblewrapEngineOptions> = {}): BubblewrapEngine {
  const engine = new BubblewrapEngine({ logger: silent, image: TEST_IMAGE, ...options });
  afterEach(async () => {
    for (const { ref } of await engine.list()) await engine.remove(ref);
  });
  afterAll(() => engine.close());
  return engine;
}

/** A directory that is gone when the file's tests are through. */
export function useDirectory(): string {
  const dir = mkdtempSync(path.join(tmpdir(), "berth-bwrap-"));
  afterAll(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}
