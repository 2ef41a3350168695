import { renameSync, writeFileSync } from "node:fs";

/**
 * Imported by a program before its own code, which runs with --expose-gc: on
 * SIGUSR2 it collects all garbage and writes what is left, in bytes, to the file
 * that BERTH_TEST_MEMORY_FILE names.
 */
const { BERTH_TEST_MEMORY_FILE: file = "" } = process.env;
process.on("SIGUSR2", () => {
  globalThis.gc?.();
  // What the first round finalized is collected by the second.
  setImmediate(() => {
    globalThis.gc?.();
    const { heapUsed, external } = process.memoryUsage();
    writeFileSync(`${file}.new`, String(heapUsed + external));
    renameSync(`${file}.new`, file);
  });
});
