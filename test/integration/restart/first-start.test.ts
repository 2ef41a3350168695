import { closeSync, fsyncSync, mkdirSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { runProgram, ServeProcess } from "../../support/program.ts";
import { SmallDisk } from "../../support/small-disk.ts";

const BLOCK_BYTES = 4096;
const ENGINE = ["--engine", "bubblewrap"];

let disk: SmallDisk;
beforeAll(async () => {
  disk = await SmallDisk.make(8);
});
afterAll(() => disk?.remove());

/** Fills the disk except for a number of blocks. */
function fillBut(blocks: number): void {
  for (let i = 0; i < blocks; i++) writeFileSync(disk.reach(`left${i}`), Buffer.alloc(BLOCK_BYTES, 1));
  const file = openSync(disk.reach("filler"), "w");
  for (const size of [65_536, BLOCK_BYTES, 512]) {
    try {
      for (;;) writeSync(file, Buffer.alloc(size, 1));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
    }
  }
  fsyncSync(file);
  closeSync(file);
  for (let i = 0; i < blocks; i++) rmSync(disk.reach(`left${i}`));
}

test.each([0, 1, 2, 4])(
  "a first start on a disk with %s free blocks says what to do, and a later one works",
  async (blocks) => {
    const dataDir = `${disk.path}/data`;
    rmSync(disk.reach("data"), { recursive: true, force: true });
    mkdirSync(disk.reach("data"), { mode: 0o700 });
    fillBut(blocks);
    const args = ["serve", ...ENGINE, "--listen", "127.0.0.1:0", "--data-dir", dataDir];
    const { exitCode, stderr } = await runProgram(args, { within: disk.enter });
    expect({ exitCode, stderr }).toEqual({
      exitCode: 1,
      stderr: expect.stringMatching(
        /^berth: --data-dir: \S+ cannot be used \(.*\)\. (Free space on its disk|Check its disk, and free space on it), or .*\n$/,
      ),
    });
    rmSync(disk.reach("filler"));
    const service = await ServeProcess.start(ENGINE, {}, { within: disk.enter, dataDir });
    expect((await service.stop()).exitCode).toBe(0);
  },
);
