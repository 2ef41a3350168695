import { execFileSync } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { containersOf, docker, removeContainers } from "../../../support/docker.ts";
import { TEST_IMAGE } from "../../../support/images.ts";
import { failure, sh, spec, useEngine } from "./support.ts";

const { engine, instance } = useEngine();
/** Gives up on what never comes, and so perhaps on what a busy machine is late with. */
const { engine: impatient, instance: impatientInstance } = useEngine({ timeouts: { readyMs: 2_000 } });

const images = {
  /** Only a text file. */
  empty: `berth-test/empty:${instance}`,
  /** Its shell never prints anything. */
  hanging: `berth-test/hanging:${instance}`,
  /** Its USER is nobody; its WORKDIR, ENTRYPOINT, VOLUME and HEALTHCHECK would get in the way. */
  opinionated: `berth-test/opinionated:${instance}`,
};

function build(image: string, dockerfile: string): void {
  execFileSync("docker", ["build", "--quiet", "--tag", image, "-"], { input: dockerfile, stdio: "pipe" });
}

beforeAll(() => {
  const tar = execFileSync("tar", ["-C", import.meta.dirname, "-c", "support.ts"]);
  execFileSync("docker", ["import", "-", images.empty], { input: tar, stdio: "pipe" });
  build(
    images.hanging,
    `FROM ${TEST_IMAGE}
RUN printf '#!/usr/bin/python3\\nimport time\\ntime.sleep(1000)\\n' >/sh && chmod 755 /sh && mv /sh /bin/sh`,
  );
  build(
    images.opinionated,
    `FROM ${TEST_IMAGE}
USER nobody
WORKDIR /srv/app
ENV FROM_IMAGE=yes
VOLUME /srv/data
HEALTHCHECK CMD false
ENTRYPOINT ["/bin/false"]
CMD ["nothing"]`,
  );
});

afterAll(async () => {
  for (const image of Object.values(images)) {
    await docker
      .getImage(image)
      .remove({ force: true })
      .catch(() => {});
  }
});

afterEach(() => removeContainers(instance));

/** After a failed create no container may be left, also not a while later. On a busy machine it is removed late. */
async function expectNothingLeft(of = instance): Promise<void> {
  const left = async () => (await containersOf(of)).map(({ Names, Status }) => [Names, Status]);
  await expect.poll(left).toEqual([]);
  await sleep(300);
  expect(await left()).toEqual([]);
}

describe("a new sandbox", () => {
  test.each([
    ["/workspace", "", "root:root"],
    ["/workspace", "nobody", "nobody:nogroup"],
    ["/workspace", "1234", "1234:root"],
    ["/workspace", "1234:5678", "1234:5678"],
    ["/workspace", "nobody:daemon", "nobody:daemon"],
    ["/deep/er/dir with 'quotes' \"$(touch x)\" -n", "daemon", "daemon:daemon"],
    ["/-rf", "daemon", "daemon:daemon"],
    // What the image has stays as it is.
    ["/etc", "nobody", "root:root"],
    ["/", "nobody", "root:root"],
  ])("has the working dir %j, for the user %j of %s", async (workingDir, user, owner) => {
    const { ref } = await engine.create(spec({ workingDir, user }));
    const quoted = `'${workingDir.replaceAll("'", "'\\''")}'`;
    const stat = await sh(engine, ref, `stat -c '%F %U:%G' -- ${quoted}`, "root");
    const unnamed = owner.replace(/\b(1234|5678)\b/g, "UNKNOWN");
    expect(stat.trim()).toBe(`directory ${unnamed}`);
  });

  test("runs as the image's user, and ignores the image's other settings", async () => {
    const { ref, user } = await engine.create(spec({ image: images.opinionated }));
    expect(user).toBe("nobody");
    expect(await sh(engine, ref, 'id -un; pwd; echo "$FROM_IMAGE"; touch /workspace/mine')).toBe(
      "nobody\n/\nyes\n",
    );
    const { State, Config, Mounts } = await docker.getContainer(ref).inspect();
    expect(State.Health).toBeUndefined();
    expect(Config.User).toBe("0");
    const volume = Mounts[0]?.Name ?? "";
    await docker.getVolume(volume).inspect();
    await engine.remove(ref);
    await expect(docker.getVolume(volume).inspect()).rejects.toMatchObject({ statusCode: 404 });
  });

  test("takes as many variables as a sandbox may have, also of bytes that take three in a URL", async () => {
    const values = Array.from({ length: 7 }, (_, i) => [`V${i}`, '"'.repeat(110_000)]);
    const creating = engine.create(spec({ env: Object.fromEntries(values) }));
    await expect(creating).resolves.toMatchObject({ ref: expect.any(String) });
    const { ref } = await creating;
    expect(await sh(engine, ref, 'printf "$V6" | wc -c')).toBe("110000\n");
  });

  test("ends on SIGTERM, and costs two processes", async () => {
    const { ref } = await engine.create(spec());
    // Processes that start the container may still be there for a moment.
    await expect.poll(async () => (await engine.usage(ref)).pids).toBe(2);
    await docker.getContainer(ref).kill({ signal: "SIGTERM" });
    await docker.getContainer(ref).wait();
  });
});

describe("a failed create leaves nothing behind:", () => {
  test("an image that does not exist", async () => {
    const error = await failure(engine.create(spec({ image: "berth-test/nosuch:1" })), "IMAGE_UNAVAILABLE");
    expect(error.message).toContain("docker pull berth-test/nosuch:1");
    await expectNothingLeft();
  });

  test.each(["Not A Name", "", "../containers/x", "a/../b", "x?y=z", "-x", "a:b:c", "a\n"])(
    "%j, which is not the name of an image",
    async (image) => {
      const error = await failure(engine.create(spec({ image })), "INVALID_ARGUMENT");
      expect(error.metadata).toEqual({ field: "spec.image" });
      await expectNothingLeft();
    },
  );

  test("an image without a shell", async () => {
    const error = await failure(engine.create(spec({ image: images.empty })), "SANDBOX_START_FAILED");
    expect(error.message).toMatch(/needs a working \/bin\/sh.*No such file/);
    await expectNothingLeft();
  });

  test("an image whose shell hangs", async () => {
    const error = await failure(impatient.create(spec({ image: images.hanging })), "SANDBOX_START_FAILED");
    expect(error.message).toContain("not ready within 2 s");
    await expectNothingLeft(impatientInstance);
  });

  test("a disk limit that the storage cannot enforce", async () => {
    const { capabilities } = await engine.info();
    expect(capabilities.diskLimit).toBe(false);
    const resources = { ...spec().resources, diskBytes: 1 << 30 };
    await failure(engine.create(spec({ resources })), "UNSUPPORTED");
    await expectNothingLeft();
  });

  // Before the request, while the container is created, while it starts, while it is set up.
  test.each([0, 1, 3, 6, 10, 20, 50, 90, 130])("an abort after %i ms", async (delayMs) => {
    const abort = new AbortController();
    const creating = engine.create(spec(), abort.signal);
    const timer = setTimeout(() => abort.abort(), delayMs);
    const outcome = await creating.then(
      () => "created",
      (error: { reason: string }) => error.reason,
    );
    clearTimeout(timer);
    // A machine faster than the delay has created a sandbox, which is correct too.
    if (outcome === "created") for (const { ref } of await engine.list()) await engine.remove(ref);
    else expect(outcome).toBe("CANCELED");
    await expectNothingLeft();
  });

  test("an abort while the setup hangs takes effect before its timeout", async () => {
    const abort = new AbortController();
    const creating = engine.create(spec({ image: images.hanging }), abort.signal);
    setTimeout(() => abort.abort(), 1000);
    await failure(creating, "CANCELED");
    await expectNothingLeft();
  });
});
