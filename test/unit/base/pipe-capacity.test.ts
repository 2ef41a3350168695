import { readSync } from "node:fs";
import { expect, test } from "vitest";
import { capacityLibrary, pipeCapacitySetter, type SetCapacity } from "../../../src/base/pipe-capacity.ts";
import { fillPipe, makeFifo, openFifo } from "../../support/fifo.ts";

const MIB = 1024 * 1024;

function setter(): SetCapacity {
  const setCapacity = pipeCapacitySetter();
  if (setCapacity === undefined) throw new Error("no library");
  return setCapacity;
}

test("a pipe holds what it was set to, again and again", () => {
  const setCapacity = setter();
  const fd = openFifo(makeFifo());
  for (const bytes of [MIB, 64 * 1024, 256 * 1024]) {
    expect(setCapacity(fd, bytes)).toBe(true);
    expect(fillPipe(fd)).toBe(bytes);
    expect(readSync(fd, Buffer.alloc(bytes))).toBe(bytes);
  }
});

test("a pipe does not become smaller than what it contains, and loses nothing", () => {
  const setCapacity = setter();
  const fd = openFifo(makeFifo());
  expect(setCapacity(fd, MIB)).toBe(true);
  fillPipe(fd);
  expect(setCapacity(fd, 64 * 1024)).toBe(false);
  expect(readSync(fd, Buffer.alloc(2 * MIB))).toBe(MIB);
  expect(setCapacity(fd, 64 * 1024)).toBe(true);
});

test("what is no pipe has no capacity", () => {
  expect(setter()(1_000_000, MIB)).toBe(false);
});

test("there is a library for x64 and arm64", () => {
  expect(capacityLibrary("x64")).toBeDefined();
  expect(capacityLibrary("arm64")).toBeDefined();
  expect(capacityLibrary("riscv64")).toBeUndefined();
});
