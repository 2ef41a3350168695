import { defineConfig } from "vitest/config";
import runtimes from "./runtimes.config.ts";

// For a user without write permission in the repository.
export default defineConfig({
  cacheDir: process.env.TMPDIR,
  test: { ...runtimes.test, fsModuleCachePath: process.env.TMPDIR },
});
