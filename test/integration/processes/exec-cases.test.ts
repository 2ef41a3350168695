import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { pidsOf, processesOf } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { scaled } from "../../support/scale.ts";
import { SHELL_IMAGES } from "../../support/shell-images.ts";
import { withTimeEnough } from "../../support/time-enough.ts";
import { seconds } from "../../support/wire.ts";

const MIB = 1024 * 1024;

/** Hostile, broken and odd commands, on every kind of /bin/sh, in lanes and outside of them. */
describe.each(SHELL_IMAGES)("commands under %s", (shell, image) => {
  const service = useApp();
  let sandboxId = "";

  beforeAll(async () => {
    sandboxId = (await service.client.createSandbox({ image })).sandbox_id;
  });

  const run = (line: string, more: Readonly<Record<string, unknown>> = {}) =>
    service.client.exec(sandboxId, line, more).result;
  const running = async (): Promise<string[]> => processesOf(service.instance, sandboxId);

  /** The next command must work as if nothing had happened. */
  const expectUnharmed = async (): Promise<void> => {
    const { stdout, stderr, exit } = await run("printf next; exit 7");
    expect([stdout.toString(), stderr.toString(), exit.exit_code]).toEqual(["next", "", 7]);
  };

  test.each([
    ["exit 3", 3],
    ["set -e; false; echo not reached", 1],
    ["(exit 200)", 200],
    ["false | true", 0],
    ["printf() { echo mine; }; printf x >/dev/null; exit 4", 4],
    ["exec sh -c 'exit 9'", 9],
    ["trap 'exit 11' EXIT; true", 11],
    ["cd /; umask 077; set -f; exec 1>&- 2>&-; exit 12", 12],
  ])("%s ends with code %i", async (line, code) => {
    const { exit } = await run(line);
    expect(exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: code, signal: 0 });
    await expectUnharmed();
  });

  test.each([
    ["an unterminated quote", "echo 'oops"],
    ["an unterminated here document", "cat <<EOF\nline"],
    ["a stray parenthesis", "echo ) ("],
    ["an unfinished if", "if true; then"],
  ])("%s is the command's own error", async (_name, line) => {
    const { exit } = await run(line);
    expect(exit.cause).toBe("EXIT_CAUSE_EXITED");
    await expectUnharmed();
  });

  test.each([
    ["kill -9 $$", 9],
    ["kill -TERM $$", 15],
    ["kill -9 0", 9],
  ])("%s is reported as signal %i", async (line, signal) => {
    const { exit } = await run(line);
    expect(exit).toMatchObject({ cause: "EXIT_CAUSE_SIGNALED", signal, exit_code: 128 + signal });
    await expectUnharmed();
  });

  test("exec sleep: a program that replaces the shell ends as the command", async () => {
    const { stdout, exit } = await run("echo on; exec sleep 0.1");
    expect([stdout.toString(), exit.cause, exit.exit_code]).toEqual(["on\n", "EXIT_CAUSE_EXITED", 0]);
    await expectUnharmed();
    const late = await run("exec sleep 4730", { timeout: { nanos: 300_000_000 } });
    expect(late.exit).toMatchObject({ cause: "EXIT_CAUSE_TIMED_OUT", signal: 15 });
    expect(await running()).not.toContainEqual(expect.stringContaining("4730"));
    const execution = service.client.exec(sandboxId, "echo on; exec sleep 4731");
    await execution.until("on");
    const process_id = await execution.processId;
    await service.client.call("ProcessService/SignalProcess", { process_id, signal: 1 });
    expect((await execution.result).exit).toMatchObject({ cause: "EXIT_CAUSE_SIGNALED", signal: 1 });
    await expectUnharmed();
  });

  test("a command that kills the shell around it does not hang, and loses nothing but itself", async () => {
    const { exit } = await run("kill -9 $PPID; sleep 30");
    expect(exit.cause).toBe("EXIT_CAUSE_SIGNALED");
    await expectUnharmed();
  });

  test("a command that stops the shell around it ends by its timeout", async () => {
    const { exit } = await run("kill -STOP $PPID; sleep 30", { timeout: { nanos: 300_000_000 } });
    expect(exit.cause).toBe("EXIT_CAUSE_TIMED_OUT");
    await expectUnharmed();
  });

  test("a background child does not delay the end, and its late output goes to no other command", async () => {
    // The child waits until the command has ended.
    const { stdout, exit } = await run(
      "(until [ -e /tmp/go ]; do sleep 0.05; done; echo late; echo late >&2; : >/tmp/late) & echo now",
    );
    expect([stdout.toString(), exit.exit_code]).toEqual(["now\n", 0]);
    await expectUnharmed();
    await run(": >/tmp/go");
    await eventually(async () => {
      await expectUnharmed();
      return (await run("[ -e /tmp/late ]")).exit.exit_code === 0;
    });
    for (let i = 0; i < 5; i++) await expectUnharmed();
  });

  test("output that imitates markers is output", async () => {
    const imitation = "0123456789abcdef0123456789abcdefE0;0123456789abcdef0123456789abcdefC;\nE0;C;R1;\n";
    const { stdout, stderr } = await run('printf %s "$TEXT"; printf %s "$TEXT" >&2', {
      env: { TEXT: imitation },
    });
    expect([stdout.toString(), stderr.toString()]).toEqual([imitation, imitation]);
    await expectUnharmed();
  });

  test("binary, terminal sequences and split UTF-8 arrive byte for byte, as they were written", async () => {
    const bytes = Buffer.from(Array.from({ length: 512 }, (_, i) => (i * 31 + (i >> 8)) % 256));
    // Colours, cursor, title, alternate screen, a query to the terminal, a carriage return, a bell.
    const ansi =
      "\x1b[1;31mred\x1b[0m\x1b[2J\x1b[H\x1b]0;title\x07\x1b[?1049h\x1b[6n50%\r100%\x1b[?1049l\x1b[?25h\x07\b\n";
    const octal = (data: Buffer): string =>
      [...data].map((byte) => `\\${byte.toString(8).padStart(3, "0")}`).join("");
    const wanted = Buffer.concat([bytes, Buffer.from(ansi), Buffer.from("é€😀")]);
    // Pauses cut characters in the middle.
    const line = `printf '${octal(bytes)}'; printf '${octal(Buffer.from(ansi))}'
      printf '\\303'; sleep 0.05; printf '\\251\\342\\202'; sleep 0.05; printf '\\254\\360\\237'; sleep 0.05; printf '\\230\\200'`;
    const { stdout, stderr, exit } = await run(`{ ${line}; }; { ${line}; } >&2`);
    expect(stdout).toEqual(wanted);
    expect(stderr).toEqual(wanted);
    expect(exit.exit_code).toBe(0);
    const { stdout: shown } = await run(`stty raw; ${line}`, { terminal: { columns: 80, rows: 24 } });
    expect(shown).toEqual(wanted);
    await expectUnharmed();
  });

  test("the nonce is nowhere a command can read it", async () => {
    const line =
      "cat /proc/$PPID/cmdline /proc/$PPID/environ /proc/self/environ | tr '\\000' '\\n'; set; ls -l /proc/self/fd";
    const { stdout } = await run(line);
    expect(stdout.toString()).not.toMatch(/[0-9a-f]{32}/);
  });

  test("stdin is empty: cat and read see its end", async () => {
    const { stdout, exit } = await run("cat; read x || echo none");
    expect([stdout.toString(), exit.exit_code]).toEqual(["none\n", 0]);
  });

  test("stdin arrives whole, byte for byte, then ends", async () => {
    const stdin = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 31 + (i >> 8)) % 256));
    for (let round = 0; round < 3; round++) {
      const { stdout, exit } = await run("cat", { stdin });
      expect(stdout.equals(stdin)).toBe(true);
      expect(exit.exit_code).toBe(0);
    }
    const first = await run("read -r a; echo $a; read -r b; echo $b; read c || echo end", {
      stdin: Buffer.from("x\ny\n"),
    });
    expect(first.stdout.toString()).toBe("x\ny\nend\n");
  });

  test("a command that does not read its stdin ends all the same", async () => {
    const { exit } = await run("exit 5", { stdin: Buffer.alloc(2_000_000) });
    expect(exit.exit_code).toBe(5);
    await expectUnharmed();
  });

  test("a timeout kills the whole tree: processes that ignore SIGTERM, other sessions that hold the pipes, grandchildren", async () => {
    const line = `trap "" TERM
      sh -c 'trap "" TERM; sleep 4711' &
      setsid sh -c 'trap "" TERM; sleep 4712; true' &
      (sh -c 'sleep 4713; true' &)
      sleep 4714`;
    const { exit } = await run(line, { timeout: { nanos: 300_000_000 } });
    expect(exit.cause).toBe("EXIT_CAUSE_TIMED_OUT");
    expect((await running()).filter((args) => args.includes("471"))).toEqual([]);
    await expectUnharmed();
  });

  test("a command that heeds SIGTERM ends by itself at its timeout", async () => {
    const line = "trap 'echo bye; exit 0' TERM; echo hi; while :; do sleep 0.05; done";
    const { stdout, exit } = await withTimeEnough(
      0.5,
      (timeout) => run(line, { timeout: seconds(timeout) }),
      (end) => end.stdout.includes("hi"),
    );
    expect(stdout.toString()).toBe("hi\nbye\n");
    expect(exit).toMatchObject({ cause: "EXIT_CAUSE_TIMED_OUT", exit_code: 0 });
    await expectUnharmed();
  });

  test("the whole tree ends with its caller", async () => {
    const execution = service.client.exec(sandboxId, "echo on; sleep 4720; true");
    await execution.until("on");
    execution.cancel();
    await eventually(async () => !(await running()).some((args) => args.includes("4720")));
    await expectUnharmed();
  });

  test("callers that leave while their command starts leave no process running", async () => {
    const calls = Array.from({ length: 30 }, (_, i) => {
      const execution = service.client.exec(sandboxId, `sleep 473${i % 10}; true`);
      setTimeout(() => execution.cancel(), i * 3);
      return execution.result.catch(() => {});
    });
    await Promise.all(calls);
    await eventually(async () => !(await running()).some((args) => args.includes("473")));
    await expectUnharmed();
  });

  test("missing is 127, not executable is 126, at once", async () => {
    const exec = (args: string[]) => service.client.exec(sandboxId, args).result;
    expect((await exec(["no-such-command"])).exit.exit_code).toBe(127);
    expect((await exec(["/etc/passwd"])).exit.exit_code).toBe(126);
    expect((await exec(["/tmp"])).exit.exit_code).toBe(126);
    await expectUnharmed();
  });

  test("arguments and environment arrive byte for byte", async () => {
    const odd = [
      "",
      " ",
      "'",
      '"',
      "\\",
      "$HOME",
      "`id`",
      "a\nb",
      "\t",
      "*",
      "é€😀",
      "-n",
      "--",
      "x'y\"z\\n",
      "!",
      "~",
    ];
    const line = 'for a in "$@"; do printf "%s\\0" "$a"; done';
    const { stdout } = await service.client.exec(sandboxId, ["sh", "-c", line, "sh", ...odd]).result;
    expect(stdout.toString()).toBe(odd.map((arg) => `${arg}\0`).join(""));
    const env = {
      PLAIN: "a b",
      QUOTES: "'\"",
      LINES: "a\nb\n",
      "dotted.name": "1",
      LC_ALL: "C",
      EMPTY: "",
      OPTIND: "5",
      "1x": "y",
    };
    const shown = await service.client.exec(sandboxId, ["env", "-u", "_"], { env }).result;
    for (const [name, value] of Object.entries(env))
      expect(shown.stdout.toString()).toContain(`${name}=${value}\n`);
  });

  test("variables that a shell would change reach a command whose PATH has no programs", async () => {
    const env = { PATH: "/nowhere", LC_ALL: "C", BERTH_START: "1", BERTH_NONCE: "2", BERTH_STDIN: "3" };
    const line = 'echo "$PATH $LC_ALL $BERTH_START $BERTH_NONCE $BERTH_STDIN"';
    const terminal = { columns: 80, rows: 24 };
    for (const more of [{}, { stdin: Buffer.from("x") }, { user: "1234" }, { terminal }]) {
      const { stdout, stderr } = await service.client.exec(sandboxId, line, { env, ...more }).result;
      expect([more, stdout.toString().trim(), stderr.toString()]).toEqual([more, "/nowhere C 1 2 3", ""]);
    }
  });

  test("a command leaves nothing that the next can see", async () => {
    await run(
      "cd /tmp; export LEAK=1; leak=1; f() { :; }; alias ls=false; set -x; ulimit -c 0; trap 'echo trap' EXIT",
    );
    const { stdout } = await run("pwd; echo [$LEAK$leak]; set -o | grep -c 'xtrace *on'; command -v f");
    expect(stdout.toString()).toBe("/workspace\n[]\n0\n");
  });

  test("O_NONBLOCK on a command's own stdout cuts nothing of the next command's output", async () => {
    // dd sets O_NONBLOCK on the open file. With shared pipes it would stay.
    await run("dd if=/dev/zero bs=1 count=1 oflag=nonblock 2>/dev/null; true");
    const { stdout } = await run("head -c 20000000 /dev/zero");
    expect(stdout.length).toBe(20_000_000);
  });

  const longLine = scaled(100, shell === "dash" ? 100 : 10);
  test(`a line of ${longLine} MiB arrives whole`, async () => {
    const { exit } = await run(`head -c ${longLine * MIB} /dev/zero | tr '\\000' x`);
    expect(Number(exit.stdout_bytes)).toBe(longLine * MIB);
  });

  test("sleep & returns at once; a daemon ends with its sandbox", async () => {
    const { sandbox_id: id } = await service.client.createSandbox({ image });
    const line = "sleep 4741 & setsid sleep 4742 </dev/null >/dev/null 2>&1 & echo started";
    const { stdout, exit } = await service.client.exec(id, line).result;
    expect([stdout.toString(), exit.cause, exit.exit_code]).toEqual(["started\n", "EXIT_CAUSE_EXITED", 0]);
    await eventually(async () => {
      const left = (await processesOf(service.instance, id)).filter((args) => args.startsWith("sleep 474"));
      return left.sort().join() === "sleep 4741,sleep 4742";
    });
    const pids = await pidsOf(service.instance, id);
    expect(pids.length).toBeGreaterThan(2);
    await service.client.deleteSandbox(id);
    for (const pid of pids) expect(() => process.kill(pid, 0)).toThrow("ESRCH");
  });
});
