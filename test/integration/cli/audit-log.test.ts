import { chownSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, describe, expect, test } from "vitest";
import { nodeAsOrdinaryUser, ORDINARY_ID, PROGRAM } from "../../support/ordinary-user.ts";

const root = mkdtempSync(path.join(tmpdir(), "berth-audit-log-"));
afterAll(() => rmSync(root, { recursive: true }));

/** A new directory below which an ordinary user may have its files. */
function directory(name: string, { owner }: { readonly owner: number }): string {
  const made = path.join(root, name);
  mkdirSync(made);
  chownSync(root, ORDINARY_ID, ORDINARY_ID);
  chownSync(made, owner, owner);
  return made;
}

function ownFile(file: string): string {
  writeFileSync(file, "", { mode: 0o600 });
  chownSync(file, ORDINARY_ID, ORDINARY_ID);
  return file;
}

describe.concurrent("an audit log that cannot be used is refused by serve, and reported by doctor", () => {
  test.each([
    [
      "a symbolic link",
      () => {
        const there = directory("linked", { owner: ORDINARY_ID });
        const link = path.join(there, "link.jsonl");
        symlinkSync(ownFile(path.join(there, "audit.jsonl")), link);
        return { file: link, said: `${link} is a symbolic link` };
      },
    ],
    [
      "below a file",
      () => {
        const above = ownFile(path.join(directory("below", { owner: ORDINARY_ID }), "file"));
        return { file: path.join(above, "audit.jsonl"), said: `${above} is not a directory` };
      },
    ],
    [
      "in a directory where its user may not create it",
      () => {
        const there = directory("new", { owner: 0 });
        return {
          file: path.join(there, "audit.jsonl"),
          said: `this user may not write to the directory ${there}`,
        };
      },
    ],
    [
      "in a directory where its user may not rename it once it is full",
      () => {
        const there = directory("rotated", { owner: 0 });
        const file = ownFile(path.join(there, "audit.jsonl"));
        return { file, said: `this user may not write to the directory ${there}` };
      },
    ],
  ])("%s", async (_what, make) => {
    const { file, said } = make();
    const run = async (command: string) => {
      const options = ["--engine", "bubblewrap", "--listen", "127.0.0.1:0", "--audit-log", file];
      const { child } = nodeAsOrdinaryUser([PROGRAM, command, ...options]);
      const { stdout, stderr } = child;
      if (stdout === null || stderr === null) throw new Error("it has no pipes");
      const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
      return { output: (await Promise.all([text(stdout), text(stderr)])).join(""), exitCode: await ended };
    };
    const doctor = await run("doctor");
    expect(doctor.output).toMatch(/^missing +audit-log /m);
    expect(doctor).toEqual({ exitCode: 1, output: expect.stringContaining(said) });
    expect(await run("serve")).toEqual({
      exitCode: 1,
      output: expect.stringContaining(`--audit-log: ${said}`),
    });
  });
});
