import type { Command } from "commander";
import { afterAll, beforeAll, expect, test } from "vitest";
import { COMMANDS } from "../../../src/cli/commands.ts";
import type { CommandHost } from "../../../src/cli/host.ts";
import { runHere } from "../../support/program-here.ts";

const env = { BERTH_ADDRESS: "unix:/no/such/berth.sock", BERTH_TOKENS: "/no/such/tokens.yaml" };
const berth = (...args: string[]) => runHere(args, { env });

/** Commands that call no service, or only after a check for a terminal. */
const WITHOUT_SERVICE = new Set(["serve", "token", "doctor", "shell", "completion", "version"]);

/** Every command as it is called, including groups. */
async function everyCommand(): Promise<string[][]> {
  const host = { action: () => async () => {} } as unknown as CommandHost;
  const paths: string[][] = [[]];
  const walk = (command: Command, above: string[]) => {
    const path = [...above, command.name()];
    paths.push(path);
    for (const child of command.commands) walk(child, path);
  };
  for (const make of Object.values(COMMANDS)) walk(await make(host), []);
  return paths;
}

const examples = new Map<string, string[]>();
// `berth serve` changes the umask.
const umask = process.umask();
beforeAll(async () => {
  for (const path of await everyCommand()) {
    const { stdout } = await berth(...path, "--help");
    const [, section = ""] = stdout.split("\nExamples:\n");
    examples.set(path.join(" "), section.trimEnd().split("\n"));
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
