import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { OutsideControl, ProcessName, SpawnedProcess } from "../../../src/engine/port.ts";
import { openShell, run } from "../../integration/engine/docker/support.ts";
import { eventually } from "../../support/eventually.ts";
import { takeDescriptors } from "../../support/no-descriptors.ts";
import { followTurns } from "../../support/turns.ts";
import { type Subject, testUnless } from "./subject.ts";

/** Reports its pid and start time, keeps its pipes as 3 and 4, and then runs what it reads. */
const LEADER = `exec 3>&1 4>&2
read -r x </proc/$$/stat; set -- "$1" \${x##*) }; printf '%s:%s;' $$ \${21}
eval "$1"`;

/**
 * Keeps starting as many processes as the limit allows, and ends none. A shell would exit when it cannot start another.
 */
const FORK_BOMB = `exec perl -e '$SIG{TERM} = "IGNORE"; while (1) { defined fork or select(undef, undef, undef, 0.001); }'`;

/** Tests of {@link OutsideControl} for every engine that runs on the service's machine. */
export function outsideSuite(subject: Subject): void {
  let ref = "";
  let outside: OutsideControl;
  let opened: Awaited<ReturnType<typeof openShell>>;
  const started: SpawnedProcess[] = [];
  const leaders: ProcessName[] = [];

  beforeAll(async () => {
    ({ ref } = await subject.engine.create(subject.spec()));
    const found = await subject.engine.outside(ref);
    if (found === undefined) throw new Error("the sandbox's processes are not seen from outside");
    outside = found;
    opened = await openShell(subject.engine, ref);
  });
  afterAll(async () => {
    opened.close();
    await subject.engine.remove(ref);
  });
  afterEach(async () => {
    for (const leader of leaders.splice(0)) await kill(leader);
    for (const spawned of started.splice(0)) spawned.close();
    await output("rm -f /tmp/f /tmp/fifo /tmp/ready /tmp/signaled");
  });

  const output = async (script: string): Promise<string> =>
    (await opened.shell.run(script)).stdout.toString();

  /** Starts a session leader that runs a script. */
  async function lead(script: string): Promise<ProcessName> {
    let said = "";
    const spawned = await subject.engine.spawn(
      ref,
      { argv: ["/bin/sh", "-c", LEADER, "sh", script], stdin: true },
      { data: (_, chunk) => (said += chunk), end() {} },
    );
    started.push(spawned);
    await eventually(() => said.includes(";"));
    const [pid, startTime = ""] = said.slice(0, said.indexOf(";")).split(":");
    const leader = { pid: Number(pid), startTime };
    leaders.push(leader);
    return leader;
  }

  const kill = async (leader: ProcessName): Promise<void> => (await outside.terminateTree(leader)).kill();

  /** The number of processes of the sandbox with this text in their arguments. */
  const count = async (marker: string): Promise<number> => {
    const script = `n=0; for p in /proc/[0-9]*; do case $(tr '\\0' ' ' <$p/cmdline) in "${marker} ") n=$((n+1));; esac; done; echo $n`;
    return Number(await output(script));
  };

  test("a tree is a session, its descendants and the holders of its pipes", async () => {
    const other = await lead("sleep 6001");
    const leader = await lead(
      "sleep 6002 & setsid sleep 6003 & setsid sh -c 'sleep 6004; :' >/dev/null 2>&1 3>&- 4>&- & (setsid sleep 6005 >/dev/null 2>&1 3>&- 4>&- &); wait",
    );
    for (const time of [6001, 6002, 6003, 6004, 6005])
      await eventually(async () => (await count(`sleep ${time}`)) === 1);
    // The leader, three `sleep` and the shell around one of them. The `sleep` that has left its parent and its pipes
    // does not count, as soon as that parent has ended.
    await expect.poll(async () => (await outside.tree(leader)).length).toBe(5);
    expect(await outside.tree(leader)).toContainEqual(leader);
    await kill(leader);
    expect(await outside.tree(leader)).toEqual([]);
    expect(await count("sleep 6005")).toBe(1);
    expect(await count("sleep 6001")).toBe(1);
    expect(await outside.tree(other)).toHaveLength(2);
  });

  test("processes that have lost their leader still belong to its tree", async () => {
    const leader = await lead("trap '' TERM; sleep 6011 & sleep 6012 & kill -9 $$");
    for (const time of [6011, 6012]) await eventually(async () => (await count(`sleep ${time}`)) === 1);
    await expect.poll(() => outside.stateOf(leader)).toBeUndefined();
    expect((await outside.tree(leader)).length).toBe(2);
    await kill(leader);
    expect(await count("sleep 6011")).toBe(0);
  });

  test("a tree is found and ends although the service may open no more files", async () => {
    const leader = await lead("trap '' TERM; sleep 6013 & sleep 6014; :");
    for (const time of [6013, 6014]) await eventually(async () => (await count(`sleep ${time}`)) === 1);
    const end = takeDescriptors(0);
    try {
      expect(await outside.tree(leader)).toHaveLength(3);
      await kill(leader);
    } finally {
      end();
    }
    expect(await outside.tree(leader)).toEqual([]);
    for (const time of [6013, 6014]) expect(await count(`sleep ${time}`)).toBe(0);
  });

  test("a later process with the same pid is not mistaken for the leader", async () => {
    const leader = await lead("sleep 6021");
    const earlier = { ...leader, startTime: String(Number(leader.startTime) - 1) };
    expect(await outside.signalGroup(earlier, 0)).toBe(false);
    expect(await outside.tree(earlier)).toEqual([]);
    expect([await outside.stateOf(earlier), await outside.stateOf(leader)]).toEqual([undefined, "running"]);
    expect(await outside.signalGroup(leader, 0)).toBe(true);
  });

  test("the pid of process 1, or an unknown pid, signals no process", async () => {
    for (const pid of [1, 0, -1, Number.NaN]) {
      expect(await outside.tree({ pid, startTime: "" })).toEqual([]);
      expect(await outside.signalGroup({ pid, startTime: "" }, 9)).toBe(false);
    }
    expect((await run(subject.engine, ref, ["true"])).exitCode).toBe(0);
  });

  test("a signal reaches a process group", async () => {
    const leader = await lead(
      "trap 'echo >/tmp/signaled' USR1; echo >/tmp/ready; while :; do sleep 0.05; done",
    );
    await eventually(async () => (await output("ls /tmp")).includes("ready"));
    expect(await outside.signalGroup(leader, 10)).toBe(true);
    await eventually(async () => (await output("ls /tmp")).includes("signaled"));
    await kill(leader);
    expect(await outside.signalGroup(leader, 0)).toBe(false);
  });

  test("a program at a terminal that is stopped and continued goes on", async () => {
    let said = "";
    const script = `read -r x </proc/$$/stat; set -- \${x##*) }; printf '%s:%s;' $$ \${20}; while read -r x; do echo "<$x>"; done`;
    const spawned = await subject.engine.spawn(
      ref,
      { argv: ["/bin/sh", "-c", script], stdin: true, terminal: { columns: 80, rows: 24 } },
      { data: (_, chunk) => (said += chunk), end() {} },
    );
    started.push(spawned);
    await eventually(() => said.includes(";"));
    const [pid, startTime = ""] = said.slice(0, said.indexOf(";")).split(":");
    const leader = { pid: Number(pid), startTime };
    leaders.push(leader);
    expect(await outside.signalGroup(leader, 19)).toBe(true);
    await expect.poll(() => outside.stateOf(leader)).toBe("stopped");
    expect(await outside.signalGroup(leader, 18)).toBe(true);
    await spawned.writeStdin(Buffer.from("on\n"));
    await expect.poll(() => said, { timeout: 20_000 }).toContain("<on>");
  });

  describe("a file that a process has open as 9", () => {
    const { signal } = new AbortController();

    /** Starts a leader whose shell line has opened a file as descriptor 9. */
    async function holding(line: string): Promise<ProcessName> {
      const leader = await lead(`${line}; sleep 6041`);
      await eventually(async () => (await count("sleep 6041")) === 1);
      return leader;
    }

    test("is read without the sandbox's help", async () => {
      const file = await outside.openFile(await holding("echo content >/tmp/f; exec 9</tmp/f"), 9);
      expect((await file?.read(0, 100, signal))?.toString()).toBe("content\n");
      expect((await file?.read(4, 3, signal))?.toString()).toBe("ent");
      expect((await file?.read(8, 100, signal))?.length).toBe(0);
      await file?.close();
    });

    test("is found if a child of the leader has it, while the leader exists", async () => {
      const leader = await lead("echo content >/tmp/f; (exec 9</tmp/f; exec sleep 6042)");
      await eventually(async () => (await count("sleep 6042")) === 1);
      const file = await outside.openFile(leader, 9);
      expect((await file?.read(0, 100, signal))?.toString()).toBe("content\n");
      await file?.close();
      expect(await outside.openFile(leader, 8)).toBeUndefined();
      await kill(leader);
      expect(await outside.openFile(leader, 9)).toBeUndefined();
    });

    test("kills only the process that it was found in, and its descendants", async () => {
      const line = "trap '' TERM; sleep 6043 & exec 9</tmp/f; (sleep 6044; :) & sleep 6045; :";
      const leader = await lead(`echo content >/tmp/f; sleep 6046 & sh -c "${line}"; sleep 6047`);
      await eventually(async () => (await count("sleep 6045")) === 1);
      const file = await outside.openFile(leader, 9);
      expect(await file?.killHolder()).toBe(true);
      await eventually(async () => (await count("sleep 6047")) === 1);
      // A killed process is there until it is scheduled.
      const left = async () => {
        const counts: number[] = [];
        for (const time of [6043, 6044, 6045, 6046]) counts.push(await count(`sleep ${time}`));
        return counts;
      };
      await expect.poll(left).toEqual([0, 0, 0, 1]);
      expect(await file?.killHolder()).toBe(false);
      expect(await outside.stateOf(leader)).toBe("running");
      expect((await file?.read(0, 100, signal))?.toString()).toBe("content\n");
      await file?.close();
    });

    test("kills also what another thread of the process started", async () => {
      const program = `import os, subprocess, threading, time
os.dup2(os.open("/tmp/f", os.O_RDONLY), 9)
threading.Thread(target=lambda: subprocess.run(["sleep", "6048"])).start()
time.sleep(6049)`;
      const leader = await lead(`echo content >/tmp/f; python3 -c '${program}'; sleep 6047`);
      await eventually(async () => (await count("sleep 6048")) === 1);
      const file = await outside.openFile(leader, 9);
      expect(await file?.killHolder()).toBe(true);
      await eventually(async () => (await count("sleep 6047")) === 1);
      await expect.poll(() => count("sleep 6048")).toBe(0);
      await file?.close();
    });

    test.each([
      ["the process may only write it", "exec 9>/tmp/f"],
      [
        "the process has its name alone",
        `perl -e 'require POSIX; sysopen(F, "/etc/passwd", 010000000) or die; POSIX::dup2(fileno(F), 9) or die; sleep 6041' & :`,
      ],
      ["it is a FIFO", "mkfifo /tmp/fifo; exec 9<>/tmp/fifo"],
      ["it is a device", "exec 9<>/dev/null"],
      ["it is a directory", "exec 9</tmp"],
      ["it is the kernel's", "exec 9</proc/kallsyms"],
      ["there is none", ":"],
    ] as const)("is not opened where %s", async (_, line) => {
      expect(await outside.openFile(await holding(line), 9)).toBeUndefined();
    });
  });

  describe("a tree that defends itself", () => {
    test("a fork bomb at the limit of processes", async () => {
      const leader = await lead(FORK_BOMB);
      await eventually(async () => (await outside.obstacle(60_000)) === "no-processes");
      await kill(leader);
      expect(await outside.tree(leader)).toEqual([]);
      expect((await run(subject.engine, ref, ["true"])).exitCode).toBe(0);
    });

    test("one that is stopped", async () => {
      const leader = await lead("sleep 6031 & kill -STOP $! $$; wait");
      await eventually(async () => (await outside.stateOf(leader)) === "stopped");
      expect(await outside.obstacle(60_000)).toBe("stopped");
      await kill(leader);
      expect(await count("sleep 6031")).toBe(0);
    });
  });

  testUnless("pause", subject, "a tree of a paused sandbox ends and the sandbox stays paused", async () => {
    const leader = await lead("trap '' TERM; while :; do echo >/tmp/lives; sleep 0.02; done");
    await subject.engine.pause(ref);
    await kill(leader);
    const [{ state } = { state: "" }] = (await subject.engine.list()).filter((one) => one.ref === ref);
    expect(state).toBe("paused");
    await subject.engine.resume(ref);
    await eventually(async () => (await outside.tree(leader)).length === 0);
  });

  test("many processes do not block the event loop", async () => {
    const resources = { memoryBytes: 1 << 30, cpuMillis: 1000, pidsLimit: 1024, diskBytes: undefined };
    // Raise the limit of processes, if there is one.
    if (subject.pidsLimit ?? true) await subject.engine.setResources(ref, resources);
    const pauses: number[] = [];
    for (let round = 0; round < 3; round++) {
      const leader = await lead("i=0; while [ $i -lt 400 ]; do sleep 6041 & i=$((i+1)); done; wait");
      await eventually(async () => (await outside.tree(leader)).length === 401);
      pauses.push(await longestPause(() => kill(leader)));
      expect(await outside.tree(leader)).toEqual([]);
    }
    // Garbage collection makes some pauses longer.
    expect(Math.min(...pauses)).toBeLessThan(100);
  });
}

/** The longest time in milliseconds for which this thread blocked the event loop meanwhile. */
async function longestPause(act: () => Promise<void>): Promise<number> {
  const endOfTurns = followTurns();
  await act();
  return Math.max(...endOfTurns());
}
