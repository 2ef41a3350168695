import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { RunSchema } from "../../../gen/ts/berth/v1/run_pb.js";
import { type Sandbox, SandboxSchema, SandboxState } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { SessionSchema } from "../../../gen/ts/berth/v1/session_pb.js";
import { UsageError } from "../../../src/cli/exit.ts";
import { messageJson } from "../../../src/cli/format.ts";
import { parseTemplate } from "../../../src/cli/list/template.ts";

const item = create(SandboxSchema, {
  sandboxId: "sbx\u001b[2J",
  state: SandboxState.RUNNING,
  generation: 3n,
  createTime: timestampFromMs(0),
  spec: { image: "alpine", labels: { team: "red", "a.b/c": "dotted" }, mounts: [{ target: "/data" }] },
});
const columns = [{ heading: "STATE", text: ({ state }: Sandbox) => `state ${state}` }];
const subject = { schema: SandboxSchema, columns };
const seen = { item, json: messageJson(SandboxSchema, item) };

test.each([
  ["{{.spec.image}}", "alpine"],
  ["{{ .generation }}-{{.activeOperations}}", "3-0"],
  ["{{.createTime}}", "1970-01-01T00:00:00Z"],
  ["a\\tb\\n\\\\{{.spec.image}}c", "a\tb\n\\alpinec"],
  ["{{.state}} {{.STATE}} {{.State}}", "state 2 state 2 state 2"],
  ["{{json .state}}", '"state 2"'],
  ["{{.spec.labels.team}}", "red"],
  ['{{index .spec.labels "a.b/c"}}', "dotted"],
  ["{{.spec.labels.none}}{{.termination.message}}", ""],
  ["{{json .termination}}", "null"],
  ["{{.spec.mounts.0.target}}", "/data"],
  ["{{json .spec.labels}}", '{"team":"red","a.b/c":"dotted"}'],
  ["{{.spec.labels}}", '{"team":"red","a.b/c":"dotted"}'],
  // Control characters are shown escaped.
  ["{{.sandboxId}}", "sbx\\u{1b}[2J"],
])("%s gives %j", (template, text) => expect(parseTemplate(template, subject).of(seen)).toBe(text));

test("the whole of an item is its JSON", () => {
  expect(JSON.parse(parseTemplate("{{json .}}", subject).of(seen))).toEqual(seen.json);
  expect(JSON.parse(parseTemplate("{{.}}", subject).of(seen))).toEqual(seen.json);
});

test("a table's headings are the columns' and the fields' names", () => {
  expect(
    parseTemplate('{{.state}}\\t{{.spec.image}}\\t{{index .spec.labels "team"}}', subject).headings,
  ).toBe("STATE\tIMAGE\tTEAM");
});

test("JSON of any form may follow where the API has it", () => {
  const session = create(SessionSchema, { config: { screen: { size: [1280, 800] } } });
  const template = parseTemplate("{{.config.screen.size.1}}", { schema: SessionSchema, columns: [] });
  expect(template.of({ item: session, json: messageJson(SessionSchema, session) })).toBe("800");
});

describe("refused, with what to write", () => {
  test.each([
    ["{{.spec", '"{{" has no "}}" after it'],
    ["{{range .x}}", "{{range .x}} is not understood; write {{.FIELD}}, {{json .FIELD}} or"],
    ["{{}}", "{{}} is not understood"],
    ["{{spec}}", "is not understood"],
    ["{{.nonsense}}", '{{.nonsense}}: there is no field "nonsense"; there are: STATE, sandboxId, spec, '],
    ["{{.spec.nonsense}}", 'there is no field "nonsense"; there are: image, env, '],
    ["{{.spec.image.x}}", '"image" has no fields'],
    ["{{.createTime.seconds}}", '"createTime" has no fields'],
    ["{{.spec.labels.team.x}}", '"team" has no fields'],
    ["{{.spec.mounts.first}}", '"mounts" is a list; write its place, from 0'],
    ["{{.constructor}}", 'there is no field "constructor"'],
    ['{{index .spec "\\x"}}', "is not a quoted text as in JSON"],
  ])("%s", (template, problem) => {
    const parse = () => parseTemplate(template, subject);
    expect(parse).toThrow(UsageError);
    expect(parse).toThrow(problem);
    expect(parse).toThrow("--format: ");
  });
});

test("a list of messages is indexed by position", () => {
  const run = create(RunSchema, { steps: [{ step: 1, result: "done" }] });
  const template = parseTemplate("{{.steps.0.result}}{{.steps.1.result}}", {
    schema: RunSchema,
    columns: [],
  });
  expect(template.of({ item: run, json: messageJson(RunSchema, run) })).toBe("done");
});
