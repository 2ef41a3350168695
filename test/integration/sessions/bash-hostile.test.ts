import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { ENGINES } from "../../support/engines.ts";
import { scaled, shared } from "../../support/scale.ts";
import { type BashData, Worker } from "../../support/worker.ts";

/** Timeout of a command that should end by itself: no case may hang, whatever it does to its shell. */
const LIMIT_SECONDS = 20;
/** Timeout of a command that never ends. */
const ENDLESS_SECONDS = 0.3;
const FLOOD_BYTES = scaled(100 * 1024 * 1024, 8 * 1024 * 1024);
const KEPT_BYTES = 256 * 1024;

type Case = readonly [name: string, command: string, expected: Partial<Record<keyof BashData, unknown>>];

const CASES: readonly Case[] = [
  ["an unterminated quote", 'echo "open', { exit_code: 2, stdout: "" }],
  ["an unterminated heredoc", "cat <<END\ntext", { exit_code: 0, stdout: "text\n" }],
  [
    "a heredoc with the words of the protocol",
    "cat <<'X'\nEOF\n$(exit)\nX\necho after",
    { stdout: "EOF\n$(exit)\nafter\n" },
  ],
  ["an unterminated group", "{ echo x", { exit_code: 2 }],
  ["a stray parenthesis", "echo a; )", { exit_code: 2 }],
  ["exit 3", "echo out; exit 3", { stdout: "out\n", exit_code: 3, session_lost: true }],
  ["kill -9 $$", "echo out; kill -9 $$", { stdout: "out\n", exit_code: 137, session_lost: true }],
  ["kill -STOP $$", "kill -STOP $$", { timed_out: true, session_lost: true }],
  ["exec sleep", "exec sleep 1000", { timed_out: true, session_lost: true }],
  ["exec true", "exec true", { exit_code: 0, session_lost: true }],
  ["set -e; false", "set -e; false; echo on", { stdout: "", exit_code: 1, session_lost: true }],
  [
    "set -u and a variable that is not there",
    "set -u; echo $nope; echo on",
    { exit_code: 1, session_lost: false },
  ],
  ["set -n", "set -n; echo x", { exit_code: 0 }],
  ["set -x", "set -x; echo x; set +x", { stdout: "x\n", stderr: expect.stringContaining("echo x") }],
  [
    "break, continue and return outside of anything",
    "break; continue; return 7",
    { exit_code: 7, session_lost: false },
  ],
  ["a division by zero", "echo $((1 / 0))", { exit_code: 1, session_lost: false }],
  ["a trap for EXIT", "trap 'echo bye' EXIT; exit 5", { stdout: "bye\n", exit_code: 5, session_lost: true }],
  ["a trap for DEBUG", "trap 'echo dbg' DEBUG; echo x; trap - DEBUG", { stdout: "dbg\nx\ndbg\n" }],
  ["a trap for ERR", "trap 'echo err' ERR; false; trap - ERR", { stdout: "err\n" }],
  ["closed stdout and stderr", "exec 1>&- 2>&-; echo x", { stdout: "", exit_code: 1 }],
  ["closed descriptors, all of them", 'for i in $(seq 3 255); do eval "exec $i>&-"; done; echo x', {}],
  ["cat and read at the end of stdin", "cat; read x; echo $?; cat -", { stdout: "1\n", exit_code: 0 }],
  ["a background job", "sleep 1000 & echo started", { stdout: "started\n", timed_out: false }],
  [
    "a command that ignores SIGINT and SIGTERM",
    "(trap '' INT TERM; sh -c 'trap \"\" INT TERM; sleep 1000')",
    { timed_out: true },
  ],
  ["a loop of builtins", "while :; do :; done", { timed_out: true, session_lost: false }],
  ["an alias", "alias ll='echo aliased'\nll", { stdout: "aliased\n" }],
  ["a changed IFS", "IFS=0123456789/; echo x; exit", { stdout: "x\n", exit_code: 0 }],
  ["shell options", "shopt -s failglob nullglob dotglob extglob; set -f; echo *; exit", { stdout: "*\n" }],
  [
    "readonly variables of the shell's own",
    "readonly PWD IFS PS1 PS2 PROMPT_COMMAND OLDPWD; cd /tmp; echo $?; exit",
    {},
  ],
  [
    "PROMPT_COMMAND",
    "PROMPT_COMMAND='echo prompt; echo prompt >&2'; PS1='$ '; echo x",
    { stdout: "x\n", stderr: "" },
  ],
  ["a posix shell", "set -o posix; echo x; exit", { stdout: "x\n" }],
  ["job control", "set -m; sleep 0.1 & wait; echo x", { stdout: "x\n" }],
  [
    "exported functions and strange names",
    "f-g() { echo hi; }; export -f f-g; bash -c f-g",
    { stdout: "hi\n" },
  ],
  [
    "carriage returns and escapes",
    "printf 'a\\r\\n\\033[31mred\\033[0m'",
    { stdout: "a\r\n\u001b[31mred\u001b[0m" },
  ],
  [
    "a builtin named builtin that is off",
    "enable -n builtin; (exit 5)",
    { exit_code: 5, session_lost: true },
  ],
  ["printf off", "enable -n printf; (exit 3)", { exit_code: 3, session_lost: true }],
  ["the dot off", "enable -n .; echo x", { stdout: "x\n", session_lost: false }],
  ["pwd off", "enable -n pwd; cd /tmp; echo x; enable pwd", { stdout: "x\n", cwd: "/tmp" }],
  ["a false PWD", "cd /tmp; PWD=/; echo x", { stdout: "x\n", cwd: "/tmp" }],
  [
    "no PWD",
    "set -u; cd /usr; unset PWD; echo x; set +u; cd /workspace",
    { stdout: "x\n", cwd: "/workspace" },
  ],
  ["a restricted shell", "set -r; (exit 4)", { exit_code: 4, session_lost: true }],
  ["an alias named builtin", "alias builtin='echo x'; (exit 3)", { exit_code: 3, session_lost: false }],
  ["nothing", "", { stdout: "", exit_code: 0 }],
  ["a comment", "# nothing", { stdout: "", exit_code: 0 }],
  ["a very long line", `: ${"x".repeat(200_000)}; echo end`, { stdout: "end\n" }],
];

const FUNCTIONS = [
  "builtin",
  "printf",
  "read",
  "eval",
  "exit",
  "echo",
  "cd",
  "pwd",
  "test",
  "[",
  "exec",
  ".",
  "return",
  "trap",
  "command",
  "unset",
];

describe.each(ENGINES)("on $name", ({ name, settings }) => {
  const here = ENGINES.findIndex((engine) => engine.name === name);
  const app = useApp(settings);
  let worker: Worker;
  let serial = 0;

  beforeAll(async () => {
    worker = new Worker(app.client, "hostile");
    await worker.create("bash");
  });

  const run = (command: string, seconds = LIMIT_SECONDS): Promise<BashData> =>
    worker.bash(command, { seconds });

  /** The next call works, and its output contains nothing of the case. */
  async function nextIsClean(): Promise<void> {
    const word = `clean-${++serial}`;
    const next = await run(`echo ${word}`);
    expect(next).toMatchObject({ stdout: `${word}\n`, stderr: "", exit_code: 0, timed_out: false });
  }

  test.each(shared(CASES, here, ENGINES.length))("%s", async (_, command, expected) => {
    const seconds = expected.timed_out === true ? ENDLESS_SECONDS : LIMIT_SECONDS;
    const wanted = { timed_out: false, ...expected };
    // On a busy machine, an endless command may be stopped before it gets to what it does.
    if (expected.timed_out === true) await expect.poll(() => run(command, seconds)).toMatchObject(wanted);
    else expect(await run(command, seconds)).toMatchObject(wanted);
    await nextIsClean();
  });

  test.concurrent.each(shared(FUNCTIONS, here, ENGINES.length))("a function named %s", async (word) => {
    const own = new Worker(app.client, word);
    await own.create("bash", undefined, { sandbox_id: (await worker.list())[0]?.sandbox_id });
    // Its end is printed with `builtin`. Without that, only the timeout ends it.
    const lastsOn = word === "builtin";
    const defined = await own.bash(`function ${word} { :; }`, {
      seconds: lastsOn ? ENDLESS_SECONDS : LIMIT_SECONDS,
    });
    const next = await own.bash("true; x=1", { seconds: LIMIT_SECONDS });
    expect([defined.timed_out, next.timed_out]).toEqual([lastsOn, false]);
    await own.destroy();
  });

  test("a command that the shell has no disk space for is not run, and stderr says why", async () => {
    const own = new Worker(app.client, "full");
    await own.create("bash", undefined, { sandbox_id: (await worker.list())[0]?.sandbox_id });
    // A limit on the size of files stands for a full disk.
    await own.bash("trap '' XFSZ; ulimit -f 16", { seconds: LIMIT_SECONDS });
    // The shell writes a command of more than 64 KiB to a file.
    expect(await own.bash(`echo ran # ${"x".repeat(100_000)}`, { seconds: LIMIT_SECONDS })).toMatchObject({
      exit_code: 1,
      stdout: "",
      stderr: expect.stringContaining("here-document"),
    });
    await own.destroy();
  });

  test("a daemon does not delay the call that starts it, and its late output goes to no other", async () => {
    const daemon = "setsid sh -c 'until [ -e go ]; do sleep 0.05; done; echo late; : >gone' & disown";
    expect(await run(`rm -f go gone; ${daemon}; echo x`)).toMatchObject({ stdout: "x\n", timed_out: false });
    expect(await run(": >go; until [ -e gone ]; do sleep 0.05; done; echo y")).toMatchObject({
      stdout: "y\n",
    });
    await nextIsClean();
  });

  test("output that imitates the shell's own reports is plain data", async () => {
    const { stdout } = await run(
      "set; declare -p; declare -f; env; alias; history; cat /proc/$$/cmdline | tr '\\0' ' '",
    );
    const words = new Set(stdout.match(/\b[0-9a-f]{32}\b/g));
    expect(words.size).toBe(0);
    const fake = "0123456789abcdef".repeat(2);
    expect((await run(`printf '${fake}E0;${fake}P;${fake}S1;'; echo more`)).stdout).toBe(
      `${fake}E0;${fake}P;${fake}S1;more\n`,
    );
  });

  test("what a background job writes at the end of a command is not taken for the directory", async () => {
    const writes = "(echo here >/tmp/writes; while :; do echo noise; done) &";
    for (let round = 0; round < 10; round++) {
      const { cwd } = await run(
        `cd /tmp; rm -f writes; ${writes} until [ -e writes ]; do sleep 0.01; done; disown $!; job=$!`,
      );
      expect(cwd).toBe("/tmp");
      await run("kill $job; cd /workspace");
    }
    await nextIsClean();
  });

  test("an interrupted end leaves none of the shell's reports in the output", async () => {
    const trapped = await run("trap 'sleep 1000' DEBUG; echo x", ENDLESS_SECONDS);
    expect(trapped.timed_out).toBe(true);
    expect(trapped.stdout).not.toContain("/proc/");
    await nextIsClean();
  });

  test("a new shell has no history", async () => {
    await run("exit");
    expect((await run("history")).stdout).toBe("");
  });

  test("binary output arrives byte for byte, and a flood is cut to its head and tail", async () => {
    const bytes = await worker.execute<BashData>("bash:run", {
      command: "printf '\\0\\377\\376ok'; printf '\\303' >&2",
    });
    expect(bytes.attachments.map(({ name, content }) => [name, [...content]])).toEqual([
      ["stdout", [0, 255, 254, 111, 107]],
      ["stderr", [195]],
    ]);
    const flood = await run(`head -c ${FLOOD_BYTES} /dev/zero | tr '\\0' x; echo end`, 60);
    expect(flood).toMatchObject({
      truncated: true,
      exit_code: 0,
      stdout_gap: { from: KEPT_BYTES, to: FLOOD_BYTES + "end\n".length - KEPT_BYTES },
    });
    expect(flood.stdout.length).toBe(2 * KEPT_BYTES);
    expect(flood.stdout.endsWith("xend\n")).toBe(true);
    const endless = await run("yes", 1);
    expect(endless).toMatchObject({ truncated: true, timed_out: true, session_lost: false });
    await nextIsClean();
  });

  test("a caller that leaves ends its command, and the shell stays", async () => {
    await run("kept=yes");
    const leaving = new AbortController();
    const left = worker.execute(
      "bash:run",
      { command: "touch left; sleep 2000" },
      {},
      { signal: leaving.signal },
    );
    left.catch(() => {});
    const other = new Worker(app.client, "observer");
    const session = (await worker.list())[0];
    await other.create("bash", undefined, { sandbox_id: session?.sandbox_id });
    await other.bash("while [ ! -e left ]; do sleep 0.05; done", { seconds: 20 });
    leaving.abort();
    await expect(left).rejects.toThrow();
    expect((await run("echo $kept; pgrep -fx 'sleep 2000'")).stdout).toBe("yes\n");
    await other.destroy();
  });
});
