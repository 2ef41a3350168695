import fc from "fast-check";
import { expect, test } from "vitest";
import { parseRecords, parseStatLine } from "../../../src/files/file-info.ts";

const LINE = "81a4 12 0 0 852477 2026-11-20 10:45:30.575676792 +0000";

const name = fc
  .uint8Array({ minLength: 1, maxLength: 40 })
  .map((bytes) => Buffer.from(bytes).toString("latin1"))
  .filter((text) => !/[\0/]/.test(text) && text !== "." && text !== "..");

test("any names come out as they went in", () => {
  fc.assert(
    fc.property(fc.array(fc.array(name, { minLength: 1, maxLength: 3 })), (paths) => {
      const names = paths.map((path) => path.join("/"));
      const text = names.map((path) => `//${LINE}//./${path}\n`).join("");
      expect([...parseRecords(text)]).toEqual(names.map((path) => ({ line: LINE, name: path })));
    }),
  );
});

test("a name that looks like a record is parsed as a name", () => {
  const trap = `x\n${LINE}`;
  expect([...parseRecords(`//${LINE}//./${trap}\n`)]).toEqual([{ line: LINE, name: trap }]);
});

test.each(["junk", `//${LINE}`, `//${LINE}//./a`, `//${LINE}//a\n`])("%j is refused", (text) => {
  expect(() => [...parseRecords(text)]).toThrow("cannot be parsed");
});

test.each([
  ["2026-11-20 10:45:30.575676792 +0000", { seconds: 1_795_171_530, nanos: 575_676_792 }],
  ["1970-01-01 00:00:00 +0000", { seconds: 0, nanos: 0 }],
  ["1969-12-31 23:59:59.5 +0000", { seconds: -1, nanos: 500_000_000 }],
  ["0050-01-01 00:00:00.0 +0000", { seconds: -60_589_296_000, nanos: 0 }],
  ["2147485547-01-01 00:00:00.0 +0000", { seconds: 253_402_300_799, nanos: 0 }],
  ["-2147481748-01-01 00:00:00.0 +0000", { seconds: -62_135_596_800, nanos: 0 }],
])("the time %s", (text, time) => {
  expect(parseStatLine(`81a4 1 2 3 4 ${text}`).modifyTime).toEqual(time);
});

test("a line has kind, mode, size, owner and inode", () => {
  expect(parseStatLine("4fff 4096 1000 100 77 1970-01-01 00:00:00.0 +0000", "x")).toMatchObject({
    kind: "DIRECTORY",
    mode: 0o7777,
    sizeBytes: 4096,
    uid: 1000,
    gid: 100,
    inode: "77",
    linkTarget: "x",
  });
});

test.each([
  "",
  "81a4 1 2 3 4",
  "zzzz 1 2 3 4 1970-01-01 00:00:00.0 +0000",
  "0 1 2 3 4 1970-01-01 00:00:00.0 +0000",
])("the line %j is refused", (line) => {
  expect(() => parseStatLine(line)).toThrow("cannot be parsed");
});
