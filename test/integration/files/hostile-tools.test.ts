import { beforeAll, describe, expect, test } from "vitest";
import { TEST_IMAGE } from "../../support/images.ts";
import { refusal, useFileBench } from "./file-bench.ts";

/** A sandbox in which root has replaced the tools. */
describe("if the sandbox's own tools lie,", () => {
  const bench = useFileBench({ image: TEST_IMAGE, commandTimeoutMs: 5_000 });

  async function replaceTool(tool: string, line: string): Promise<void> {
    await bench().sh(
      `printf '#!/bin/sh\\n${line}\\n' >/usr/local/sbin/${tool}; chmod 755 /usr/local/sbin/${tool}`,
    );
  }

  beforeAll(async () => {
    await bench().write("file", "x");
  });

  test.each([
    ["stat", "echo nonsense"],
    ["stat", ":"],
    ["stat", "yes"],
    ["stat", "echo 81a4 1 2 3 4 5 6"],
    ["stat", "kill -9 $PPID"],
    ["find", "yes"],
    ["find", "tr '\\\\\\\\0' x </dev/zero"],
    ["find", "exit 3"],
    ["readlink", "yes"],
    ["head", "yes"],
    ["tar", "yes"],
    ["tar", "cat /dev/zero"],
    ["tar", ":"],
    ["tar", "exit 2"],
  ])("%s as `%s` ends in an error, in time, and costs nothing else", async (tool, line) => {
    await replaceTool(tool, line);
    await bench().sh("ln -sf file /workspace/link");
    const work = {
      stat: () => bench().stat("file"),
      find: () => bench().list("."),
      readlink: () => bench().stat("link"),
      head: () => bench().read("file"),
      tar: () => bench().downloadArchive("."),
    }[tool];
    const error = await refusal(work?.() ?? Promise.resolve());
    const reasons = line.startsWith("kill")
      ? /^TOO_MANY_OPERATIONS$/
      : /^(UNSUPPORTED|DEADLINE_EXCEEDED|FILE_NOT_FOUND)$/;
    expect(error.reason).toMatch(reasons);
    await bench().sh(`rm /usr/local/sbin/${tool}`);
    expect((await bench().stat("file")).info.sizeBytes).toBe(1);
  });
});
