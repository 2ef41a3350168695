import { expect, test } from "vitest";
import { bashType } from "../../../../src/sessions/types/bash/type.ts";
import { codeType } from "../../../../src/sessions/types/code/type.ts";
import { envConfig } from "../../../../src/sessions/types/common.ts";
import { pythonType } from "../../../../src/sessions/types/python/type.ts";

const accepts = (env: Record<string, string>) => envConfig.safeParse(env).success;

test("the environment in a config is limited like that of a command", () => {
  const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`V${i}`, ""]));
  expect([accepts(many(1024)), accepts(many(1025))]).toEqual([true, false]);
  const values = (last: number) =>
    Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`V${i}`, "x".repeat(i < 7 ? 98_300 : last)]));
  expect([accepts(values(98_300)), accepts(values(98_301))]).toEqual([true, false]);
});

test("what bash and python run is a command of the tenant; what code runs is counted where it starts", () => {
  const nothing = {} as never;
  const types = [bashType(nothing), pythonType(nothing), codeType(nothing)];
  const commands = types.flatMap(({ name, tools }) =>
    tools.map((tool) => [`${name}:${tool.name}`, tool.isCommand ?? false]),
  );
  expect(Object.fromEntries(commands)).toEqual({
    "bash:run": true,
    "python:run": true,
    "code:execute": false,
  });
});
