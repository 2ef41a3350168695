import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { MAIN } from "../../support/program.ts";

const dir = mkdtempSync(path.join(tmpdir(), "berth-bwrap-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

/** Runs the program where another file stands in bwrap's place, and no Docker daemon answers. */
function berth(bwrap: string, ...args: string[]): { code: number | null; out: string } {
  const fake = path.join(dir, "bwrap");
  writeFileSync(fake, bwrap);
  chmodSync(fake, 0o755);
  const script = 'mount --bind "$1" /usr/bin/bwrap && shift && exec "$@"';
  const data = ["--data-dir", path.join(dir, "data"), "--docker-host", `unix://${dir}/no.sock`];
  const { status, stdout, stderr } = spawnSync(
    "unshare",
    [
      "--mount",
      "--propagation",
      "private",
      "sh",
      "-c",
      script,
      "sh",
      fake,
      process.execPath,
      MAIN,
      ...args,
      ...data,
    ],
    { encoding: "utf8", timeout: 60_000 },
  );
  return { code: status, out: stdout + stderr };
}

const OLD = "#!/bin/sh\necho bubblewrap 0.4.1\n";
const FORBIDDEN =
  '#!/bin/sh\ncase $1 in --version) echo bubblewrap 0.8.0 ;; --help) echo ;; *) echo "bwrap: Creating new namespace failed" >&2; exit 1 ;; esac\n';

describe.each(["auto", "bubblewrap"])("with --engine %s", (engine) => {
  test.each([
    ["too old", OLD, "0.8 or newer is needed"],
    ["not bubblewrap", "#!/bin/sh\necho hello\n", "tells no version"],
    ["broken", "#!/bin/sh\nexit 3\n", "bwrap --version fails"],
    ["forbidden its namespaces", FORBIDDEN, "user namespaces are forbidden"],
  ])(
    "a bwrap that is %s is told by the start and by doctor, and nothing runs without one",
    (_, bwrap, problem) => {
      const start = berth(bwrap, "serve", "--engine", engine, "--listen", "127.0.0.1:0");
      expect(start.code).toBe(1);
      expect(start.out).toContain(problem);
      expect(start.out).not.toContain("listens on");
      const doctor = berth(bwrap, "doctor", "--engine", engine, "--listen", "127.0.0.1:0");
      expect(doctor.code).toBe(1);
      expect(doctor.out).toContain(problem);
      expect(doctor.out).toMatch(/bubblewrap \(missing\):\n {2}\S/);
    },
  );
});

test("--docker-required takes nothing else", () => {
  const { code, out } = berth(OLD, "serve", "--docker-required", "--listen", "127.0.0.1:0");
  expect(code).toBe(1);
  expect(out).toContain("--docker-required allows no other engine");
});
