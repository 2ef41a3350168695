import { defineConfig } from "vitest/config";

// The contract for runtimes and daemons that not every machine has: npm run test:runtimes.
export default defineConfig({
  test: {
    include: ["test/contract/engine/*.runtime.ts"],
    setupFiles: ["test/support/setup.ts"],
    pool: "forks",
    maxWorkers: 1,
    retry: 0,
    expect: { poll: { timeout: 60_000 } },
    testTimeout: 180_000,
    hookTimeout: 120_000,
  },
});
