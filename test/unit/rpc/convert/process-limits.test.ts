import { create, toBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ExecRequestSchema } from "../../../../gen/ts/berth/v1/process_pb.js";
import { fromWireCommand } from "../../../../src/rpc/convert/process.ts";
import { environment, secretReferences } from "../../../../src/rpc/validate/fields.ts";
import { assertFewValues } from "../../../../src/server/message-check.ts";

const some = (count: number) => Array.from({ length: count }, (_, index) => `N${index}`);
const variables = (count: number) => Object.fromEntries(some(count).map((name) => [name, "v"]));
const argv = (count: number) => ({ case: "argv", value: { args: some(count) } }) as const;

test("as many arguments and variables as a command may have fit into a message", () => {
  const [env, secretEnv] = [variables(1024), variables(64)];
  const request = create(ExecRequestSchema, { command: argv(50_000), env, secretEnv });
  expect(fromWireCommand(request.command)).toMatchObject({ kind: "argv" });
  expect([environment("env", env), secretReferences("secret_env", secretEnv)]).toEqual([env, secretEnv]);
  expect(() => assertFewValues(ExecRequestSchema, toBinary(ExecRequestSchema, request))).not.toThrow();

  const { command } = create(ExecRequestSchema, { command: argv(50_001) });
  expect(() => fromWireCommand(command)).toThrow(expect.objectContaining({ reason: "INVALID_ARGUMENT" }));
  expect(() => environment("env", variables(1025))).toThrow("at most 1024");
  expect(() => secretReferences("secret_env", variables(65))).toThrow("at most 64");
});
