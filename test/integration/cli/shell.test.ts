import { createHash } from "node:crypto";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { containersOf, removeContainers } from "../../support/docker.ts";
import { LocalShell } from "../../support/local-shell.ts";
import { ServeProcess } from "../../support/program.ts";
import { SHELL_IMAGES } from "../../support/shell-images.ts";
import type { TmuxTerminal } from "../../support/tmux.ts";

const SANDBOX = "box";
const PROMPT = /\nroot@\w+:\S*#$/;

let service: ServeProcess;
beforeAll(async () => {
  service = await ServeProcess.start();
  const { exitCode, stderr } = await service.runHere(["create", "--id", SANDBOX]);
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
});
afterAll(async () => {
  await service.stop();
  expect(await containersOf(service.instance)).toEqual([]);
});

let shell: LocalShell;
let terminal: TmuxTerminal;
beforeEach(async () => {
  shell = await LocalShell.start(service.address);
  ({ terminal } = shell);
});
afterEach(() => shell.dispose());

async function enterSandbox(): Promise<void> {
  await terminal.enter(`berth shell ${SANDBOX}`);
  await terminal.shows(PROMPT);
}

/** The output of a command in the sandbox. */
async function inSandbox(...command: string[]): Promise<string> {
  const { stdout } = await service.runHere(["exec", SANDBOX, "--", ...command]);
  return stdout.toString();
}

describe("full-screen programs", () => {
  test("vim: writes and saves a file, fills a window that grows, and restores the screen at its end", async () => {
    await enterSandbox();
    await terminal.enter("vi poem.txt");
    // Everything below the empty first line. What is drawn last may appear before the rest.
    await terminal.shows((screen) => {
      const tildes = screen.split("\n").filter((line) => line === "~");
      return tildes.length === 22 && /"poem.txt" \[New/.test(screen);
    });
    expect(await terminal.variable("alternate_on")).toBe("1");
    await terminal.type("iThe fog comes\ron little cat feet.");
    await terminal.shows(/^The fog comes\non little cat feet\.\n~/);
    await terminal.resize(60, 40);
    // All rows except the two of text and the last.
    await terminal.shows((screen) => screen.split("\n").filter((line) => line === "~").length === 37);
    await terminal.press("Escape");
    await terminal.enter(":wq");
    await terminal.shows(PROMPT);
    expect(await terminal.variable("alternate_on")).toBe("0");
    expect(await inSandbox("cat", "poem.txt")).toBe("The fog comes\non little cat feet.\n");
  });

  test("less: pages forth and back, and fills a window that grew", async () => {
    await enterSandbox();
    await terminal.enter("seq 1000 > numbers; less numbers");
    const numbers = (from: number, to: number) =>
      Array.from({ length: to - from + 1 }, (_, index) => from + index).join("\n");
    await terminal.shows((screen) => screen.startsWith(`${numbers(1, 23)}\n`));
    await terminal.press("Space");
    await terminal.shows((screen) => screen.startsWith(`${numbers(24, 46)}\n`));
    await terminal.type("b");
    await terminal.shows((screen) => screen.startsWith(`${numbers(1, 23)}\n`));
    await terminal.resize(60, 40);
    await terminal.shows((screen) => screen.startsWith(`${numbers(1, 39)}\n`));
    await terminal.type("q");
    await terminal.shows(PROMPT);
  });

  test("top: draws as wide as the window, at once when that changes", async () => {
    await enterSandbox();
    // Without a resize it would redraw only after an hour.
    await terminal.enter("top -d 3600");
    await terminal.shows(/^top - .*^ +PID USER .* COMMAND$/ms);
    await terminal.resize(40, 24);
    await terminal.shows((screen) => /^ +PID USER /m.test(screen) && !/COMMAND/.test(screen));
    await terminal.resize(110, 24);
    await terminal.shows(/^ +PID USER .* COMMAND$/m);
    await terminal.type("q");
    await terminal.shows(PROMPT);
  });
});

describe("the size", () => {
  test("is the window's from the start", async () => {
    await terminal.resize(97, 31);
    await enterSandbox();
    await terminal.enter("while stty size; do sleep 0.1; done");
    await terminal.shows(/^31 97$/m);
    await terminal.resize(120, 50);
    await terminal.shows(/^50 120$/m);
  });
});

describe("keys", () => {
  test("Ctrl-C ends what runs in the sandbox, not the session", async () => {
    await enterSandbox();
    await terminal.enter("sh -c 'echo asleep; exec sleep 1000'");
    await terminal.shows(/^asleep$/m);
    await terminal.press("C-c");
    await terminal.shows(PROMPT);
    await terminal.enter("echo ended with $?");
    await terminal.shows(/^ended with 130$/m);
    expect(await inSandbox("sh", "-c", "pgrep -fx 'sleep 1000' || echo none")).toBe("none\n");
  });

  test("Ctrl-C takes effect soon during a flood of output", async () => {
    await enterSandbox();
    await terminal.enter("yes");
    await terminal.shows(/(y\n){20}/);
    await terminal.press("C-c");
    await terminal.shows(/\^C\nroot@\w+:\S*#$/);
  });

  test("Ctrl-Z suspends and fg resumes, Ctrl-D ends the input and the shell", async () => {
    await enterSandbox();
    await terminal.enter("echo here; cat");
    await terminal.shows(/^here$/m);
    await terminal.enter("first");
    await terminal.shows(/^first\nfirst$/m);
    await terminal.press("C-z");
    await terminal.shows(/Stopped +cat\n.*#$/);
    await terminal.enter("fg");
    await terminal.shows(/# fg\n.*cat$/);
    await terminal.enter("second");
    await terminal.shows(/^second\nsecond$/m);
    await terminal.press("C-d");
    await terminal.shows(PROMPT);
    await terminal.press("C-d");
    expect(await shell.exitCode()).toBe(0);
  });

  test("200 kB of pasted text arrive whole and in order", async () => {
    const text = Array.from({ length: 20_000 }, (_, index) => `${String(index).padStart(9, "0")}\n`).join("");
    await enterSandbox();
    // A line that no earlier test leaves on the screen.
    await terminal.enter("stty -echo; echo reading; cat > pasted; stty echo; echo stored");
    await terminal.shows(/^reading$/m);
    await terminal.paste(text);
    await terminal.press("C-d");
    await terminal.shows(/^stored$/m);
    const hash = createHash("sha256").update(text).digest("hex");
    expect(await inSandbox("sha256sum", "pasted")).toBe(`${hash}  pasted\n`);
  });

  test("typed text is echoed key by key, each before the next is typed", async () => {
    await enterSandbox();
    const times: number[] = [];
    let typed = "";
    for (const letter of "how fast are keys drawn that are typed here") {
      typed += letter;
      const before = performance.now();
      await terminal.type(letter);
      // The screen has no spaces at the ends of its lines.
      await terminal.shows((screen) => screen.endsWith(`# ${typed}`.trimEnd()));
      times.push(performance.now() - before);
    }
    times.sort((a, b) => a - b);
    const at = (share: number) => times[Math.floor(times.length * share)] ?? Number.NaN;
    console.log(`echo of a key: p50 ${at(0.5).toFixed(1)} ms, p90 ${at(0.9).toFixed(1)} ms`);
  });
});

describe("the command", () => {
  test("has the user, directory, environment and arguments that the flags name", async () => {
    const line = 'echo "$(id -u) $PWD $WHO $TERM"; exit 3';
    await terminal.enter(`berth shell -u 65534 -w /tmp -e WHO=me ${SANDBOX} -- sh -c '${line}'`);
    await terminal.shows(/^65534 \/tmp me xterm-256color$/m);
    expect(await shell.exitCode()).toBe(3);
  });

  test("bash, if the sandbox has it", async () => {
    await enterSandbox();
    await terminal.enter("echo it is $0");
    await terminal.shows(/^it is bash$/m);
  });

  test("sh, if it has no bash", async () => {
    const [, image] = SHELL_IMAGES.find(([name]) => name === "busybox") ?? [];
    await service.runHere(["create", "--id", "small", "--image", `${image}`]);
    await terminal.enter("berth shell small");
    await terminal.shows(/\S+ #$/);
    await terminal.enter("echo it is $0");
    await terminal.shows(/^it is sh$/m);
    await service.runHere(["rm", "--grace", "0s", "small"]);
  });
});

describe("the terminal is restored after", () => {
  let before: string;
  beforeEach(async () => {
    before = await shell.settings();
  });
  afterEach(async () => {
    expect(await shell.settings()).toBe(before);
    expect(await terminal.variable("alternate_on")).toBe("0");
    expect(await terminal.variable("cursor_flag")).toBe("1");
  });

  test("an exit, whose code is the program's", async () => {
    await enterSandbox();
    await terminal.enter("exit 7");
    expect(await shell.exitCode()).toBe(7);
  });

  test("a signal in the sandbox", async () => {
    await enterSandbox();
    await terminal.enter("kill -KILL $$");
    expect(await shell.exitCode()).toBe(137);
  });

  test.each([
    ["SIGTERM", 143],
    ["SIGINT", 130],
    ["SIGHUP", 129],
    ["SIGQUIT", 131],
  ] as const)("%s while vi has the screen", async (signal, code) => {
    await enterSandbox();
    await terminal.enter("vi");
    await terminal.shows(/~\n~\n~/);
    process.kill(await shell.foregroundPid(), signal);
    expect(await shell.exitCode()).toBe(code);
  });

  test("a suspend, which fg resumes", async () => {
    await enterSandbox();
    process.kill(await shell.foregroundPid(), "SIGTSTP");
    await terminal.shows(/\[1\] .*Stopped.*\nlocal\$$/);
    expect(await shell.settings()).toBe(before);
    await terminal.enter("fg");
    await terminal.shows(/^berth shell/m);
    await terminal.enter("echo on again");
    await terminal.shows(/^on again\n/m);
    await terminal.press("C-d");
    expect(await shell.exitCode()).toBe(0);
  });

  test("~. while the service does not answer", async () => {
    await enterSandbox();
    service.signal("SIGSTOP");
    try {
      await terminal.enter("echo never");
      await terminal.type("~.");
      await terminal.shows(/\nberth: the session was left with ~\. and its command is being ended\nlocal\$$/);
      expect(await shell.exitCode()).toBe(125);
    } finally {
      service.signal("SIGCONT");
    }
  });

  test("the end of the sandbox", async () => {
    await service.runHere(["create", "--id", "short"]);
    await terminal.enter("berth shell short -- vi");
    await terminal.shows(/~\n~\n~/);
    await service.runHere(["rm", "--grace", "0s", "short"]);
    expect(await shell.exitCode()).toBe(125);
    expect(await terminal.text()).toMatch(/^berth: the sandbox ended while the command ran\./m);
  });

  test("the death of the service", async () => {
    const mortal = await ServeProcess.start();
    try {
      await mortal.runHere(["create", "--id", SANDBOX]);
      await terminal.enter(`BERTH_ADDRESS=${mortal.address} berth shell ${SANDBOX} -- vi`);
      await terminal.shows(/~\n~\n~/);
      await mortal.stop("SIGKILL");
      expect(await shell.exitCode()).toBe(125);
      expect(await terminal.text()).toMatch(/^berth: the connection to \S+ broke$/m);
    } finally {
      await mortal.dispose();
      await removeContainers(mortal.instance);
    }
  });

  test("a missing sandbox", async () => {
    await terminal.enter("berth shell nobody");
    await terminal.shows(/^berth: .*nobody.*\nTo list them: berth ls --all\n/m);
    expect(await shell.exitCode()).toBe(125);
  });
});

describe("without a terminal", () => {
  const refusal =
    "berth: `berth shell` needs a terminal, but its stdin or stdout is not one\nWithout one: berth exec SANDBOX -- COMMAND\n";

  test("it says what to use instead", async () => {
    const { exitCode, stdout, stderr } = await service.run(["shell", SANDBOX]);
    expect({ exitCode, stdout: stdout.length, stderr }).toEqual({
      exitCode: 125,
      stdout: 0,
      stderr: refusal,
    });
  });

  test("also if only stdout is not a terminal", async () => {
    await terminal.enter(`berth shell ${SANDBOX} | cat`);
    await terminal.shows(/^berth: `berth shell` needs a terminal/m);
  });
});
