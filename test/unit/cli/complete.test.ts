import { expect, test } from "vitest";
import { COMMANDS } from "../../../src/cli/commands.ts";
import { complete, type Typed } from "../../../src/cli/completion/complete.ts";
import type { CommandHost } from "../../../src/cli/host.ts";

const host = { action: () => async () => {} } as unknown as CommandHost;
const commands = Object.fromEntries(Object.entries(COMMANDS).map(([name, make]) => [name, () => make(host)]));

/** Completes a line's last word. The fake service has one thing of each kind, named after the kind. */
async function completed(line: string) {
  const asked: { kind: string; typed: Typed }[] = [];
  const { candidates, files } = await complete(line.split(" "), {
    commands,
    described: false,
    live: async (kind, typed) => {
      asked.push({ kind, typed });
      return /^(sandbox|process|workspace|run|worker|type|tool|source|target|id|process\|sandbox)$/.test(kind)
        ? [{ value: `a-${kind}`, description: "" }]
        : undefined;
    },
  });
  return { values: candidates.map(({ value }) => value), files, asked };
}

test.each([
  ["ru", ["run", "runs"]],
  ["workspace c", ["create", "cleanup"]],
  ["runs w", ["watch"]],
  ["exec --ti", ["--timeout"]],
  ["--addr", ["--address"]],
  ["--address unix:/x l", ["logs", "ls"]],
  ["exec ", ["a-sandbox"]],
  ["exec -e A=1 ", ["a-sandbox"]],
  ["exec -eA=1 ", ["a-sandbox"]],
  ["exec --env=A=1 ", ["a-sandbox"]],
  ["exec -e ", []],
  ["exec -- ", ["a-sandbox"]],
  ["exec a-sandbox ", []],
  ["exec a-sandbox -- --t", []],
  ["rm one two ", ["a-sandbox"]],
  ["logs ", ["a-process"]],
  ["logs one ", []],
  ["kill -s TERM ", ["a-process|sandbox"]],
  ["inspect ", ["a-id"]],
  ["inspect --type w", ["workspace"]],
  [
    "inspect --type=",
    ["--type=sandbox", "--type=process", "--type=run", "--type=workspace", "--type=session"],
  ],
  ["ls --state pau", ["paused"]],
  ["ls --all=", []],
  ["create --workspace ", ["a-workspace"]],
  ["create --workspace=a", ["--workspace=a-workspace"]],
  ["create --id ", []],
  ["session create --sandbox ", ["a-sandbox"]],
  ["session ls -w ", ["a-worker"]],
  ["tool run ", ["a-tool"]],
  ["completion ", ["bash", "zsh", "fish"]],
  ["nonsense ", []],
  ["constructor ", []],
  ["session nonsense ", []],
])("%j", async (line, values) => expect((await completed(line)).values).toEqual(values));

test("files are completed where the program reads or writes them", async () => {
  const withFiles = [
    "cp ",
    "cp a ",
    "tool run -o ",
    "serve --tls-cert ",
    "serve --data-dir=/va",
    "serve --secrets ",
  ];
  for (const line of withFiles) expect(await completed(line)).toMatchObject({ files: true });
  for (const line of ["ls ", "exec -w ", "create --image ", "cp --"]) {
    expect(await completed(line)).toMatchObject({ files: false });
  }
});

test("the service is asked as the line says", async () => {
  for (const line of ["--address unix:/x ps one", "ps --address unix:/x one", "ps --address=unix:/x one"]) {
    const { asked } = await completed(line);
    expect(asked).toEqual([
      {
        kind: "sandbox",
        typed: { command: "ps", operands: [], flags: { address: "unix:/x" }, current: "one" },
      },
    ]);
  }
});
