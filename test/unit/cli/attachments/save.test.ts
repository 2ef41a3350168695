import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { PassThrough } from "node:stream";
import { create } from "@bufbuild/protobuf";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type Attachment, AttachmentSchema } from "../../../../gen/ts/berth/v1/session_pb.js";
import { saveAttachments } from "../../../../src/cli/attachments/save.ts";
import { writeJson } from "../../../../src/cli/io.ts";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(path.join(tmpdir(), "berth-save-"));
});
afterEach(() => rmSync(dir, { recursive: true }));

const attachment = (name: string, text: string, mediaType = "image/png"): Attachment =>
  create(AttachmentSchema, { name, mediaType, content: Buffer.from(text) });
const ioOf = (isTTY = false) => ({
  stdin: new PassThrough(),
  stdout: Object.assign(new PassThrough(), { isTTY }),
  stderr: new PassThrough(),
  env: {},
});

test("one goes to a file, whose directory is created", async () => {
  const file = path.join(dir, "new", "a.png");
  expect(await saveAttachments(ioOf(), [attachment("screenshot", "1")], file)).toEqual([file]);
  expect(readFileSync(file, "utf8")).toBe("1");
});

test("several go into a directory, with different names that stay in it", async () => {
  const given = [
    attachment("../../etc/passwd", "1"),
    attachment("a", "2"),
    attachment("a", "3"),
    attachment("", "4", "x/y"),
    attachment(".bashrc", "5", "text/plain"),
    attachment("page", "7", "text/html; charset=utf-8"),
    attachment("\x1b[2J.png", "6"),
  ];
  await saveAttachments(ioOf(), given, `${dir}/`);
  expect(readdirSync(dir).sort()).toEqual(
    [
      "_.._etc_passwd.png",
      "__2J.png",
      "a-2.png",
      "a.png",
      "attachment.bin",
      "bashrc.txt",
      "page.html",
    ].sort(),
  );
});

test("- is stdout, but not a terminal", async () => {
  const io = ioOf();
  await saveAttachments(io, [attachment("a", "1")], "-");
  expect(io.stdout.read()).toEqual(Buffer.from("1"));
  await expect(saveAttachments(ioOf(true), [attachment("a", "1")], "-")).rejects.toThrow(/terminal/);
});

test("none, and several for one place, are refused", async () => {
  const two = [attachment("a", "1"), attachment("b", "2")];
  await expect(saveAttachments(ioOf(), [], path.join(dir, "x"))).rejects.toThrow(/nothing/);
  await expect(saveAttachments(ioOf(), two, path.join(dir, "x"))).rejects.toThrow(/2 attachments/);
  await expect(saveAttachments(ioOf(), two, "-")).rejects.toThrow(/2 attachments/);
  expect(readdirSync(dir)).toEqual([]);
});

test("JSON on a terminal contains no control characters, and is the same JSON", async () => {
  const value = { text: "\x1b[2J\x9b2J\x7f\u202eabc\u2028 жук 日本 👩‍💻" };
  const stdout = new PassThrough();
  await writeJson(stdout, value);
  const text = String(stdout.read());
  expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u202e]/);
  expect(text).toContain("жук 日本 👩‍💻");
  expect(JSON.parse(text)).toEqual(value);
});
