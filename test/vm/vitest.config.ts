import { defineConfig } from "vitest/config";

// For the virtual machine of scripts/test-in-vm.sh, which has no Docker and where everything takes ten times as long.
export default defineConfig({
  test: {
    include: ["test/vm/*.vm.ts", "test/contract/engine/bubblewrap.test.ts"],
    pool: "forks",
    maxWorkers: 1,
    expect: { poll: { timeout: 60_000 } },
    testTimeout: 300_000,
    hookTimeout: 300_000,
  },
});
