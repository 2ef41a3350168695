import { readdirSync, readlinkSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, test } from "vitest";
import { OrphanedPipes, type OrphanedPipesBounds } from "../../../src/engine/orphaned-pipes.ts";
import type { Engine, OutputSink } from "../../../src/engine/port.ts";
import { eventually } from "../../support/eventually.ts";
import { useBubblewrap } from "./bubblewrap/support.ts";
import { run, spec, useEngine } from "./docker/support.ts";

const NOBODY_LISTENS: OutputSink = { data() {}, end() {} };
const BOUNDS: OrphanedPipesBounds = { perSandbox: 3, inAll: 4 };

/** Whether a condition becomes true within a while. */
const comes = (look: () => boolean): Promise<boolean> =>
  eventually(look).then(
    () => true,
    () => false,
  );

const pipesDir = await mkdtemp(path.join(tmpdir(), "berth-left-"));
afterAll(() => rm(pipesDir, { recursive: true, force: true }));
const ENGINES: readonly { name: string; engine: Engine }[] = [
  { name: "docker", engine: useEngine({ pipesDir, orphanedPipes: BOUNDS }).engine },
  { name: "bubblewrap", engine: useBubblewrap({ orphanedPipes: BOUNDS }) },
];

/** The number of pipe ends that this process holds. */
function pipeEnds(): number {
  const targetOf = (fd: string): string => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return "";
    }
  };
  return readdirSync("/proc/self/fd").filter((fd) => /^pipe:|\/[0-9a-f]{24}[ioe]\b/.test(targetOf(fd)))
    .length;
}

/** The number of pipe ends, once those of ended processes are gone. */
async function settledPipeEnds(): Promise<number> {
  let ends = pipeEnds();
  await eventually(async () => {
    const before = ends;
    await sleep(500);
    ends = pipeEnds();
    return ends === before;
  });
  return ends;
}

describe.each(ENGINES)("on $name", ({ engine }) => {
  /** Runs a command that leaves something behind. */
  const leave = async (ref: string, command: string): Promise<void> => {
    const argv = ["/bin/sh", "-c", command];
    const spawned = await engine.spawn(ref, { argv, stdin: false }, NOBODY_LISTENS);
    expect(await spawned.wait()).toBe(0);
    spawned.close();
  };
  const count = async (ref: string, name: string): Promise<number> => {
    const search = `n=0; for f in /proc/[0-9]*/comm; do read -r x <$f && [ "$x" = ${name} ] && n=$((n+1)); done 2>/dev/null; echo $n`;
    return Number((await run(engine, ref, ["/bin/sh", "-c", search])).stdout);
  };

  /** A sandbox in which something has run, so that the engine has opened everything that it keeps open. */
  const used = async (): Promise<string> => {
    const { ref } = await engine.create(spec());
    await count(ref, "nothing");
    return ref;
  };
  const end = async (ref: string, name: string): Promise<void> => {
    const command = `for f in /proc/[0-9]*; do read -r x <$f/comm && [ "$x" = ${name} ] && kill -9 \${f#/proc/}; done 2>/dev/null; :`;
    expect((await run(engine, ref, ["/bin/sh", "-c", command])).exitCode).toBe(0);
  };

  test("pipes held by leftovers are bounded in number, and a dropped writer blocks", async () => {
    const one = await used();
    const other = await used();
    const before = await settledPipeEnds();
    for (let i = 0; i < 6; i++) await leave(one, "yes & exit 0");
    expect(await comes(() => engine.figures().orphanedPipes === BOUNDS.perSandbox)).toBe(true);
    expect(await comes(() => pipeEnds() - before <= BOUNDS.perSandbox * 2)).toBe(true);
    for (let i = 0; i < 2; i++) await leave(other, "yes & exit 0");
    // There are never more than the limit: new ones displace old ones.
    await sleep(1_500);
    expect(await comes(() => engine.figures().orphanedPipes === BOUNDS.inAll)).toBe(true);
    expect(await comes(() => pipeEnds() - before <= BOUNDS.inAll * 2)).toBe(true);
    await expect.poll(() => count(one, "yes")).toBe(6);
    await expect.poll(() => count(other, "yes")).toBe(2);
    for (const ref of [one, other]) await end(ref, "yes");
    expect(await comes(() => engine.figures().orphanedPipes === 0 && pipeEnds() <= before)).toBe(true);
    for (const ref of [one, other]) await engine.remove(ref);
  });

  test("the stdin of an ended process is closed, although something holds it and does not read", async () => {
    const ref = await used();
    const before = await settledPipeEnds();
    const argv = ["/bin/sh", "-c", "exec 3<&0; sleep 1000 <&3 >/dev/null 2>&1 & exit 0"];
    const spawned = await engine.spawn(ref, { argv, stdin: true }, NOBODY_LISTENS);
    const write = spawned.writeStdin(Buffer.alloc(2 << 20)).catch(() => {});
    expect(await spawned.wait()).toBe(0);
    spawned.close();
    await write;
    expect(await comes(() => pipeEnds() <= before)).toBe(true);
    await expect.poll(() => count(ref, "sleep")).toBe(1);
    await engine.remove(ref);
  });
});

describe("of leftover pipes", () => {
  /** Pipes that record when they were released. */
  const pipesOf = (name: string, gone: string[]) => {
    const silent = Promise.withResolvers<void>();
    return {
      silent: silent.promise,
      destroy: () => {
        gone.push(name);
        silent.resolve();
      },
    };
  };

  test("the oldest of the sandbox with the most are dropped, and not those that end soon", async () => {
    const left = new OrphanedPipes({ perSandbox: 3, inAll: 4 });
    const gone: string[] = [];
    const keep = (sandbox: string, name: string) => left.of(sandbox).keep(pipesOf(name, gone));
    const soon = pipesOf("soon", gone);
    for (let i = 0; i < 10; i++) left.of("a").keep(soon);
    for (const name of ["a1", "a2", "a3"]) keep("a", name);
    soon.destroy();
    gone.pop();
    for (const name of ["b1", "b2", "c1"]) keep(name.charAt(0), name);
    await eventually(() => gone.length === 2);
    expect(gone).toEqual(["a1", "a2"]);
    expect(left.count).toBe(4);
    for (const name of ["b3", "b4"]) keep("b", name);
    await eventually(() => gone.length === 4);
    expect(gone.slice(2)).toEqual(["b1", "b2"]);
    expect(left.count).toBe(4);
  });
});
