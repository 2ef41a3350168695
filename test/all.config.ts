import { defineConfig } from "vitest/config";
export default defineConfig({
  root: "/work/wt-k8s",
  test: {
    include: ["test/integration/**/*.test.ts"],
    setupFiles: ["test/support/setup.ts"],
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 120000,
    hookTimeout: 120000,
  },
});
