import type { Command } from "commander";
import { afterAll, beforeAll, expect, test } from "vitest";
import { COMMANDS } from "../../../src/cli/commands.ts";
import type { CommandHost } from "../../../src/cli/host.ts";
import { runHere } from "../../support/program-here.ts";

const env = { BERTH_ADDRESS: "unix:/no/such/berth.sock", BERTH_TOKENS: "/no/such/tokens.yaml" };
const berth = (...args: string[]) => runHere(args, { env });

/** Commands that call no service, or only after a check for a terminal. */
const WITHOUT_SERVICE = new Set(["serve", "token", "doctor", "shell", "completion", "version"]);

/** Every command, including groups, by its name as it is called. */
async function everyCommand(): Promise<Map<string, Command>> {
  const host = { action: () => async () => {} } as unknown as CommandHost;
  const all = new Map<string, Command>();
  const walk = (command: Command, above: string[]) => {
    const path = [...above, command.name()];
    all.set(path.join(" "), command);
    for (const child of command.commands) walk(child, path);
  };
  for (const make of Object.values(COMMANDS)) walk(await make(host), []);
  return all;
}

const examples = new Map<string, string[]>();
// `berth serve` changes the umask.
const umask = process.umask();
beforeAll(async () => {
  for (const name of ["", ...(await everyCommand()).keys()]) {
    const { stdout } = await berth(...name.split(" ").filter(Boolean), "--help");
    const [, section = ""] = stdout.split("\nExamples:\n");
    examples.set(name, section.trimEnd().split("\n"));
  }
});
afterAll(() => {
  process.umask(umask);
});

test("every command's help ends with examples of that command", () => {
  expect(examples.size).toBeGreaterThan(40);
  for (const [command, lines] of examples) {
    for (const line of lines) expect(line, `an example of berth ${command}`).toMatch(/^ {2}\S.*\S$/);
    expect(lines.join("\n"), `the examples of berth ${command}`).toContain(`berth ${command}`.trimEnd());
  }
});

test("every command has a summary for lists of commands, and a description for its own help", async () => {
  for (const [name, command] of await everyCommand()) {
    expect(command.summary(), `the summary of berth ${name}`).toMatch(/^[a-z].*[^.]$/);
    expect(command.description(), `the description of berth ${name}`).toMatch(/^[A-Z]/);
  }
});

test("every example is a command line that the program understands", async () => {
  const tried = new Set<string>();
  for (const line of [...examples.values()].flat()) {
    for (const words of callsIn(line)) {
      const { code, stdout, stderr } = await berth(...words);
      const end = `${line}: ${stdout}${stderr}`;
      expect(code, end).not.toBe(2);
      const [name = ""] = words;
      // Any other error in a line would be reported before the service is called.
      if (!WITHOUT_SERVICE.has(name)) expect(end).toContain("no service answers at unix:/no/such/berth.sock");
      tried.add(name);
    }
  }
  expect([...tried].sort()).toEqual(Object.keys(COMMANDS).sort());
});

test.each([
  ["berth ls | wc -l", [["ls"]]],
  ["echo x | berth exec A -- sh -c 'a b' > out", [["exec", "A", "--", "sh", "-c", "a b"]]],
  [
    'berth rm $(berth ls -q -l "a b=c")',
    [
      ["ls", "-q", "-l", "a b=c"],
      ["rm", "ID"],
    ],
  ],
])("the calls in %s", (line, calls) => expect(callsIn(line)).toEqual(calls));

/** The calls of the program in a shell line, each as its arguments. Nested calls come first. */
function callsIn(line: string): string[][] {
  const inner = [...line.matchAll(/\$\(([^)]*)\)/g)].flatMap(([, call = ""]) => callsIn(call));
  const outer = line.replace(/\$\([^)]*\)/g, "ID");
  const words = [...outer.matchAll(/[|<>]|(?:'[^']*'|"[^"]*"|[^\s'"|<>])+/g)].map(([word]) => word);
  const calls: string[][] = [];
  for (const [index, word] of words.entries()) {
    if (word !== "berth" || (index > 0 && words[index - 1] !== "|")) continue;
    const end = words.findIndex((other, at) => at > index && /^[|<>]$/.test(other));
    const args = words.slice(index + 1, end === -1 ? undefined : end);
    calls.push(
      args.map((arg) => arg.replace(/'([^']*)'|"([^"]*)"/g, (_, single, double) => single ?? double)),
    );
  }
  return [...inner, ...calls];
}
