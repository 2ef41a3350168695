import { defineConfig } from "vitest/config";
import runtimes from "./runtimes.config.ts";

// For a user who may write nothing in the repository.
export default defineConfig({
  cacheDir: process.env.TMPDIR,
  test: { ...runtimes.test, fsModuleCachePath: process.env.TMPDIR },
});
