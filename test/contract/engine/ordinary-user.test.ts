import { text } from "node:stream/consumers";
import { expect, onTestFinished, test } from "vitest";
import { nodeAsOrdinaryUser } from "../../support/ordinary-user.ts";

test("the whole suite passes with bubblewrap for an ordinary user", { timeout: 900_000 }, async () => {
  const { child } = nodeAsOrdinaryUser([
    ...["node_modules/vitest/vitest.mjs", "run", "--reporter=./test/contract/engine/json-line-reporter.ts"],
    ...["--config", "test/contract/engine/ordinary-user.config.ts", "--configLoader", "runner"],
  ]);
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  const [stdout, stderr] = await Promise.all([
    child.stdout && text(child.stdout),
    child.stderr && text(child.stderr),
  ]);
  const line = stdout?.split("\n").find((candidate) => candidate.startsWith("{"));
  expect(line, `${stdout}${stderr}`).toBeDefined();
  const report = JSON.parse(line ?? "") as { passed: number; failures: string[] };
  expect(report.failures).toEqual([]);
  expect(report.passed).toBeGreaterThan(70);
});
