import { Command, Option } from "commander";
import { expect, test } from "vitest";
import { arrangeLine, splitLine } from "../../../src/cli/line.ts";

const ADDRESS = new Option("--address <address>");
const ANYWHERE = [ADDRESS, new Option("--json")];

const exec = new Command("exec")
  .addOption(ADDRESS)
  .option("-e, --env <pair>")
  .option("-i, --interactive")
  .option("-d")
  .argument("<sandbox>")
  .argument("<command...>")
  .passThroughOptions();
const ls = new Command("ls").addOption(ADDRESS).option("-a").argument("[type]");
const session = new Command("session").addCommand(ls);

const arranged = (words: string, root: Command) =>
  arrangeLine(splitLine(words.split(" "), ANYWHERE), root, ANYWHERE).join(" ");

test.each([
  ["exec x -- ls -a", "exec x -- ls -a"],
  ["--address a exec x -- ls", "exec --address a x -- ls"],
  ["--json --address=a exec x ls", "exec --json --address=a x ls"],
  ["exec x --address a -- ls", "exec --address a x -- ls"],
  ["exec -i x -e A=1 -- ls -i", "exec -i -e A=1 x -- ls -i"],
  ["exec x -ie A=1 ls", "exec -ie A=1 x ls"],
  ["exec x -eA=1 ls", "exec -eA=1 x ls"],
  ["exec x -di ls", "exec -di x ls"],
  ["exec x --nope ls -i", "exec --nope x ls -i"],
  ["exec x ls --address a", "exec x ls --address a"],
  ["exec -- -x ls", "exec -- -x ls"],
  ["exec - ls -i", "exec - ls -i"],
  ["exec x --address", "exec --address x"],
])("%s", (words, expected) => expect(arranged(words, exec)).toBe(expected));

test.each([
  ["session ls", "session ls"],
  ["session --address a ls -a b", "session ls --address a -a b"],
  ["--address a session --json ls b -a", "session ls --address a --json -a b"],
  ["session --nope ls", "session --nope ls"],
])("%s", (words, expected) => expect(arranged(words, session)).toBe(expected));

test("anything that is not an option of the client ends the search for a command", () => {
  expect(splitLine(["--version"], ANYWHERE).name).toBe("--version");
  expect(splitLine([], ANYWHERE).name).toBeUndefined();
});
