import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, expect, test } from "vitest";
import { nodeAsOrdinaryUser } from "../../../support/ordinary-user.ts";
import { type Attacked, attackPipes } from "./pipes-attack.ts";
import { spec, useEngine } from "./support.ts";

const directory = mkdtempSync(path.join(tmpdir(), "berth-attack-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));
const { engine, instance } = useEngine({ pipesDir: directory });
const SOCKET = "/var/run/docker.sock";

/** Checks that an attack learned names, looked often, and achieved nothing. */
function expectDefeated({ polling, inheriting, rootWasHere, answers }: Attacked): void {
  expect(polling.looked).toBeGreaterThan(100);
  expect(polling.opened).toEqual([]);
  expect(polling.tried).toBe(0);
  // A program with a pipe as its output knows the name of that pipe.
  expect(inheriting.tried).toBeGreaterThan(0);
  expect(inheriting.opened).toEqual([]);
  expect(rootWasHere).toBe(false);
  expect(answers.every((answer) => answer === "ok")).toBe(true);
}

test("no user in a sandbox can open or find the pipes of another's processes", async () => {
  expectDefeated(await attackPipes(engine, instance, spec()));
});

test("nor if the service may not change the owner of pipes", async () => {
  const args = ["test/integration/engine/docker/pipes-attack.ts", instance, JSON.stringify(spec())];
  const { child } = nodeAsOrdinaryUser(args, {}, [], [statSync(SOCKET).gid]);
  const [stdout, stderr] = await Promise.all([
    child.stdout && text(child.stdout),
    child.stderr && text(child.stderr),
  ]);
  expect(stdout, stderr ?? "").not.toBe("");
  expectDefeated(JSON.parse(stdout ?? ""));
});
