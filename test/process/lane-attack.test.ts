import { describe, expect, test } from "vitest";
import { useApp } from "../support/app.ts";
import { ENGINES } from "../support/engines.ts";

/** Commands run after each attack: more than a sandbox has idle lanes, so that the attacked one is among theirs. */
const NEXT = 6;
const BOUND = { timeout: { seconds: 20 } };

/** What the attacks share: they run in a sandbox, as its user, and end by themselves. */
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
    $found{$1} = 1 while $data =~ /n=([0-9a-f]{32})(?![0-9a-f])/g;
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
       my ($n) = $text =~ /n=([0-9a-f]{32})/ or next;
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

describe.each(ENGINES)("on $name", ({ settings }) => {
  const app = useApp({ ...settings, deleteGraceMs: 0 });

  test.each(ATTACKS)("after a command that %s the next ones are clean", async (_, attack) => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    const done = await client.run(id, ["perl", "-e", PRELUDE + attack], BOUND);
    expect(done.exit_status.exit_code).toBe(0);
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

  test("a lane that is used again is another shell than before", async () => {
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
});
