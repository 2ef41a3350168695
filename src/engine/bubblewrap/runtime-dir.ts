import { mkdir, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { isLeftover } from "./leftovers.ts";
import { writeSyntheticEtc } from "./synthetic-etc.ts";

/** The files of a running engine. */
export interface RuntimeDir {
  readonly path: string;
  /** The /etc of its sandboxes. */
  readonly etc: string;
  /** Empty on the host. What is mounted for a sandbox appears below it, seen by that sandbox's bwrap alone. */
  readonly stage: string;
}

/** Makes the directory, and clears away those of services that are gone. */
export async function createRuntimeDir(name: string, rootfs: string): Promise<RuntimeDir> {
  const parent = tmpdir();
  for (const entry of (await readdir(parent)).filter(isLeftover)) await clear(path.join(parent, entry));
  const dir = path.join(parent, name);
  // Fails where it exists: nobody else's directory is used. The sandboxes' user on the host reads /etc through it.
  await mkdir(dir, { mode: 0o755 });
  const etc = path.join(dir, "etc");
  await writeSyntheticEtc(etc, rootfs);
  const stage = path.join(dir, "mounts");
  await mkdir(stage, { mode: 0o755 });
  return { path: dir, etc, stage };
}

async function clear(dir: string): Promise<void> {
  try {
    if ((await stat(dir)).uid === process.getuid?.()) await rm(dir, { recursive: true, force: true });
  } catch {
    // The next start tries again.
  }
}
