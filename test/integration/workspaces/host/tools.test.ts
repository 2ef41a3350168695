import { expect, test } from "vitest";
import { BerthError } from "../../../../src/base/errors.ts";
import { codeOf } from "../../../../src/base/system-errors.ts";
import { Tools, toolFailure } from "../../../../src/workspaces/host/tools.ts";
import { takeDescriptors } from "../../../support/no-descriptors.ts";

const tools = Tools.find();
const tool = { argv: ["echo", "done"], directory: "/" } as const;

async function streamed(): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of tools.stream(tool)) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

async function piped(): Promise<string> {
  const [from, to] = await tools.pipe(tool, { ...tool, argv: ["grep", "done"] });
  return from.code === 0 && to.code === 0 ? "done\n" : from.stderr + to.stderr;
}

test.each([
  ["is run", async () => (await tools.run(tool)).stdout],
  ["is streamed", streamed],
  ["writes to another", piped],
])("a tool that %s says why it cannot be started, however few descriptors are left", async (_, run) => {
  const outcomes = new Set<string>();
  for (let free = 0; free <= 12; free++) {
    const end = takeDescriptors(free);
    outcomes.add(await run().catch((error) => codeOf(error) ?? String(error)));
    end();
  }
  expect([...outcomes]).toEqual(["EMFILE", "done\n"]);
});

test("a lack of descriptors never makes tools run with all rights", async () => {
  const rights = async (found: Tools) =>
    (await found.run({ argv: ["grep", "^Cap", "/proc/self/status"], directory: "/" })).stdout;
  const own = await rights(tools);
  const outcomes = new Set<string>();
  for (let free = 0; free <= 12; free++) {
    const end = takeDescriptors(free);
    let found: Tools | string;
    try {
      found = Tools.find();
    } catch (error) {
      found = error instanceof BerthError ? error.reason : (codeOf(error) ?? String(error));
    }
    end();
    outcomes.add(typeof found === "string" ? found : await rights(found));
  }
  expect([...outcomes]).toEqual(["EMFILE", "TOO_MANY_OPERATIONS", own]);
});

test("a tool gets 512 MiB of memory, and a tree for which that is too little is refused", async () => {
  const { stdout } = await tools.run({ argv: ["sh", "-c", "ulimit -v"], directory: "/" });
  expect(stdout).toBe(`${512 * 1024}\n`);
  const hungry = "my $text = 'x' x (600 * 1024 * 1024)";
  expect(await tools.run({ argv: ["perl", "-e", hungry], directory: "/" })).not.toMatchObject({ code: 0 });
  const stderr = "tar: memory exhausted\ntar: Error is not recoverable: exiting now\n";
  expect(toolFailure("tar", { code: 2, stderr }, "read")).toMatchObject({ reason: "UNSUPPORTED" });
});
