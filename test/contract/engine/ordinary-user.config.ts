import { defineConfig } from "vitest/config";

// For a user without write permission in the repository, and without Docker.
export default defineConfig({
  cacheDir: process.env.TMPDIR,
  test: {
    fsModuleCachePath: process.env.TMPDIR,
    include: ["test/contract/engine/bubblewrap.test.ts"],
    pool: "forks",
    maxWorkers: 1,
    expect: { poll: { timeout: 60_000 } },
    testTimeout: Number(process.env.BERTH_TEST_TIMEOUT_MS ?? 180_000),
    hookTimeout: Number(process.env.BERTH_TEST_TIMEOUT_MS ?? 120_000),
  },
});
