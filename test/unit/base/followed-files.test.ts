import { mkdtempSync, rmSync } from "node:fs";
import { rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, expect, onTestFinished, test } from "vitest";
import { FollowedFiles } from "../../../src/base/followed-files.ts";

const directory = mkdtempSync(path.join(tmpdir(), "berth-followed-"));
afterAll(() => rmSync(directory, { recursive: true }));

/** Follows files until the end of the test. Returns a function for how often changes were reported. */
async function follow(...paths: string[]): Promise<() => number> {
  const files = await FollowedFiles.note(paths);
  let changes = 0;
  files.follow({
    read: async () => {
      changes++;
    },
    onProblem: () => {},
  });
  onTestFinished(() => files.stop());
  return () => changes;
}

test("a change of any of the files is reported, including its removal", async () => {
  const [one, other] = ["one", "other"].map((name) => path.join(directory, name)) as [string, string];
  await Promise.all([writeFile(one, "1"), writeFile(other, "1")]);
  const changes = await follow(one, other);
  await writeFile(other, "22");
  await expect.poll(changes).toBe(1);
  await rm(one);
  await expect.poll(changes).toBe(2);
});
