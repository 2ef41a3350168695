import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/support/global-setup.ts"],
    pool: "forks",
    // One file at a time: each drives a service, its clients and a Docker daemon, which is enough for two cores.
    maxWorkers: 1,
    testTimeout: 60_000,
    hookTimeout: 120_000,
    retry: 0,
    dangerouslyIgnoreUnhandledErrors: false,
  },
});
