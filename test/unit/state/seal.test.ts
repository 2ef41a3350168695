import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, expect, test } from "vitest";
import { Seal } from "../../../src/state/seal.ts";

const directory = mkdtempSync(path.join(tmpdir(), "berth-seal-"));
afterAll(() => rmSync(directory, { recursive: true }));

test("sealed data can be read with the key in the same file, and is nowhere in plain text", () => {
  const file = path.join(directory, "key");
  const text = '{"env":{"S":"ü ☃"}}';
  const bytes = Buffer.from([0, 255, 128, 10]);
  const first = Seal.ofFile(file);
  expect(statSync(file).mode & 0o777).toBe(0o600);
  const again = Seal.ofFile(file);
  expect(again.openText(first.text(text))).toBe(text);
  expect(Buffer.from(again.open(first.bytes(bytes)))).toEqual(bytes);
  expect(first.text(text)).not.toContain("env");
  expect(first.text(text)).not.toBe(first.text(text));
});

test("empty bytes stay empty, and an empty text is sealed", () => {
  const seal = Seal.random();
  expect([...seal.open(seal.bytes(new Uint8Array()))]).toEqual([]);
  expect(seal.bytes(new Uint8Array())).toHaveLength(0);
  expect(seal.text("")).toMatch(/^sealed1:/);
  expect(seal.openText(seal.text(""))).toBe("");
});

test("plain text of an earlier version is read as it is", () => {
  const seal = Seal.random();
  expect(seal.openText('{"a":1}')).toBe('{"a":1}');
  expect([...seal.open(new Uint8Array([255, 15]))]).toEqual([255, 15]);
});

test("another key, or a changed byte, is reported and not read", () => {
  const seal = Seal.random();
  const sealed = seal.bytes(Buffer.from("x"));
  expect(() => Seal.random().open(sealed)).toThrow(/a key other than/);
  sealed[sealed.length - 1] = (sealed.at(-1) ?? 0) ^ 1;
  expect(() => seal.open(sealed)).toThrow(/a key other than/);
  const file = path.join(directory, "short");
  writeFileSync(file, "short");
  expect(() => Seal.ofFile(file)).toThrow(/holds no key/);
  expect(readFileSync(file, "utf8")).toBe("short");
});

test("an empty file, as a full disk or a crash leaves it, is a missing key", () => {
  const file = path.join(directory, "empty");
  for (const place of [file, `${file}.new`]) writeFileSync(place, "", { mode: 0o644 });
  expect(() => Seal.ofFile(file)).not.toThrow();
  const sealed = Seal.ofFile(file).text("x");
  expect(Seal.ofFile(file).openText(sealed)).toBe("x");
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(existsSync(`${file}.new`)).toBe(false);
});
