import { renameSync, writeFileSync } from "node:fs";

/**
 * Imported by a program before its own code, with --expose-gc. On SIGUSR2 it collects all garbage and writes the
 * remaining bytes to the file BERTH_TEST_MEMORY_FILE.
 */
const { BERTH_TEST_MEMORY_FILE: file = "" } = process.env;
process.on("SIGUSR2", () => {
  globalThis.gc?.();
  // The second round collects what the first one finalized.
  setImmediate(() => {
    globalThis.gc?.();
    const { heapUsed, external } = process.memoryUsage();
    writeFileSync(`${file}.new`, String(heapUsed + external));
    renameSync(`${file}.new`, file);
  });
});
