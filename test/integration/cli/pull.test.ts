import { spawn } from "node:child_process";
import { once } from "node:events";
import { buffer } from "node:stream/consumers";
import { stripVTControlCharacters } from "node:util";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { expectNoContainers } from "../../support/app.ts";
import { docker } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { endOf, MAIN, runProgram, ServeProcess } from "../../support/program.ts";
import { TestRegistry } from "../engine/docker/registry.ts";

let service: ServeProcess;
beforeAll(async () => {
  service = await ServeProcess.start();
});
afterAll(() => service.stop());

let registry: TestRegistry;
let image: string;
beforeEach(async () => {
  registry = new TestRegistry();
  image = `${await registry.listen()}/berth-test/pull:1`;
});
afterEach(async () => {
  // A failed create is answered after some seconds, even if Docker takes longer to remove its container.
  await expectNoContainers(service.instance);
  const pulled = await docker.listImages({ filters: { reference: [`${image}*`] } });
  for (const { Id } of pulled) await docker.getImage(Id).remove({ force: true });
  await registry[Symbol.asyncDispose]();
});

// The image has no shell, so every create fails in the end, after the pull.

test("without a terminal progress is printed as lines on stderr", async () => {
  registry.behaviour = "slow";
  const { exitCode, stdout, stderr } = await service.run(["create", "--image", image]);
  expect([exitCode, stdout.toString()]).toEqual([1, ""]);
  const [first, ...rest] = stderr.trimEnd().split("\n");
  expect(first).toMatch(/^berth: pulling \S+( …|: \S+ \w+ of \S+ \w+, \d+ of \d+ layers)$/);
  expect(first).toContain(image);
  expect(rest.join()).not.toContain("pulling");
});

test("on a terminal it is one line, redrawn in place and removed at the end", async () => {
  registry.behaviour = "slow";
  const command = `${process.execPath} ${MAIN} create --image ${image}`;
  // `script` provides a terminal.
  const child = spawn("script", ["--quiet", "--return", "--command", command, "/dev/null"], {
    env: { ...process.env, TERM: "xterm", BERTH_ADDRESS: service.address },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [screen] = await Promise.all([buffer(child.stdout), once(child, "close")]);
  const drawings = screen.toString().split("\r\x1b[K");
  expect(drawings.length).toBeGreaterThan(4);
  for (const drawing of drawings.slice(1, -1)) expect(drawing).toMatch(/^pulling [^\n]+$/);
  expect(drawings.slice(1, -1).join()).toMatch(/: \d\S* MiB of 4(\.\d)? MiB, 0 of 1 layers/);
  expect(stripVTControlCharacters(drawings.at(-1) ?? "")).toMatch(/^berth: .+\r\n/);
});

test("with --json its events are lines of JSON, or nothing if the command prints one answer", async () => {
  registry.behaviour = "slow";
  const run = await service.run(["run", "--json", "--image", image, "--", "true"]);
  expect(run.exitCode).toBe(125);
  const lines = run.stdout
    .toString()
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  const pulls = lines.filter(({ event }) => event.type === "SANDBOX_EVENT_TYPE_IMAGE_PULL");
  expect(pulls.length).toBeGreaterThan(1);
  expect(pulls.at(-1).event.imagePull).toMatchObject({ image, currentBytes: expect.stringMatching(/^\d+$/) });
  const create = await service.run(["create", "--json", "--image", `${image}-other`]);
  expect(create.stdout.toString()).toBe("");
});

test("Ctrl-C during the pull cancels it", async () => {
  registry.behaviour = "stalls";
  const child = service.begin(["run", "--image", image, "--", "true"]);
  const end = endOf(child);
  await eventually(() => registry.layerRequests > 0);
  child.kill("SIGINT");
  expect((await end).exitCode).toBe(130);
  await eventually(() => registry.brokenOff > 0);
});

test("doctor distinguishes an image that can be pulled from one that cannot, and pulls neither", async () => {
  const ask = async () => {
    const args = ["doctor", "--json", "--listen", "127.0.0.1:0", "--default-image", image];
    const { exitCode, stdout } = await runProgram(args);
    const { findings } = JSON.parse(stdout.toString());
    const finding = findings.find(({ subject }: { subject: string }) => subject === "default image");
    return { exitCode, ...finding };
  };
  expect(await ask()).toMatchObject({
    exitCode: 0,
    status: "ok",
    found: `${image} can be pulled, which the first sandbox will do`,
  });
  registry.behaviour = "unknown image";
  expect(await ask()).toMatchObject({
    exitCode: 1,
    status: "missing",
    found: `${image} is not there, and its registry does not provide it: it does not exist there, or needs a login`,
  });
  expect(registry.layerRequests).toBe(0);
});
