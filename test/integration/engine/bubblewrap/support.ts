import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, afterEach } from "vitest";
import { BubblewrapEngine, type BubblewrapEngineOptions } from "../../../../src/engine/bubblewrap/engine.ts";
import { TEST_IMAGE } from "../../../support/images.ts";
import { silent } from "../docker/support.ts";

/** An engine whose sandboxes are removed after each test, and which is closed after the file's tests. */
export function useBubblewrap(options: Partial<BubblewrapEngineOptions> = {}): BubblewrapEngine {
  const engine = new BubblewrapEngine({ logger: silent, image: TEST_IMAGE, ...options });
  afterEach(async () => {
    for (const { ref } of await engine.list()) await engine.remove(ref);
  });
  afterAll(() => engine.close());
  return engine;
}

/** A directory that is removed after the file's tests. */
export function useDirectory(): string {
  const dir = mkdtempSync(path.join(tmpdir(), "berth-bwrap-"));
  afterAll(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}
