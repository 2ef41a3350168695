import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { diagnoseBubblewrap } from "../../../../src/engine/bubblewrap/diagnose.ts";
import { BubblewrapEngine } from "../../../../src/engine/bubblewrap/engine.ts";
import { TEST_IMAGE } from "../../../support/images.ts";
import { failure, run, sh, silent, spec } from "../docker/support.ts";
import { useBubblewrap, useDirectory } from "./support.ts";

const dir = useDirectory();
const rootfs = path.join(dir, "system");
const engine = useBubblewrap({ rootfs });

beforeAll(() => {
  chmodSync(dir, 0o755);
  mkdirSync(rootfs);
  const container = execFileSync("docker", ["create", "berth/busybox", "true"], { encoding: "utf8" }).trim();
  try {
    const tar = execFileSync("docker", ["export", container], { maxBuffer: 1 << 28 });
    execFileSync("tar", ["-x", "-C", rootfs, "--exclude=dev/*", "--exclude=proc/*"], { input: tar });
  } finally {
    execFileSync("docker", ["rm", "--force", container], { stdio: "ignore" });
  }
  mkdirSync(path.join(rootfs, "usr/share"), { recursive: true });
  writeFileSync(path.join(rootfs, "usr/share/marker"), "of this system");
  mkdirSync(path.join(rootfs, "root"), { recursive: true });
  writeFileSync(path.join(rootfs, "root/secret"), "of its people");
  writeFileSync(path.join(rootfs, "etc/shadow"), "root:secret");
});

test("sandboxes see the programs of --rootfs, not the machine's", async () => {
  const { ref } = await engine.create(spec());
  expect(await sh(engine, ref, "cat /usr/share/marker; id -u")).toBe("of this system1000\n");
  expect((await run(engine, ref, ["ls", "/usr/bin/bwrap"])).exitCode).not.toBe(0);
  expect((await run(engine, ref, ["sh", "-c", "cat /root/secret /etc/shadow"])).stdout.toString()).toBe("");
  expect(await sh(engine, ref, "echo mine >/workspace/f; cat /workspace/f")).toBe("mine\n");
});

test("nothing of it can be written", async () => {
  const { ref } = await engine.create(spec());
  for (const place of ["/bin/new", "/usr/share/new", "/usr/share/marker", "/etc/new"]) {
    expect((await run(engine, ref, ["sh", "-c", `echo x >${place}`])).exitCode, place).not.toBe(0);
  }
  expect(existsSync(path.join(rootfs, "usr/share/new"))).toBe(false);
});

test.each([
  ["missing", () => path.join(dir, "missing"), "cannot be read", "--rootfs"],
  ["empty", () => place("empty", 0o755), "no /bin/sh", "--rootfs"],
  [
    "out of the sandboxes' reach",
    () => {
      const closed = place("closed", 0o700);
      mkdirSync(path.join(closed, "usr"));
      return closed;
    },
    "cannot reach",
    "chmod a+x",
  ],
])("one that is %s is reported by doctor and at the start", async (_, make, problem, fix) => {
  const bad = make();
  const [finding] = await diagnoseBubblewrap(bad);
  expect(finding).toMatchObject({
    subject: "bubblewrap",
    status: "missing",
    found: expect.stringContaining(problem),
    fix: expect.stringContaining(fix),
  });
  const broken = new BubblewrapEngine({ logger: silent, image: TEST_IMAGE, rootfs: bad });
  onTestFinished(() => broken.close());
  expect((await failure(broken.info(), "ENGINE_UNAVAILABLE")).message).toContain(problem);
});

function place(name: string, mode: number): string {
  const made = path.join(dir, name);
  mkdirSync(made);
  chmodSync(made, mode);
  return made;
}
