import { expect, test } from "vitest";
import type { BrowserUse } from "../../../../../src/sessions/types/browser/browser.ts";
import { evaluate } from "../../../../../src/sessions/types/browser/evaluate.ts";
import { processorNowMs } from "../../../../support/measure.ts";

test("a script that nearly holds a function's code often takes little time", async () => {
  const code = `${"a".repeat(50)}=>0+${"a".repeat(80_000)}`;
  const result = { type: "function", objectId: "1", description: code };
  const use = { tab: { send: async () => ({ result }) }, signal: AbortSignal.timeout(60_000) };
  const before = processorNowMs();
  const { data } = await evaluate(use as unknown as BrowserUse, `f/*${"a".repeat(160_000)}*/`);
  expect(data).toMatchObject({ result: code, error: null });
  expect(processorNowMs() - before).toBeLessThan(500);
});
