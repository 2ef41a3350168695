import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/** For the programs that tests start: as in scripts/dependencies.mjs, however vitest itself was started. */
const { NODE_COMPILE_CACHE = fileURLToPath(new URL("node_modules/.cache/node", import.meta.url)) } =
  process.env;

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/support/global-setup.ts"],
    env: { NODE_COMPILE_CACHE },
    pool: "forks",
    // One file at a time: each drives a service, its clients and a Docker daemon, which is enough for two cores.
    maxWorkers: 1,
    testTimeout: 60_000,
    hookTimeout: 120_000,
    retry: 0,
    dangerouslyIgnoreUnhandledErrors: false,
  },
});
