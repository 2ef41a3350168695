import { defineConfig } from "vitest/config";

// What needs a Kubernetes cluster: npm run test:kubernetes.
export default defineConfig({
  test: {
    include: ["test/**/*.kubernetes.ts"],
    setupFiles: ["test/support/setup.ts"],
    pool: "forks",
    // Outage tests kill parts of the one cluster.
    maxWorkers: 1,
    retry: 0,
    expect: { poll: { timeout: 60_000 } },
    testTimeout: 120_000,
    hookTimeout: 120_000,
  },
});
