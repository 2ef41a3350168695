import { existsSync, readdirSync, truncateSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { UNDUMPABLE_TARGET as inBubblewrap } from "../../../../src/engine/bubblewrap/runtime-dir.ts";
import {
  UNDUMPABLE_TARGET as inDocker,
  pipesDirectory,
} from "../../../../src/engine/docker/container-pipes.ts";
import { useApp } from "../../../support/app.ts";
import { ENGINES } from "../../../support/engines.ts";
import { newDataDir, type TestSettings } from "../../../support/settings.ts";

/** Commands run one after another: more than a sandbox's idle lanes, so that each lane gets one. */
const NEXT = 6;
const BOUND = { timeout: { seconds: 20 } };
/** Timeout of an attack. One that stops its lane runs this long. */
const ATTACK_BOUND = { timeout: { seconds: 10 } };

/** Common code of the attacks. They run in a sandbox, as its user, and end by themselves. */
const PRELUDE = `
use POSIX ();
my $lane = getppid();
sub nonces {
  my %found;
  open my $maps, "<", "/proc/$lane/maps" or return;
  open my $mem, "<:raw", "/proc/$lane/mem" or return;
  while (<$maps>) {
    next unless /^([0-9a-f]+)-([0-9a-f]+) rw/;
    my ($from, $to) = (hex $1, hex $2);
    next if $to - $from > 1 << 26;
    sysseek($mem, $from, 0) or next;
    sysread($mem, my $data, $to - $from) or next;
    $found{$1} = 1 while $data =~ /A (\\x1e[0-9a-f]{32})(?![0-9a-f])/g;
  }
  return keys %found;
}
sub both { my ($text) = @_; syswrite(STDOUT, $text); syswrite(STDERR, $text); }
sub forge { both("\${_}E0;\${_}C;") for nonces(); }
sub leave {
  exit 0 if fork;
  POSIX::setsid();
  exit 0 if fork;
  open STDIN, "<", "/dev/null"; open STDOUT, ">", "/dev/null"; open STDERR, ">", "/dev/null";
}
alarm 30;
`;

const ATTACKS: readonly (readonly [string, string])[] = [
  [
    "forges its end and goes on writing",
    `forge(); for (1 .. 100) { both("INJECTED\\n"); select(undef, undef, undef, 0.05); }`,
  ],
  ["forges its end and stops the lane", `forge(); kill "STOP", $lane; sleep 5;`],
  [
    "forges its end in a process that keeps the pipes",
    `exit 0 if fork; POSIX::setsid(); for (1 .. 100) { forge(); both("INJECTED\\n"); select(undef, undef, undef, 0.05); }`,
  ],
  [
    "leaves a process that reads the lane's stdin",
    `open my $in, "<", "/proc/$lane/fd/0" or die; leave(); sysread($in, my $text, 65536) for 1 .. 100;`,
  ],
  [
    "leaves a process that takes the next command and answers it",
    `open my $in, "<", "/proc/$lane/fd/0" or die;
     leave();
     for (1 .. 100) {
       sysread($in, my $text, 65536) or last;
       my ($n) = $text =~ /A (\\x1e[0-9a-f]{32})/ or next;
       open my $out, ">", "/proc/$lane/fd/3"; open my $err, ">", "/proc/$lane/fd/4";
       syswrite($out, "\${n}R;INJECTED"); syswrite($_, "\${n}E0;\${n}C;") for $out, $err;
     }`,
  ],
  [
    "has the lane's shell run something",
    `open my $in, ">", "/proc/$lane/fd/0" or die;
     syswrite($in, "printf INJECTED >&3; printf INJECTED >&4; W() { printf INJECTED >&3; printf %s \\$1 >&3; printf %s \\$1 >&4; }\\n");`,
  ],
  [
    "has the lane's shell read nothing more",
    `open my $in, ">", "/proc/$lane/fd/0" or die; syswrite($in, "while :; do read -r x; done\\n");`,
  ],
];

/** What happens to an attacked lane whose shell is not undumpable, so that the job can reach it. */
const IN_REACH = "within its user's reach";

/** Removes the library that makes shells undumpable from a service, as in an image whose loader cannot load it. */
function withoutLibrary(engine: string, dataDir: string, instance: string): void {
  const runtimes = readdirSync(tmpdir()).filter((name) => name.startsWith(`berth-${process.pid}-`));
  const files = (
    engine === "docker"
      ? [path.join(pipesDirectory(dataDir, instance), "stock", path.basename(inDocker))]
      : runtimes.map((name) => path.join(tmpdir(), name, inBubblewrap))
  ).filter((file) => existsSync(file));
  expect(files).toHaveLength(1);
  for (const file of files) truncateSync(file);
}

describe.each(["undumpable", IN_REACH])("a shell being %s", (shells) => {
  // An attack mostly waits for its end.
  describe.concurrent.each(ENGINES)("on $name", ({ name, settings }) => laneSuite(name, settings, shells));
});

function laneSuite(engine: string, settings: TestSettings, shells: string): void {
  const dataDir = newDataDir();
  const app = useApp({ ...settings, dataDir, deleteGraceMs: 0 });
  const inReach = shells === IN_REACH;

  beforeAll(async () => {
    const { client } = app;
    // What sandboxes share is created with the first of them.
    const { sandbox_id: id } = await client.createSandbox();
    if (inReach) withoutLibrary(engine, dataDir, app.instance);
    await client.deleteSandbox(id);
  });

  test.each(ATTACKS)("after a command that %s the next ones are clean", async (_, attack) => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    const done = await client.run(id, ["perl", "-e", PRELUDE + attack], ATTACK_BOUND);
    // A job that finds its lane closed may have failed.
    if (inReach) expect(done.exit_status.exit_code).toBe(0);
    for (let i = 0; i < NEXT; i++) {
      const {
        stdout,
        stderr,
        exit_status: exit,
      } = await client.run(id, `echo out ${i}; echo err ${i} >&2; exit ${i}`, BOUND);
      expect(`${stdout}${stderr}${exit.cause} ${exit.exit_code}`).toBe(
        `out ${i}\nerr ${i}\nEXIT_CAUSE_EXITED ${i}`,
      );
    }
    await client.deleteSandbox(id);
  });

  test(`a command ${inReach ? "gets" : "does not get"} at its shell's memory and pipes`, async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    const files = ["mem", "maps", "environ", "fd/0", "fd/3"];
    const attempt = `for my $file (qw(${files.join(" ")})) {
      print "$file\\n" if open my $in, "<", "/proc/" . getppid() . "/$file"; }`;
    for (let i = 0; i < NEXT; i++) {
      const { stdout } = await client.run(id, ["perl", "-e", attempt], BOUND);
      expect(stdout.toString()).toBe(inReach ? files.map((file) => `${file}\n`).join("") : "");
    }
    await client.deleteSandbox(id);
  });

  test("a lane is reused", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    const pids = new Set<string>();
    for (let i = 0; i < 20; i++) {
      const { stdout, exit_status: exit } = await client.run(id, "echo $PPID; exit 3");
      expect(exit.exit_code).toBe(3);
      pids.add(stdout.toString());
    }
    expect(pids.size).toBeLessThan(8);
    await client.deleteSandbox(id);
  });

  test("a command sees the sandbox's own LD_PRELOAD, or none", async () => {
    const { client } = app;
    for (const env of [{}, { LD_PRELOAD: "libc.so.6" }]) {
      const { sandbox_id: id } = await client.createSandbox({ env });
      for (let i = 0; i < NEXT; i++) {
        expect(await client.output(id, "echo ${LD_PRELOAD-none}")).toBe(`${env.LD_PRELOAD ?? "none"}\n`);
      }
      await client.deleteSandbox(id);
    }
  });
}
