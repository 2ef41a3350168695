import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { ExecRequestSchema } from "../../../gen/ts/berth/v1/process_pb.js";
import { ExecuteToolRequestSchema } from "../../../gen/ts/berth/v1/session_pb.js";
import { UsageError } from "../../../src/cli/exit.ts";
import { jsonObject, keyValues, toolParams } from "../../../src/cli/flags.ts";

describe("params", () => {
  test.each([
    [["command=ls -l", "limit:=10"], '{"command":"ls -l","limit":10}'],
    [["a=b=c", "a=", "text=x:=1\n"], '{"a":"","text":"x:=1\\n"}'],
    // Names that every object has.
    [["__proto__=x", "constructor=y"], '{"__proto__":"x","constructor":"y"}'],
    [['__proto__:={"a": {"__proto__": 1}}'], '{"__proto__":{"a":{"__proto__":1}}}'],
  ])("%j are %s", (words, json) => {
    const params = toolParams(words);
    expect(JSON.stringify(params)).toBe(json);
    const sent = toBinary(ExecuteToolRequestSchema, create(ExecuteToolRequestSchema, { params }));
    expect(JSON.stringify(fromBinary(ExecuteToolRequestSchema, sent).params)).toBe(json);
  });

  test.each([
    [["command"], '"command": write NAME=TEXT, or NAME:=JSON'],
    [["=x"], '"=x": write NAME=TEXT, or NAME:=JSON'],
    [["limit:=ten"], "limit: it is not JSON"],
  ])("%j are refused", (words, problem) => {
    expect(() => toolParams(words)).toThrow(UsageError);
    expect(() => toolParams(words)).toThrow(problem);
  });
});

test("the variable __proto__ is one as any other", () => {
  const env = keyValues("--env", ["__proto__=x", "A=1", "A=2"]);
  expect(Object.entries(env)).toEqual([
    ["__proto__", "x"],
    ["A", "2"],
  ]);
  const sent = toBinary(ExecRequestSchema, create(ExecRequestSchema, { env }));
  expect(Object.entries(fromBinary(ExecRequestSchema, sent).env)).toEqual(Object.entries(env));
});

test("a flag that takes a JSON object says so", () => {
  expect(jsonObject("--config", '{"cwd": "/tmp"}')).toEqual({ cwd: "/tmp" });
  expect(() => jsonObject("--config", "[1]")).toThrow(
    "--config: it is not a JSON object; write for instance",
  );
});
