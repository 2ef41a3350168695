import { afterEach, expect, test } from "vitest";
import {
  RUN_DIR,
  SETUP_MARKERS,
  SPAWN,
  setupCommand,
  spawnText,
} from "../../../../src/engine/kubernetes/scripts.ts";
import { removeContainers } from "../../../support/docker.ts";
import { BUSYBOX_IMAGE, TEST_IMAGE } from "../../../support/images.ts";
import { run, sh, spec, useEngine } from "../docker/support.ts";

// A container of Docker takes the scripts of pods as well. Its own set-up has their directory.
const { engine, instance } = useEngine();
const DIR = "/run/pod";
const moved = (word: string): string => word.replaceAll(RUN_DIR, DIR);

afterEach(() => removeContainers(instance));

/** What a process prints between < and > in a pod whose container has the image and its environment. */
async function printed(
  image: string,
  containerEnv: Readonly<Record<string, string>>,
  { user = "0", env = {}, script }: { user?: string; env?: Record<string, string>; script: string },
): Promise<string> {
  const { ref } = await engine.create(spec({ image, env: containerEnv }));
  await sh(engine, ref, `mkdir -p ${DIR}`);
  const ready = await run(engine, ref, setupCommand("/", "", []).map(moved));
  expect(ready.stdout.toString()).toBe(`${SETUP_MARKERS.ready}\n`);
  const [endNonce, startNonce] = ["e".repeat(32), "s".repeat(32)];
  const input = spawnText({
    ...{ endNonce, startNonce, user, terminal: false, stdin: false, setsHome: false, env },
    argv: ["/bin/sh", "-c", script],
  });
  const { stdout } = await run(engine, ref, ["/bin/sh", moved(SPAWN)], { input });
  return /<(.*)>/.exec(stdout.toString())?.[1] ?? "";
}

/** HOME as a process of the user has it. */
const homeOf = (user: string, env: Readonly<Record<string, string>>, image: string): Promise<string> =>
  printed(image, env, { user, script: 'printf %s "<$HOME>"' });

test.each([
  ["dash", TEST_IMAGE],
  ["busybox", BUSYBOX_IMAGE],
])("in %s, the HOME of an image applies to all users, as on Docker", async (_, image) => {
  const env = { HOME: "/opt/home" };
  expect(await homeOf("1000:1000", env, image)).toBe("/opt/home");
  expect(await homeOf("0", env, image)).toBe("/opt/home");
});

test("without it, each user has that of /etc/passwd", async () => {
  expect(await homeOf("0", {}, TEST_IMAGE)).toBe("/root");
  expect(await homeOf("daemon", {}, TEST_IMAGE)).toBe("/usr/sbin");
});

test.each([
  ["dash", TEST_IMAGE],
  ["busybox", BUSYBOX_IMAGE],
])(
  "in %s, variables that a shell would change reach a process whose PATH has no programs",
  async (_, image) => {
    const env = { PATH: "/nowhere", LC_ALL: "C", BERTHZ_N: "1", MAILCHECK: "2" };
    const script = 'printf %s "<$PATH $LC_ALL $BERTHZ_N $MAILCHECK>"';
    expect(await printed(image, {}, { env, script })).toBe("/nowhere C 1 2");
  },
);
