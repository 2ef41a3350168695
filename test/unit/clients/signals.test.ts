import { constants } from "node:os";
import { expect, test } from "vitest";
import { type SignalName, signalNumber } from "../../../clients/typescript/src/signals.ts";

test.each(["SIGPIPE", "SIGALRM", "SIGTTIN"] as const)("%s has its name and number", (name) => {
  expect(() => signalNumber(name)).not.toThrow();
  expect(signalNumber(name)).toBe(constants.signals[name]);
});

test("every signal of Linux has its name", () => {
  const { SIGIOT: _abrt, SIGPOLL: _io, ...signals } = constants.signals as Record<string, number>;
  for (const [name, number] of Object.entries(signals)) {
    if (number <= 31) expect([name, signalNumber(name as SignalName)]).toEqual([name, number]);
  }
});
