import { expect, test } from "vitest";
import { envConfig } from "../../../../src/sessions/types/common.ts";

const accepts = (env: Record<string, string>) => envConfig.safeParse(env).success;

test("the environment in a config is limited like that of a command", () => {
  const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`V${i}`, ""]));
  expect([accepts(many(1024)), accepts(many(1025))]).toEqual([true, false]);
  const values = (last: number) =>
    Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`V${i}`, "x".repeat(i < 7 ? 98_300 : last)]));
  expect([accepts(values(98_300)), accepts(values(98_301))]).toEqual([true, false]);
});
