import { afterAll, beforeAll, expect, test } from "vitest";
import { Client } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { berthKubeconfig, kubectl, NAMESPACE } from "../../support/kubernetes.ts";
import { ServeProcess } from "../../support/program.ts";

/** How many commands run when the service is killed. */
const EXECS = 50;
const OPTIONS = ["--engine", "kubernetes", "--network-policy", "open"];

let service: ServeProcess;
let client: Client;

beforeAll(async () => {
  service = await ServeProcess.start([...OPTIONS, "--kubeconfig", berthKubeconfig()]);
  client = new Client(service.address);
});

afterAll(async () => {
  client.close();
  await service.stop();
  expect(await podsOf(service.instance)).toEqual(new Map());
});

/** The pods of an instance's sandboxes: pod names by sandbox id. */
async function podsOf(instance: string): Promise<Map<string, string>> {
  const selector = `--selector=berth.dev/instance=${instance},berth.dev/role=sandbox`;
  const { items } = JSON.parse(
    await kubectl(["get", "pods", `--namespace=${NAMESPACE}`, selector, "--output=json"]),
  ) as { items: { metadata: { name: string; annotations: Record<string, string> } }[] };
  return new Map(
    items.map(({ metadata }) => [metadata.annotations["berth.dev/sandbox-id"] ?? "", metadata.name]),
  );
}

/** The ids of the sandboxes that the service considers live, with their states. */
async function statesOf(ids: readonly string[]): Promise<Map<string, string>> {
  const states = await Promise.all(ids.map(async (id) => [id, (await client.getSandbox(id)).state] as const));
  return new Map(states);
}

test("a service that is killed amid commands, creates and deletes reports nothing false and leaves no pod", async () => {
  const { sandbox_id: id } = await client.createSandbox({});
  const doomed = await Promise.all(
    Array.from({ length: 3 }, async () => (await client.createSandbox({})).sandbox_id),
  );
  const codes: (number | undefined)[] = [];
  // Each records in a file what it did, whether or not its end is reported.
  const execs = Array.from({ length: EXECS }, async (_, i) => {
    const script = `sleep ${1 + (i % 7) / 5}; echo ${i} >>/tmp/ended; exit ${i}`;
    codes[i] = await client.run(id, script).then(
      ({ exit_status: exit }) => exit.exit_code,
      () => undefined,
    );
  });
  await eventually(() => codes.filter((code) => code !== undefined).length >= EXECS / 5, {
    timeoutMs: 60_000,
  });
  const creates = Array.from({ length: 3 }, (_, i) =>
    client.call("SandboxService/CreateSandbox", { sandbox_id: `made-${i}` }).then(
      () => true,
      () => false,
    ),
  );
  const deletes = doomed.map((name) => client.deleteSandbox(name).catch(() => {}));
  // Kubernetes has started the creates.
  await eventually(async () => (await podsOf(service.instance)).has("made-0"), { timeoutMs: 30_000 });
  const killedAt = performance.now();
  client.close();
  await service.stop("SIGKILL");
  await Promise.all([...execs, ...deletes]);
  const answered = await Promise.all(creates);
  service = await service.again([...OPTIONS, "--kubeconfig", berthKubeconfig()]);
  client = new Client(service.address);
  const startedMs = performance.now() - killedAt;

  for (const [i, code] of codes.entries()) if (code !== undefined) expect(code).toBe(i);
  // The sandbox still has the file, and works.
  const ended = (await client.output(id, "cat /tmp/ended")).split("\n");
  for (const [i, code] of codes.entries()) if (code !== undefined) expect(ended).toContain(String(i));
  const usableMs = performance.now() - killedAt;
  const told = codes.filter((code) => code !== undefined).length;
  console.info(
    `${told} of ${EXECS} ended before; started after ${startedMs.toFixed(0)} ms, a command ran after ${usableMs.toFixed(0)}`,
  );

  // Every deletion is complete, every create has succeeded or failed, and only live sandboxes have pods.
  await eventually(
    async () => {
      const states = await statesOf([id, ...doomed]);
      return doomed.every((name) => states.get(name) === "SANDBOX_STATE_TERMINATED");
    },
    { timeoutMs: 60_000 },
  );
  const made = new Map(
    await Promise.all(
      answered.map(async (wasAnswered, i) => {
        const name = `made-${i}`;
        const found = await client.getSandbox(name).catch(() => undefined);
        if (wasAnswered) expect(found?.state).toBe("SANDBOX_STATE_RUNNING");
        return [name, found?.state] as const;
      }),
    ),
  );
  const live = [
    id,
    ...[...made].filter(([, state]) => state === "SANDBOX_STATE_RUNNING").map(([name]) => name),
  ];
  await eventually(
    async () => {
      const pods = await podsOf(service.instance);
      return pods.size === live.length && live.every((name) => pods.has(name));
    },
    { timeoutMs: 60_000 },
  );
  for (const name of live) await client.deleteSandbox(name);
}, 240_000);

test("a service that is killed while it checks an image leaves no pod of the check", async () => {
  const options = [...OPTIONS, "--kubeconfig", berthKubeconfig()];
  // Without a node for it, the pod stays pending for long enough.
  let own = await ServeProcess.start([...options, "--node-selector", "nowhere=yes"]);
  try {
    const caller = new Client(own.address);
    const creating = caller.createSandbox({}).catch(() => {});
    await eventually(async () => (await namesOf(own.instance)).length === 1, { timeoutMs: 30_000 });
    caller.close();
    await own.stop("SIGKILL");
    await creating;
    own = await own.again(options);
    await expect.poll(() => namesOf(own.instance), { timeout: 30_000 }).toEqual([]);
  } finally {
    await own.dispose();
  }
}, 120_000);

/** Names of all pods of an instance. */
async function namesOf(instance: string): Promise<string[]> {
  const selector = `--selector=berth.dev/instance=${instance}`;
  const names = await kubectl(["get", "pods", `--namespace=${NAMESPACE}`, selector, "--output=name"]);
  return names.split("\n").filter((name) => name !== "");
}
