import { expect, test } from "vitest";
import type { ProcessManager } from "../../../../../src/processes/manager.ts";
import type { SessionHost, ToolCall } from "../../../../../src/sessions/backend.ts";
import { Search } from "../../../../../src/sessions/types/files/search.ts";
import { HeldMemory } from "../../../../../src/sessions/types/held-memory.ts";

/** A search in a sandbox whose `find` and `grep` print this. */
function searchOf(printed: string) {
  const held: [string, number][] = [];
  const memory = new HeldMemory();
  memory.hold = (owner, _drop, bytes) => void held.push([owner, bytes]);
  async function* exec() {
    yield { type: "output", stream: "stdout", data: Buffer.from(printed) };
    yield { type: "exited", status: { exitCode: 0 } };
  }
  const host = { sandbox: { owner: "owner" }, name: {} } as unknown as SessionHost;
  return { held, search: new Search({ exec } as unknown as ProcessManager, host, () => false, memory) };
}

const call = {
  signal: new AbortController().signal,
  timeout: new AbortController().signal,
} as unknown as ToolCall;
const place = { path: "/work", named: "/work" };

test("what the pattern of a glob remembers is held for the sandbox's owner, until the search ends", async () => {
  const { held, search } = searchOf("/work/a.ts\0/work/b.js\0");
  expect(await search.glob(place, "*.ts", call)).toEqual({ found: ["/work/a.ts"], truncated: false });
  expect(held[0]).toEqual(["owner", expect.any(Number)]);
  expect(held.at(-1)).toEqual(["owner", 0]);
});

test("what the glob of a grep remembers is held for the sandbox's owner, until the search ends", async () => {
  const { held, search } = searchOf("/work/a.ts\x001:x\n/work/b.js\x001:x\n");
  expect(await search.grep(place, "x", "*.ts", call)).toMatchObject({ found: [{ path: "/work/a.ts" }] });
  expect(held[0]).toEqual(["owner", expect.any(Number)]);
  expect(held.at(-1)).toEqual(["owner", 0]);
});
