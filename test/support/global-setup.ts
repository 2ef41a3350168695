import { execFile } from "node:child_process";
import { copyFile, mkdir, rm, symlink } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { randomBase32 } from "../../src/base/ids.ts";
import { docker, removeContainers } from "./docker.ts";
import { dataDirs, instancePrefix, packageDir } from "./settings.ts";

const ROOT = path.join(import.meta.dirname, "../..");

/**
 * Reports once, before hundreds of tests fail, that the daemon is missing. Marks the containers of this test run, and
 * removes those that a dead worker left behind. Builds the program that tests start.
 */
export default async function setup(): Promise<() => Promise<void>> {
  try {
    await docker.ping();
  } catch (error) {
    throw new Error("The tests need a Docker daemon. Run them with: npm test", { cause: error });
  }
  // Called once for each project that has tests in the run.
  if (process.env.BERTH_TEST_RUN === undefined) {
    process.env.BERTH_TEST_RUN = randomBase32(8);
    await buildProgram().catch(async (error) => {
      await rm(dataDirs(), { recursive: true, force: true });
      throw error;
    });
  }
  return async () => {
    await rm(dataDirs(), { recursive: true, force: true });
    const count = await removeContainers(instancePrefix());
    if (count > 0) throw new Error(`${count} containers of this test run were left behind.`);
  };
}

async function buildProgram(): Promise<void> {
  await mkdir(packageDir(), { recursive: true });
  // What the program expects next to its folder. Other users, who also run it, may not be able to enter the repository.
  await copyFile(path.join(ROOT, "package.json"), path.join(packageDir(), "package.json"));
  await symlink(path.join(ROOT, "node_modules"), path.join(packageDir(), "node_modules"));
  const build = path.join(ROOT, "scripts/build.mjs");
  const failing = path.join(import.meta.dirname, "failing-main.ts");
  await promisify(execFile)(process.execPath, [build, path.join(packageDir(), "dist"), failing]);
}
