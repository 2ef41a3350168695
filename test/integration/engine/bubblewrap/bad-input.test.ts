import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { describe, expect, test } from "vitest";
import { nodeAsOrdinaryUser, PROGRAM } from "../../../support/ordinary-user.ts";
import { runProgram } from "../../../support/program.ts";
import { shared } from "../../../support/scale.ts";
import { useDirectory } from "./support.ts";

const dir = useDirectory();

/** Replaces bwrap by a file, only for the program. */
const REPLACED = 'mount --bind "$1" /usr/bin/bwrap && shift && exec "$@"';
/**
 * Mounts an overlay over the directory of programs that hides one of them: in an overlay, a device 0:0 hides a file.
 */
const hidden = (program: string): string => `mount -t tmpfs tmpfs "$1" && mknod "$1/${program}" c 0 0 &&
mount -t overlay -o "lowerdir=$1:/usr/bin" overlay /usr/bin && shift && exec "$@"`;

/** Runs the program where bwrap is replaced by a script, or another program is hidden, and no Docker daemon answers. */
async function berth(name: string, bwrap: string | { readonly hide: string }, ...args: string[]) {
  const place = path.join(dir, `${name}-${args[0]}-${args.at(-1)}`);
  if (typeof bwrap !== "string") mkdirSync(place);
  else {
    writeFileSync(place, bwrap);
    chmodSync(place, 0o755);
  }
  const shell = ["sh", "-c", typeof bwrap === "string" ? REPLACED : hidden(bwrap.hide), "sh", place];
  const data = ["--data-dir", `${place}-data`, "--docker-host", `unix://${dir}/no.sock`];
  const { exitCode, stdout, stderr } = await runProgram([...args, ...data, "--listen", "127.0.0.1:0"], {
    within: ["unshare", "--mount", "--propagation", "private", ...shell],
  });
  return { exitCode, out: stdout + stderr };
}

const OLD = "#!/bin/sh\necho bubblewrap 0.4.1\n";
const FORBIDDEN =
  '#!/bin/sh\ncase $1 in --version) echo bubblewrap 0.8.0 ;; --help) echo ;; *) echo "bwrap: Creating new namespace failed" >&2; exit 1 ;; esac\n';
const INSTALL = "apt-get install -y bubblewrap";
const CASES: readonly (readonly [string, string | { readonly hide: string }, string, string])[] = [
  ["missing", { hide: "bwrap" }, "bubblewrap is not installed", INSTALL],
  ["too old", OLD, "0.8 or newer is needed", "Install a newer one"],
  ["not bubblewrap", "#!/bin/sh\necho hello\n", "prints no version", INSTALL],
  ["broken", "#!/bin/sh\nexit 3\n", "bwrap --version fails", INSTALL],
  ["forbidden its namespaces", FORBIDDEN, "user namespaces are forbidden", "user.max_user_namespaces"],
  ["without xargs", { hide: "xargs" }, "the program xargs is missing", "apt-get install -y findutils"],
];
const ENGINES = ["auto", "bubblewrap"];

describe.each(ENGINES.map((engine, index) => [engine, index] as const))(
  "with --engine %s",
  (engine, index) => {
    test.each(shared(CASES, index, ENGINES.length))(
      "a bwrap that is %s is reported by serve and by doctor, and nothing runs without one",
      async (name, bwrap, problem, fix) => {
        const [start, doctor] = await Promise.all([
          berth(name, bwrap, "serve", "--engine", engine),
          berth(name, bwrap, "doctor", "--engine", engine),
        ]);
        expect(start.exitCode).toBe(1);
        expect(start.out).toContain(problem);
        expect(start.out).toContain("berth doctor");
        // Text after a command to type looks like a part of the command.
        expect(start.out).not.toMatch(/systemctl start docker./);
        expect(start.out).not.toContain("listens on");
        expect(doctor.exitCode).toBe(1);
        expect(doctor.out).toContain(problem);
        expect(doctor.out).toMatch(/bubblewrap \(missing\):\n {2}\S/);
        expect(doctor.out).toContain(fix);
      },
    );
  },
);

test("if temporary files may not be executed, nothing runs without a filter of system calls", async () => {
  const place = path.join(dir, "noexec");
  mkdirSync(place);
  const script = `mount -t tmpfs -o noexec,mode=1777 tmpfs "$1" && export TMPDIR="$1" && shift && exec "$@"`;
  const within = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", place];
  const options = ["--engine", "bubblewrap", "--data-dir", `${place}-data`, "--listen", "127.0.0.1:0"];
  for (const command of ["serve", "doctor"]) {
    const { exitCode, stdout, stderr } = await runProgram([command, ...options], { within });
    expect(exitCode).toBe(1);
    expect(`${stdout}${stderr}`).toContain(
      "cannot be run, so sandboxes would have no filter of system calls",
    );
    if (command === "doctor") expect(stdout.toString()).toContain("TMPDIR=/var/tmp");
  }
});

test("--docker-required accepts nothing else", async () => {
  const { exitCode, out } = await berth("required", OLD, "serve", "--docker-required");
  expect(exitCode).toBe(1);
  expect(out).toMatch(
    /--docker-required allows no other engine\. Docker is not running\. .*: sudo systemctl start docker$/m,
  );
});

test("cgroups that are not writable are reported by doctor and by serve, which still serves", async () => {
  const args = ["--engine", "bubblewrap", "--listen", "127.0.0.1:0"];
  const doctor = nodeAsOrdinaryUser([PROGRAM, "doctor", ...args]).child;
  const serve = nodeAsOrdinaryUser([PROGRAM, "serve", ...args]).child;
  if (doctor.stdout === null || serve.stdout === null || serve.stderr === null) throw new Error("no pipes");
  const log = text(serve.stderr);
  const [findings] = await Promise.all([text(doctor.stdout), firstLine(serve.stdout)]);
  serve.kill("SIGTERM");
  for (const told of [findings, await log]) {
    expect(told).toContain("memory (each process has the limit, not the sandbox), cpu");
    expect(told).toContain("systemd-run --user --scope -p Delegate=yes berth serve --engine bubblewrap");
  }
  expect(findings).toContain("sandboxes cannot be paused: this user may not write control groups");
});

async function firstLine(stream: NodeJS.ReadableStream): Promise<string> {
  let line = "";
  for await (const chunk of stream) {
    line += chunk;
    if (line.includes("listens on")) return line;
  }
  throw new Error(`the service did not start: ${line}`);
}
