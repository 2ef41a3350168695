import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, expect, test } from "vitest";
import { runHere } from "../../support/program-here.ts";

const dir = mkdtempSync(path.join(tmpdir(), "berth-serve-"));
afterAll(() => rmSync(dir, { recursive: true }));

/** Writes a configuration file. Returns its path. */
function configured(name: string, content: unknown): string {
  const file = path.join(dir, name);
  writeFileSync(file, JSON.stringify(content));
  return file;
}

test.each<[string[], string]>([
  [["--listen", "0.0.0.0:0"], "--listen: 0.0.0.0:0 can be reached from other machines"],
  [["--idle-timeout", "60"], '--idle-timeout: "60" has no unit; for seconds write 60s.'],
  [["--engine", "podman"], '--engine: "podman" is not one of auto, docker, bubblewrap, kubernetes.'],
  [["--max-sandbox", "5"], "unknown option '--max-sandbox'\n(Did you mean --max-sandboxes?)"],
  [["--config", "/no/berth.json"], "Configuration file /no/berth.json: there is no such file."],
  [["--log-format", "xml"], '--log-format: "xml" is not one of auto, text, json.'],
  [["extra"], "too many arguments"],
])("%j: refused with 2", async (args, problem) => {
  const { code, stderr, stdout } = await runHere(["serve", ...args]);
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  expect(stderr).toContain(`berth: ${problem}`);
});

test.each<[unknown, string]>([
  [[], 'it must contain one JSON object, such as {"max-sandboxes": 20}.'],
  ["text", 'it must contain one JSON object, such as {"max-sandboxes": 20}.'],
  [{ listen: { port: 1 } }, "listen must be a text, a number, true, false or a list of these."],
  [{ listen: null }, "listen must be a text, a number, true, false or a list of these."],
  [{ "max-sandbox": 5 }, 'there is no option "max-sandbox" (did you mean "max-sandboxes"?).'],
])("a file that holds %j is refused in plain words", async (content, problem) => {
  const config = configured("wrong.json", content);
  expect(await runHere(["serve", "--config", config])).toMatchObject({
    code: 2,
    stderr: `berth: Configuration file ${config}: ${problem}\n`,
  });
});

test("an error in a variable or a file names the variable or file", async () => {
  const config = configured("place.json", { "max-sandboxes": "many" });
  const problem = '"many" is not a whole number from 1 to 1000000.\n';
  expect((await runHere(["serve", "--config", config])).stderr).toBe(
    `berth: ${config}: max-sandboxes: ${problem}`,
  );
  expect((await runHere(["serve"], { env: { BERTH_MAX_SANDBOXES: "many" } })).stderr).toBe(
    `berth: BERTH_MAX_SANDBOXES: ${problem}`,
  );
});

test("--help names every option with its variable and default", async () => {
  const { code, stdout } = await runHere(["serve", "--help"]);
  const help = stdout.replace(/\s+/g, " ");
  expect(code).toBe(0);
  expect(help).toContain(
    "--idle-timeout <DURATION> How long a sandbox may stay unused before it is deleted. (env BERTH_IDLE_TIMEOUT, default 1h)",
  );
  expect(help).toContain("BERTH_CONFIG");
  expect(help).toContain("If an option may be repeated, separate the values with commas in the variable");
  expect(help).not.toContain("--no-");
});
