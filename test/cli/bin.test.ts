import { once } from "node:events";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { containersOf } from "../support/docker.ts";
import { endOf, runProgram, ServeProcess, startProgram } from "../support/program.ts";

const VERSION = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")).version;
const BIN = fileURLToPath(new URL("../../bin/berth.mjs", import.meta.url));

/** Has the program take the running Node for one that is too old; its child is not told. */
const OLD_NODE = [
  "--import",
  'data:text/javascript,Object.defineProperty(process,"versions",{value:{...process.versions,node:"20.20.2"}})',
  BIN,
];

describe.each([
  ["under a Node that can", [BIN]],
  ["under an old one", OLD_NODE],
])("%s", (_what, entry) => {
  test("it runs and hands on the exit code", async () => {
    expect(await runProgram(["--version"], { entry })).toMatchObject({
      exitCode: 0,
      stdout: Buffer.from(`${VERSION}\n`),
      stderr: "",
    });
    expect((await runProgram(["nonsense"], { entry })).exitCode).toBe(2);
  });

  test("it passes stdin and signals on; one keystroke that comes twice is one", async () => {
    const service = await ServeProcess.start();
    try {
      const piped = await service.run(["run", "--", "cat"], { entry, stdin: "through" });
      expect([piped.exitCode, piped.stdout.toString()]).toEqual([0, "through"]);
      const env = { BERTH_ADDRESS: service.address };
      const child = startProgram(["run", "--", "sh", "-c", "echo ready; sleep 600"], { entry, env });
      const end = endOf(child);
      await once(child.stdout, "data");
      child.kill("SIGINT");
      child.kill("SIGINT");
      expect(await end).toMatchObject({ exitCode: 130, stderr: "berth: stopped by SIGINT\n" });
      expect(await containersOf(service.instance)).toEqual([]);
    } finally {
      await service.stop();
    }
  });
});
