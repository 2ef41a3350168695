import { text } from "node:stream/consumers";
import { expect, test } from "vitest";
import { nodeAsOrdinaryUser } from "../../support/ordinary-user.ts";

test("the whole suite holds on bubblewrap for an ordinary user", { timeout: 300_000 }, async () => {
  const child = nodeAsOrdinaryUser([
    ...["node_modules/vitest/vitest.mjs", "run", "--reporter=json", "--outputFile=/dev/stdout"],
    ...["--config", "test/contract/engine/ordinary-user.config.ts", "--configLoader", "runner"],
  ]);
  const [stdout, stderr] = await Promise.all([
    child.stdout && text(child.stdout),
    child.stderr && text(child.stderr),
  ]);
  const line = stdout?.split("\n").find((candidate) => candidate.startsWith("{"));
  expect(line, stderr ?? "").toBeDefined();
  const report = JSON.parse(line ?? "");
  const failures = report.testResults.flatMap(
    (file: {
      message: string;
      assertionResults: { status: string; fullName: string; failureMessages: string[] }[];
    }) => [
      ...(file.message ? [file.message] : []),
      ...file.assertionResults
        .filter(({ status }) => status !== "passed")
        .map(({ fullName, failureMessages }) => `${fullName}: ${failureMessages[0]?.split("\n")[0]}`),
    ],
  );
  expect(failures).toEqual([]);
  expect(report.numPassedTests).toBeGreaterThan(70);
});
