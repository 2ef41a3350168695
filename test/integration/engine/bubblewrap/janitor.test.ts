import { existsSync, mkdirSync } from "node:fs";
import path from "node:path";
import { beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { Janitor } from "../../../../src/engine/bubblewrap/janitor.ts";
import { childrenOf } from "../../../../src/engine/outside/host-process.ts";
import { takeDescriptors } from "../../../support/no-descriptors.ts";
import { silent } from "../docker/support.ts";
import { useDirectory } from "./support.ts";

const WARNING = [{ err: expect.any(Error) }, expect.stringContaining("Restart the service when you can")];

const directory = path.join(useDirectory(), "runtime");
const warn = vi.fn();
const start = () => new Janitor(directory, [], { ...silent, warn });

beforeEach(() => {
  warn.mockClear();
  mkdirSync(directory, { recursive: true });
});

test("a janitor that cannot be started is reported, and nobody waits for its end", async () => {
  const end = takeDescriptors(0);
  onTestFinished(end);
  const janitor = start();
  await expect.poll(() => warn.mock.calls).toEqual([WARNING]);
  await janitor.finish();
  expect(warn.mock.calls).toEqual([WARNING]);
});

test("a janitor that is killed is reported", async () => {
  const before = new Set(childrenOf(process.pid));
  const janitor = start();
  const [child] = childrenOf(process.pid).filter((pid) => !before.has(pid));
  if (child === undefined) throw new Error("the janitor does not run");
  process.kill(child, "SIGKILL");
  await expect.poll(() => warn.mock.calls).toEqual([WARNING]);
  await janitor.finish();
  expect(warn.mock.calls).toEqual([WARNING]);
});

test("a janitor that ends with its service is not reported", async () => {
  await start().finish();
  expect(existsSync(directory)).toBe(false);
  expect(warn).not.toHaveBeenCalled();
});
