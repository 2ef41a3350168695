import { once } from "node:events";
import { closeSync, existsSync, fstatSync, openSync, readlinkSync } from "node:fs";
import { afterAll, expect, onTestFinished, test } from "vitest";
import type { BerthError } from "../../../../src/base/errors.ts";
import { Launcher, Reports } from "../../../../src/engine/bubblewrap/launcher.ts";
import { sandboxIdentity } from "../../../../src/engine/bubblewrap/sandbox-user.ts";
import {
  pipesText,
  readerOf,
  reopenText,
  reportStartText,
  writerOf,
} from "../../../../src/engine/bubblewrap/shell-pipes.ts";
import { eventually } from "../../../support/eventually.ts";
import { takeDescriptors } from "../../../support/no-descriptors.ts";

const identity = sandboxIdentity();
const groups: number[] = [];
const reports = new Reports();
const launcher = new Launcher({
  ...{
    identity,
    joinFiles: [],
    reports,
    command: ["/bin/sh", "-c"],
    width: 1,
    nothing: [":"],
  },
  onGroup: (group) => groups.push(group),
});
afterAll(() => launcher.close());

/** Reads a number from one pipe, writes it to another and returns it as the exit code. Ends after one more line. */
const start = () =>
  launcher.start((tag) => [
    `${pipesText([4, 5])}exec ${reopenText({ 4: "<>", 5: "<>" })}
${reportStartText(tag)}read -r x <&4
echo $x >&5
printf 'e ${tag} %s\\n' $x >&3
read -r x <&4
exit 0`,
  ]);

test("a process has pipes of its own, which the sandboxes' user may reopen", async () => {
  const { pid } = await start();
  const names = [4, 5].map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`));
  expect(names).toEqual([expect.stringMatching(/^pipe:\[\d+\]$/), expect.stringMatching(/^pipe:\[\d+\]$/)]);
  expect(names[0]).not.toBe(names[1]);
  const own = openSync(`/proc/${pid}/fd/5`, "r+");
  expect(fstatSync(own).uid).toBe(identity.uid);
  closeSync(own);
  writerOf(pid, 4).end("1\n\n");
});

test("a launcher that cannot be started says why, and the next one works", async () => {
  const late = new Launcher({
    ...{ identity, joinFiles: [], reports, command: ["/bin/sh", "-c"], width: 1, nothing: [":"] },
    onGroup: () => {},
  });
  onTestFinished(() => late.close());
  const begin = () => late.start((tag) => [reportStartText(tag, "1")]);
  const end = takeDescriptors(0);
  const problem = await begin().catch((error: Error) => error.message);
  end();
  expect(problem).toMatch(/^spawn \S+ EMFILE$/);
  expect(await begin()).toMatchObject({ child: 1 });
});

test("many at once are distinguished, and each reports its end", async () => {
  const all = await Promise.all(Array.from({ length: 40 }, start));
  expect(new Set(all.map(({ pid }) => pid)).size).toBe(40);
  const seen = all.map(async ({ pid, code }, i) => {
    const [reader, writer] = [readerOf(pid, 5), writerOf(pid, 4)];
    writer.write(`${i}\n`);
    const [chunk] = await once(reader, "data");
    const told = [String(chunk), await code];
    writer.end("\n");
    reader.destroy();
    return told;
  });
  expect(await Promise.all(seen)).toEqual(all.map((_, i) => [`${i}\n`, i]));
});

test("the next start works although the process before it was killed", async () => {
  const before = groups.length;
  process.kill((await start()).pid, "SIGKILL");
  // Those that start before that is noticed are not affected.
  for (let i = 1; groups.length === before; i++) {
    const { pid, code } = await start();
    writerOf(pid, 4).end(`${i}\n\n`);
    expect(await code).toBe(i);
    expect(i).toBeLessThan(100);
  }
  expect(groups.length).toBe(before + 1);
});

test("ended processes are reaped while nothing is started", async () => {
  const all = await Promise.all(Array.from({ length: 10 }, start));
  for (const { pid } of all) writerOf(pid, 4).end("1\n\n");
  await Promise.all(all.map(({ code }) => code));
  await eventually(() => all.every(({ pid }) => !existsSync(`/proc/${pid}`)));
});

test("a shell that has nothing more to report is forgotten", async () => {
  const before = reports.expected;
  const { pid, code } = await start();
  writerOf(pid, 4).end("1\n\n");
  await code;
  // A process that reports a child, like a keeper.
  await launcher.start((tag) => [reportStartText(tag, "1")]);
  expect(reports.expected).toBe(before);
});

test("a shell that never reports its start is forgotten when its caller leaves", async () => {
  const before = reports.expected;
  let failed: unknown = "it goes on";
  const starting = launcher.start(() => ["exit 1"], AbortSignal.timeout(200));
  starting.catch((error: BerthError) => (failed = error.reason));
  await expect.poll(() => failed, { timeout: 20_000 }).toBe("CANCELED");
  expect(reports.expected).toBe(before);
});

test("an attendant that starts after its caller has left is ended only by its child", async () => {
  const unknown = 1_000_000;
  const { code } = await launcher.start((tag) => [
    `${reportStartText(unknown)}${reportStartText(tag)}sleep 1000
printf 'e ${tag} %s\\n' $? >&3
exit 0`,
  ]);
  // SIGKILL's code. An ended shell itself reports nothing.
  expect(await code).toBe(137);
});
