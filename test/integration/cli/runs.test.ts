import { afterAll, beforeAll, expect, test } from "vitest";
import { Client } from "../../support/client.ts";
import { endOf, ServeProcess } from "../../support/program.ts";
import { RunDriver } from "../../support/run-driver.ts";

let service: ServeProcess;
let client: Client;

beforeAll(async () => {
  service = await ServeProcess.start(["--engine", "bubblewrap"]);
  client = new Client(service.address);
});

afterAll(async () => {
  client?.close();
  await service?.dispose();
});

async function berth(...args: string[]): Promise<string> {
  const { stdout, stderr, exitCode } = await service.runHere(args);
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
  return stdout.toString();
}

test("runs are listed, shown, followed to their end, canceled and deleted", async () => {
  const run = await RunDriver.start(client, { name: "mine", max_steps: 3 });
  await run.report({ result: "looked\u001b[2J" });
  expect(await berth("runs", "ls")).toMatch(new RegExp(`${run.runId} +running +2/3 .* mine`));
  const shown = await berth("runs", "show", run.runId);
  expect(shown).toContain("Step 1: looked\\u{1b}[2J\n");
  const watch = endOf(service.begin(["runs", "watch", run.runId]));
  expect(await berth("runs", "cancel", run.runId)).toBe(`${run.runId} error (canceled)\n`);
  const { stdout, exitCode } = await watch;
  const told = stdout.toString().replace(/^\S+ /gm, "");
  expect({ told, exitCode }).toEqual({
    told: "created\nstarted\nstep 1: looked\\u{1b}[2J\nended canceled: The run was canceled.\n",
    exitCode: 0,
  });
  expect(await berth("runs", "ls")).not.toContain(run.runId);
  const all = JSON.parse(await berth("runs", "ls", "--all", "--json"));
  expect(all.runs).toMatchObject([{ runId: run.runId, outcome: "RUN_OUTCOME_CANCELED" }]);
  expect(await berth("runs", "rm", run.runId)).toBe(`${run.runId}\n`);
  const gone = await service.runHere(["runs", "show", run.runId]);
  expect(gone.exitCode).toBe(1);
  expect(gone.stderr).toMatch(/There is no run/);
});

test("several are deleted at once, and a missing one is reported, unless forced", async () => {
  const [one, two] = await Promise.all([RunDriver.start(client, {}), RunDriver.start(client, {})]);
  const removed = await service.runHere(["runs", "rm", one.runId, "unknown", two.runId]);
  expect(removed.exitCode).toBe(1);
  expect(removed.stderr).toMatch(/^berth: There is no run "unknown"\./);
  expect(removed.stdout.toString().trim().split("\n").sort()).toEqual([one.runId, two.runId].sort());
  expect(JSON.parse(await berth("runs", "ls", "--all", "--json")).runs ?? []).toEqual([]);
  expect(await berth("runs", "rm", "-f", "unknown")).toBe("unknown\n");
});

test("a wrong command line is reported as for every command", async () => {
  const { exitCode, stderr } = await service.runHere(["runs", "show"]);
  expect({ exitCode, stderr }).toEqual({ exitCode: 2, stderr: "berth: missing required argument 'run'\n" });
});
