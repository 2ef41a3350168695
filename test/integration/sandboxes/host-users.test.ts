import { execFile } from "node:child_process";
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Client } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { ORDINARY_ID, OrdinaryService } from "../../support/ordinary-user.ts";
import { runProgram, ServeProcess } from "../../support/program.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

/** Another user of the host, besides the one who runs a service here. */
const STRANGER = ORDINARY_ID + 1;
/** Files that a service creates without a mode are open to everyone. */
const WITH_UMASK_0 = ["sh", "-c", 'umask 0; exec "$@"', "sh"];
const SPILLED_BYTES = 8 * 1024 * 1024;

const base = mkdtempSync(path.join(tmpdir(), "berth-host-users-"));
beforeAll(() => chmodSync(base, 0o755));
afterAll(() => rmSync(base, { recursive: true, force: true }));

let count = 0;
/** A directory that everyone on the host can enter. */
function openPlace(owner = 0): string {
  const place = path.join(base, String(count++));
  mkdirSync(place);
  for (const name of ["data", "data/workspaces", "data/shared", "workspaces", "shared"]) {
    mkdirSync(path.join(place, name));
  }
  for (const name of ["", ...readdirSync(place, { recursive: true })]) {
    // As systemd's StateDirectory= leaves it.
    chmodSync(path.join(place, String(name)), 0o755);
    chownSync(path.join(place, String(name)), owner, owner);
  }
  return place;
}

/** The roots of a service in such a directory, each set by its option. */
const rootsIn = (place: string): string[] => [
  ...["--data-dir", path.join(place, "data"), "--workspaces-root", path.join(place, "workspaces")],
  ...["--shared-root", path.join(place, "shared")],
];

/** All regular files below a directory. */
function filesBelow(directory: string): string[] {
  const entries = readdirSync(directory, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => path.join(entry.parentPath, entry.name));
}

/** The result of a command as the stranger: its output, or its error. */
async function asStranger(...command: string[]): Promise<string> {
  const drop = [`--reuid=${STRANGER}`, `--regid=${STRANGER}`, "--clear-groups", "--inh-caps=-all", "--"];
  // Until it has replaced itself, setpriv has root's capabilities, and would find any file.
  const args = [...drop, "sh", "-c", 'exec "$@"', "sh"];
  try {
    return (await promisify(execFile)("setpriv", [...args, ...command], { timeout: 60_000 })).stdout;
  } catch (error) {
    return String((error as { stderr?: string }).stderr);
  }
}

/**
 * Makes sandboxes leave what could raise the stranger's privileges, and what the stranger must not read. Then lets the
 * stranger try.
 */
async function expectOutOfReach(address: string, place: string): Promise<void> {
  const client = new Client(address);
  try {
    const workspaces = new WorkspaceClient(() => client);
    const id = await workspaces.sandbox("planted", { env: { SECRET: "s3cret" } });
    await client.output(
      id,
      `for d in /workspace /shared; do cp "$(command -v id)" $d/raised && chmod 4755 $d/raised || exit 1; done
chmod 777 /workspace /shared; head -c ${SPILLED_BYTES} /dev/zero`,
      { max_output_bytes: 1024 },
    );
    // Output is written to disk in the background.
    await eventually(() => filesBelow(path.join(place, "data", "transcripts")).length > 0);
    const files = filesBelow(place);
    const planted = files.filter((file) => path.basename(file) === "raised");
    expect(planted).toHaveLength(2);
    for (const file of planted) {
      expect(lstatSync(file).mode & 0o7777).toBe(0o4755);
      expect(await asStranger(file)).toMatch(/Permission denied/);
    }
    const own = files.filter((file) => !planted.includes(file));
    const names = own.map((file) => path.relative(path.join(place, "data"), file));
    expect(names).toEqual(expect.arrayContaining(["berth.db", "berth.db-wal", "berth.db-shm", "lock"]));
    expect(names.some((name) => name.startsWith("transcripts/"))).toBe(true);
    for (const file of own) {
      // Users in sandboxes read the one and root there runs the other, and nobody else can reach them.
      const mode = { "undumpable.so": "644", enter: "700" }[path.basename(file)] ?? "600";
      expect(`${file} ${(lstatSync(file).mode & 0o777).toString(8)}`).toBe(`${file} ${mode}`);
      expect(await asStranger("cat", file)).toMatch(/Permission denied/);
    }
    expect(await workspaces.cleanup("planted", { force: true })).toMatchObject({ deleted: true });
  } finally {
    client.close();
  }
}

describe.each(ENGINES)("on $name", ({ name }) => {
  test("other users of the host reach none of the files that sandboxes leave in directories that were open", async () => {
    const place = openPlace();
    const args = ["--engine", name, ...rootsIn(place)];
    const service = await ServeProcess.start(args, {}, { within: WITH_UMASK_0 });
    try {
      await expectOutOfReach(service.address, place);
    } finally {
      await service.stop();
    }
  });
});

test("other users of the host reach none of the files of sandboxes whose service is not root", async () => {
  const place = openPlace(ORDINARY_ID);
  const service = await OrdinaryService.start(rootsIn(place), WITH_UMASK_0);
  try {
    await expectOutOfReach(service.address, place);
  } finally {
    await service.stop();
  }
});

test("an earlier version's data directory is closed, with all its files", async () => {
  const data = path.join(openPlace(), "data");
  const first = await ServeProcess.start(["--engine", "bubblewrap", "--data-dir", data]);
  await first.stop("SIGKILL");
  const left = filesBelow(data);
  expect(left.map((file) => path.basename(file))).toContain("berth.db-wal");
  for (const file of left) chmodSync(file, 0o644);
  chmodSync(data, 0o755);
  chmodSync(path.join(data, "workspaces"), 0o755);
  const second = await first.again(["--engine", "bubblewrap", "--data-dir", data]);
  try {
    for (const file of filesBelow(data)) expect(lstatSync(file).mode & 0o777).toBe(0o600);
    const modes = ["", "workspaces"].map((name) => lstatSync(path.join(data, name)).mode & 0o777);
    expect(modes).toEqual([0o700, 0o700]);
  } finally {
    await second.stop();
  }
});

test("a directory that may not be Berth's is refused with what to type, at the start and by doctor", async () => {
  const place = openPlace();
  const shared = path.join(place, "shared");
  writeFileSync(path.join(place, "workspaces", "index.html"), "");
  writeFileSync(path.join(shared, "note"), "kept\n");
  const roots = ["--workspaces-root", path.join(place, "workspaces"), "--shared-root", shared];
  const { exitCode, stdout } = await runProgram([
    "doctor",
    "--engine",
    "bubblewrap",
    "--data-dir",
    place,
    ...roots,
  ]);
  const reported = stdout.toString();
  expect(exitCode).toBe(1);
  expect(reported).toContain(`sudo chmod 700 ${place}\n`);
  expect(reported).toContain(`sudo chmod 700 ${place}/workspaces\n`);
  expect(reported).toContain(`mv -t shared -- {} +; chmod 700 .' ${shared}\n`);
  const args = ["serve", "--engine", "bubblewrap", "--listen", "127.0.0.1:0", "--data-dir", place];
  const refused = await runProgram(args);
  expect(refused.exitCode).toBe(1);
  expect(refused.stderr).toContain("--data-dir: other users may enter");
  expect(refused.stderr).toContain(`sudo chmod 700 ${place}\n`);
  expect(lstatSync(place).mode & 0o777).toBe(0o755);
});

test("a shared root behind a closed directory is mounted itself, with its files", async () => {
  const place = openPlace();
  chmodSync(place, 0o700);
  const root = path.join(place, "shared");
  writeFileSync(path.join(root, "note"), "seen\n");
  const service = await ServeProcess.start(["--engine", "bubblewrap", "--shared-root", root]);
  const client = new Client(service.address);
  try {
    const id = await new WorkspaceClient(() => client).sandbox("reader");
    expect(await client.output(id, "cat /shared/note; echo back > /shared/new")).toBe("seen\n");
    expect(readdirSync(root).toSorted()).toEqual(["new", "note"]);
  } finally {
    client.close();
    await service.stop();
  }
});
