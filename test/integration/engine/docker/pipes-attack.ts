import path from "node:path";
import { DockerEngine } from "../../../../src/engine/docker/engine.ts";
import type { Engine, EngineSandboxSpec, OutputSink } from "../../../../src/engine/port.ts";
import { Lane } from "../../../../src/processes/shell/lane.ts";
import { containerOf, rawExec } from "../../../support/docker.ts";

/** The attacker, and the user attacked besides root. */
const ATTACKER = "1000";
const OTHER_USER = "2000";
const ROUNDS = 5;
const NOBODY_LISTENS: OutputSink = { data() {}, end() {} };

/**
 * Opens the pipes of the zygote, and every pipe whose name it learns from arguments, environments and open files, of
 * all processes or only of its own. From each name it derives those that differ in the last letter. Says when it has
 * looked for the first time. Ends on request, or after 60 s.
 */
const ATTACK = `
import glob, json, os, re, sys, time
own = sys.argv[1] == "own"
tried, opened, looked = set(), [], 0
def attempt(path):
    for mode, text in ((os.O_WRONLY, b"\\ntouch /tmp/root-was-here\\n"), (os.O_RDONLY, None)):
        try:
            fd = os.open(path, mode | os.O_NONBLOCK)
        except OSError:
            continue
        opened.append(path)
        if text: os.write(fd, text)
        os.close(fd)
def learn(text):
    for name in re.findall(rb"/run/berth-pipes/([0-9a-f]{8,})", text):
        for letter in "ioe":
            path = "/run/berth-pipes/" + name.decode() + letter
            if path not in tried:
                tried.add(path)
                attempt(path)
for name in ("requests", "answers"): attempt("/run/berth-pipes/" + name)
end = time.time() + 60
while True:
    for directory in ["/proc/self"] if own else glob.glob("/proc/[0-9]*"):
        looked += 1
        for name in ["/cmdline", "/environ"]:
            try: learn(open(directory + name, "rb").read())
            except OSError: pass
        for link in glob.glob(directory + "/fd/*"):
            try: learn(os.readlink(link).encode())
            except OSError: pass
    if own or os.path.exists("/tmp/stop") and looked > 100 or time.time() > end: break
    if not os.path.exists("/tmp/looks"): open("/tmp/looks", "w").close()
print(json.dumps({"looked": looked, "tried": len(tried), "opened": opened}))
`;

/** The results of an attacker. */
interface Attack {
  readonly looked: number;
  readonly tried: number;
  readonly opened: readonly string[];
}

/** The results of attacks on the pipes of root and of another user. */
export interface Attacked {
  /** By a user who continuously inspects all processes. */
  readonly polling: Attack;
  /** By a program that root started as that user, with root's own output. */
  readonly inheriting: Attack;
  /** Whether something ran as root that only the attackers requested. */
  readonly rootWasHere: boolean;
  /** The answers of the attacked shells afterwards. */
  readonly answers: readonly string[];
}

/** Attacks the pipes of lanes and jobs from inside a sandbox. */
export async function attackPipes(
  engine: Engine,
  instance: string,
  sandbox: EngineSandboxSpec,
): Promise<Attacked> {
  const { ref } = await engine.create(sandbox);
  const container = await containerOf(instance, sandbox.sandboxId);
  const attackAs = (how: string): string[] => [
    ...["setpriv", `--reuid=${ATTACKER}`, `--regid=${ATTACKER}`, "--clear-groups"],
    ...["python3", "-c", ATTACK, how],
  ];
  const poller = rawExec(container, attackAs("all"));
  const asRoot = async (command: string): Promise<string> =>
    (await rawExec(container, ["sh", "-c", command])).stdout.toString();
  await asRoot("until [ -e /tmp/looks ]; do sleep 0.05; done");
  const nobody = { freed: () => {}, parked: () => {}, died: () => {} };
  const lanes: Lane[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    for (const user of ["", OTHER_USER]) {
      const leased = { ref, user } as Parameters<typeof Lane.open>[1];
      lanes.push(await Lane.open(engine, leased, user, nobody, new AbortController().signal));
      const job = { argv: ["/bin/sh", "-c", "cat >/dev/null"], user, stdin: true };
      const spawned = await engine.spawn(ref, job, NOBODY_LISTENS);
      spawned.close();
    }
  }
  await asRoot("touch /tmp/stop");
  const polling = (await poller).stdout.toString();
  const inheriting = await outputOf(engine, ref, ["/bin/sh", "-c", 'exec "$@"', "sh", ...attackAs("own")]);
  const answers = await Promise.all(lanes.map((lane) => lane.ask("_r=ok")));
  const found = await asRoot("[ -e /tmp/root-was-here ] && echo yes || echo no");
  await engine.remove(ref);
  return {
    polling: attackIn(polling),
    inheriting: attackIn(inheriting),
    rootWasHere: found !== "no\n",
    answers,
  };
}

/** The report of an attack, among what it may have injected. */
function attackIn(output: string): Attack {
  return JSON.parse(/^\{.*\}$/m.exec(output)?.[0] ?? "{}");
}

async function outputOf(engine: Engine, ref: string, argv: readonly string[]): Promise<string> {
  let output = "";
  const over = Promise.withResolvers<void>();
  const sink: OutputSink = {
    data: (_, chunk) => {
      output += chunk;
    },
    end: () => over.resolve(),
  };
  await engine.spawn(ref, { argv, stdin: false }, sink);
  await over.promise;
  return output;
}

// pipes-attack.ts INSTANCE SPEC: the same by a service that the current user runs; prints the results.
const [, program, instance, sandbox] = process.argv;
if (program === import.meta.filename && instance !== undefined && sandbox !== undefined) {
  const logger = { debug() {}, info() {}, warn() {}, error() {} };
  const pipesDir = path.join(process.env.HOME ?? "", "pipes");
  const engine = new DockerEngine({ instance, logger, pipesDir });
  const attacked = await attackPipes(engine, instance, JSON.parse(sandbox)).finally(() => engine.close());
  process.stdout.write(JSON.stringify(attacked));
}
