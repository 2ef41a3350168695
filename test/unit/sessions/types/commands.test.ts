import { expect, test } from "vitest";
import { bashType } from "../../../../src/sessions/types/bash/type.ts";
import { codeType } from "../../../../src/sessions/types/code/type.ts";
import { pythonType } from "../../../../src/sessions/types/python/type.ts";

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
