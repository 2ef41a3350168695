#!/usr/bin/env node
// Shows Berth at work on this machine, starting from a fresh clone: npm run demo [-- --yes]
//
// With --at HOST:PORT it only runs the job, in a sandbox of the service there, for example in a Kubernetes cluster. The
// token is in BERTH_TOKEN.
//
// Needs Node 20 or newer, npm and git. It stops everything that it starts, even after a failure. It uses Docker,
// without changing it, if a daemon answers. Otherwise it uses bubblewrap, which it installs only with consent: it asks
// in a terminal, and needs --yes or CI=true without one.
import { randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { run, Stop, startServer, stream } from "./demo/children.mjs";
import { isInstalled } from "./dependencies.mjs";

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const berth = path.join(root, "bin", "berth");
const yes = process.argv.includes("--yes") || process.env.CI === "true";
const { at } = parseArgs({ strict: false, options: { at: { type: "string" } } }).values;
const instance = `demo-${randomBytes(4).toString("hex")}`;
const OWN_IMAGE = "berth/base:latest";
const STOP_MS = 40_000;
const STEPS = at === undefined ? 6 : 1;

const interrupt = new AbortController();
const { signal } = interrupt;
for (const name of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(name, () => interrupt.abort(new Stop(`Stopped by ${name}; cleaning up.`)));
}

let engine = "docker";
let server;
let dataDir;
try {
  await main();
} catch (error) {
  console.error(`\n${error instanceof Stop ? error.message : error.stack}`);
  process.exitCode = signal.aborted ? 130 : 1;
} finally {
  await cleanUp();
}

async function main() {
  if (at !== undefined) {
    await step(1, "job", `over gRPC, in a sandbox of the service at ${at}`, () => job(at));
    return;
  }
  await step(1, "packages", "npm ci", async () => {
    if (isInstalled()) return "installed already";
    await must("npm", ["ci", "--no-audit", "--no-fund"], "The packages could not be installed.");
    return "installed";
  });
  await step(2, "program", "npm run build", async () => {
    await must("npm", ["run", "build"], "The program could not be built.");
    return "built into dist/";
  });
  await step(3, "engine", "Docker if it answers, otherwise scripts/bubblewrap.sh", chooseEngine);
  const image = await step(4, "image", "berth doctor", chooseImage);
  const options = image === undefined ? "--engine bubblewrap" : `--default-image ${image}`;
  const address = await step(5, "service", `berth serve --listen 127.0.0.1:0 ${options}`, () => serve(image));
  await step(6, "job", "over gRPC, in its own sandbox", () => job(address));
  await stopServer();
  const left = await containers();
  if (left.length > 0) throw new Stop(`These containers were left behind: ${left.join(" ")}`);
  console.log("\nThe service has stopped, and all sandboxes are gone.");
  console.log(nextSteps(image));
}

/** Docker if it answers, otherwise bubblewrap, which needs no daemon. */
async function chooseEngine() {
  const { code } = await run("docker", ["version"], { signal }).catch(() => ({ code: 1 }));
  if (code === 0) return "Docker answers";
  engine = "bubblewrap";
  console.log("  Docker does not answer: using bubblewrap, with this machine's own programs");
  const result = await run("sh", ["scripts/bubblewrap.sh", ...consent()], { signal, cwd: root, show: true });
  if (result.code !== 0) throw new Stop("The demo needs Docker or bubblewrap: see above, then run it again.");
  return "bubblewrap is ready";
}

/** The default image if it is local or can be pulled, otherwise one that is built here. */
async function chooseImage() {
  if (engine === "bubblewrap") {
    console.log("  not needed");
    return undefined;
  }
  const { stdout } = await run(berth, ["doctor", "--json"], { signal });
  const found = JSON.parse(stdout).findings.find(({ subject }) => subject === "default image");
  if (found?.status === "ok") {
    console.log(`  ${found.found}`);
    return found.found.split(" ")[0];
  }
  console.log(`  ${found?.found ?? "no image"}; building ${OWN_IMAGE} instead`);
  const { code } = await run("sh", ["scripts/base-image.sh", ...consent()], {
    signal,
    cwd: root,
    show: true,
  });
  if (code !== 0) throw new Stop("There is no image to run the job in: see above, then run the demo again.");
  return OWN_IMAGE;
}

async function serve(image) {
  dataDir = mkdtempSync(path.join(tmpdir(), "berth-demo-"));
  const options = {
    ...{ listen: "127.0.0.1:0", engine, instance, "data-dir": dataDir },
    ...(image && { "default-image": image }),
  };
  const args = ["serve", ...Object.entries(options).flatMap(([name, value]) => [`--${name}`, value])];
  server = await startServer(berth, args, { signal });
  if (signal.aborted) throw signal.reason;
  if (server.first === undefined) throw new Stop(`The service did not start:\n${server.log()}`);
  console.log(`  ${server.first}`);
  return server.first.match(/listens on (\S+);/)[1];
}

async function job(address) {
  const env = { BERTH_ADDRESS: address };
  show("berth create");
  const started = performance.now();
  const created = await run(berth, ["create", "-l", "purpose=demo"], { signal, env });
  if (created.code !== 0) throw new Stop(`Could not create a sandbox: ${created.tail}`);
  const sandbox = created.stdout.trim();
  console.log(`  ${sandbox}  (${seconds(performance.now() - started)}, including the client's start)`);
  try {
    await use(sandbox, env);
  } catch (error) {
    // A service that the demo does not stop would keep the sandbox.
    await run(berth, ["rm", sandbox], { env });
    throw error;
  }
  return "done";
}

/** Runs the job, shows some other commands, and deletes the sandbox. */
async function use(sandbox, env) {
  const client = (...args) => [berth, args, { signal, env }];
  show(`berth exec ${sandbox} -- python3 - < scripts/demo/mandelbrot.py`);
  const stdin = readFileSync(path.join(root, "scripts", "demo", "mandelbrot.py"));
  const result = await stream(berth, ["exec", sandbox, "--", "python3", "-"], {
    signal,
    env,
    stdin,
  });
  console.log(
    `\n  exit code ${result.code}; ${result.bytes} bytes in ${result.pieces} chunks, the first after ` +
      `${seconds(result.firstMs ?? 0)}, the last after ${seconds(result.ms)}`,
  );
  if (result.code !== 0 || result.pieces < 2) throw new Stop("The job failed.");

  for (const args of [
    ["exec", sandbox, "--", "sh", "-c", "exit 3"],
    ["exec", "--timeout", "1s", sandbox, "--", "sleep", "60"],
  ]) {
    show(`berth ${args.map((arg) => (/[\s']/.test(arg) ? `'${arg}'` : arg)).join(" ")}`);
    const { code, tail } = await run(...client(...args));
    console.log(`  exit code ${code}${tail ? `\n  ${tail}` : ""}`);
    if (code !== (args.includes("--timeout") ? 124 : 3)) throw new Stop("Unexpected exit code.");
  }
  for (const args of [["ls"], ["stats"], ["rm", sandbox]]) {
    show(`berth ${args.join(" ")}`);
    const { code, stdout, tail } = await run(...client(...args));
    if (code !== 0) throw new Stop(tail);
    console.log(stdout.trimEnd().replace(/^/gm, "  "));
  }
}

async function stopServer() {
  const code = await server.stop(STOP_MS);
  if (code !== 0) throw new Stop(`The service exited with ${code}:\n${server.log()}`);
}

/** Stops what still runs, and removes what is left. */
async function cleanUp() {
  if (server === undefined) return;
  await server.stop(STOP_MS);
  rmSync(dataDir, { recursive: true, force: true });
  const left = await containers();
  if (left.length > 0) await run("docker", ["rm", "--force", "--volumes", ...left]);
}

async function containers() {
  if (engine !== "docker") return [];
  const { stdout } = await run("docker", [
    "ps",
    "--all",
    "--quiet",
    "--filter",
    `label=berth.instance=${instance}`,
  ]);
  return stdout.split("\n").filter(Boolean);
}

/** Announces a step, runs it, and prints how long it took. */
async function step(number, name, how, work) {
  console.log(`\n[${number}/${STEPS}] ${name}: ${how}`);
  const started = performance.now();
  const timer = setInterval(() => {
    if (number < 3) console.log(`  … ${seconds(performance.now() - started)}`);
  }, 15_000);
  try {
    const result = await work();
    console.log(`  ${number < 4 ? `${result}, ` : ""}${seconds(performance.now() - started)}`);
    return result;
  } finally {
    clearInterval(timer);
  }
}

async function must(command, args, problem) {
  const { code, tail } = await run(command, args, { signal, cwd: root });
  if (code !== 0) throw new Stop(`${problem}\n${tail}`);
}

function consent() {
  return yes ? ["--yes"] : [];
}

function show(command) {
  console.log(`\n  $ ${command}`);
}

function seconds(ms) {
  return `${(ms / 1000).toFixed(1)} s`;
}

function nextSteps(image) {
  const option =
    engine === "bubblewrap" ? " --engine bubblewrap" : image === OWN_IMAGE ? ` --default-image ${image}` : "";
  return `
What to try next. First, in a separate terminal:

  bin/berth serve${option}

then

  bin/berth run -- python3 -c 'print(6 * 7)'
  curl -H 'content-type: application/json' -d '{"sandboxId": "mine"}' \\
    http://127.0.0.1:7070/berth.v1.SandboxService/CreateSandbox
  curl -H 'content-type: application/json' -d '{"sandboxId": "mine", "shell": "id; uname -r"}' \\
    http://127.0.0.1:7070/berth.v1.ProcessService/RunCommand     # output in base64, as bytes are in JSON
  npx buf curl --protocol grpc --http2-prior-knowledge -d '{"sandboxId": "mine", "shell": "seq 3"}' \\
    http://127.0.0.1:7070/berth.v1.ProcessService/Exec           # a stream, by reflection
  grpcurl -plaintext 127.0.0.1:7070 list
  bin/berth rm mine

README.md has more.`;
}
