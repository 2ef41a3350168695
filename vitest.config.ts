import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/** For the programs that tests start: as in scripts/dependencies.mjs, however vitest itself was started. */
const { NODE_COMPILE_CACHE = fileURLToPath(new URL("node_modules/.cache/node", import.meta.url)) } =
  process.env;

// Starting a program copies the page tables of all memory that the test's process holds. In huge pages, 500 MB take 2 ms
// instead of 30. setup.ts removes the variable again, so that programs run as for users.
process.env.GLIBC_TUNABLES ??= "glibc.malloc.hugetlb=1";

const ALONE = "test/integration/**/*.alone.test.ts";
const processors = availableParallelism();
/** Tests wait now and then: for timers, and for what runs outside of them. */
const WORKERS = processors + 4;

export default defineConfig({
  test: {
    env: { NODE_COMPILE_CACHE },
    setupFiles: ["test/support/setup.ts"],
    pool: "forks",
    // Node imports TypeScript itself, and sooner than vitest's own runner.
    experimental: { viteModuleRunner: false, nodeLoader: false },
    retry: 0,
    // Against hangs only: no outcome may depend on how fast the machine is.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    expect: { poll: { timeout: 60_000 } },
    dangerouslyIgnoreUnhandledErrors: false,
    projects: [
      {
        extends: true,
        test: {
          name: "unit",
          include: ["test/unit/**/*.test.ts"],
          // Nothing here keeps state in a module, so that files can share a process.
          isolate: false,
          maxWorkers: WORKERS,
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: {
          name: "integration",
          include: ["test/integration/**/*.test.ts", "test/contract/**/*.test.ts"],
          exclude: [ALONE],
          globalSetup: ["test/support/global-setup.ts"],
          // A process of its own costs each file a second of a core, and none keeps state in a module.
          isolate: false,
          maxWorkers: WORKERS,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          // What users get: guides followed to the letter, packages as they are installed.
          name: "release",
          include: ["test/release/**/*.test.ts"],
          globalSetup: ["test/support/global-setup.ts"],
          isolate: false,
          maxWorkers: processors,
          sequence: { groupOrder: 2 },
        },
      },
      {
        extends: true,
        test: {
          // What measures how long others take: what runs beside it would be measured too.
          name: "alone",
          include: [ALONE],
          globalSetup: ["test/support/global-setup.ts"],
          maxWorkers: 1,
          sequence: { groupOrder: 3 },
        },
      },
    ],
  },
});
