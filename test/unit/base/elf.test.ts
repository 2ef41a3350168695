import { expect, test } from "vitest";
import { ELF, LIBRARY_START, sharedLibrary } from "../../../src/base/elf.ts";

test("a library keeps its contents, and takes no more than fit before its writable part", () => {
  const library = (bytes: number) => sharedLibrary(ELF.machine.x64, Buffer.alloc(bytes, 1), false, []);
  expect(library(224).subarray(LIBRARY_START).indexOf(0)).toBe(224);
  expect(() => library(225)).toThrow("a library of 225 bytes; at most 224 fit");
});
