import { once } from "node:events";
import { writeFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import type { AddressInfo, Socket } from "node:net";
import path from "node:path";
import { expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import type { EngineEvent } from "../../../src/engine/port.ts";
import { eventually } from "../../support/eventually.ts";
import { kubectl, NAMESPACE } from "../../support/kubernetes.ts";
import { newDataDir } from "../../support/settings.ts";
import { failure, run, sh, spec } from "../engine/docker/support.ts";
import { openEngine } from "../engine/kubernetes/support.ts";

const { engine, instance } = await openEngine();

const podNames = async (): Promise<string> => {
  const selector = `--selector=berth.dev/instance=${instance}`;
  return kubectl(["get", "pods", `--namespace=${NAMESPACE}`, selector, "--output=name"]);
};

test("a Success of Kubernetes without Berth's mark is not an exit code", async () => {
  const { ref } = await engine.create(spec());
  // As when a kubelet dies: the streams end with a Success, and nothing says how the process ended.
  const unmark = "sed -i -e '/E%s;/d' -e '/^cat >/d' -e 's/^exit 42$/exit 0/' /run/berth/spawn";
  await sh(engine, ref, unmark, "root");
  const outcome = await run(engine, ref, ["sh", "-c", "exit 5"]).then(
    ({ exitCode }) => exitCode,
    (error: unknown) => (error instanceof BerthError ? error.reason : error),
  );
  expect(outcome).toBe("ENGINE_UNAVAILABLE");
  await engine.remove(ref);
});

test("a create that fails leaves no pod", async () => {
  await failure(engine.create(spec({ image: "127.0.0.1:1/none:1", user: "nobody" })), "IMAGE_UNAVAILABLE");
  expect(await podNames()).toBe("");
});

test("events that the API server has forgotten are noticed all the same", async () => {
  await using link = await ApiLink.open();
  const { engine: far, instance: own } = await openEngine({ kubeconfig: link.kubeconfig });
  const events: EngineEvent[] = [];
  const abort = new AbortController();
  let losses = 0;
  // Like the service, it follows again after a broken connection.
  const collecting = (async () => {
    while (!abort.signal.aborted) {
      try {
        for await (const event of far.events(abort.signal)) events.push(event);
      } catch {
        losses++;
      }
    }
  })();
  await far.list();
  // Nothing schedules them, so only this test changes them.
  for (const name of ["early", "late"]) await createPod(own, name);
  const isRemoved = (name: string) =>
    events.some(({ type, ref }) => type === "removed" && ref.startsWith(podOf(own, name)));
  await deletePod(own, "early");
  await eventually(() => isRemoved("early"));

  link.cut();
  await eventually(() => losses > 0);
  const now = await kubectl(["get", "--raw", `/api/v1/namespaces/${NAMESPACE}/pods?limit=1`]);
  link.forgetUpTo(JSON.parse(now).metadata.resourceVersion);
  await deletePod(own, "late");
  await link.restore();

  const isHeard = await eventually(() => isRemoved("late"), { timeoutMs: 20_000 }).catch(() => false);
  expect(isHeard).toBe(true);
  expect(link.forgotten).toBeGreaterThan(0);
  abort.abort();
  await collecting;
});

const podOf = (own: string, name: string): string => `${name}-${own}`;

async function createPod(own: string, name: string): Promise<void> {
  const pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: podOf(own, name),
      labels: { "berth.dev/instance": own, "berth.dev/role": "sandbox" },
    },
    spec: { schedulerName: "nobody", containers: [{ name: "main", image: "x" }] },
  };
  await kubectl(["create", `--namespace=${NAMESPACE}`, "--filename=-"], { input: JSON.stringify(pod) });
}

async function deletePod(own: string, name: string): Promise<void> {
  await kubectl(["delete", "pod", podOf(own, name), `--namespace=${NAMESPACE}`]);
}

/**
 * A proxy in front of the API server that can be cut, and that reports old changes as forgotten like the API server
 * itself.
 */
class ApiLink implements AsyncDisposable {
  readonly kubeconfig: string;
  readonly #server: http.Server;
  readonly #sockets = new Set<Socket>();
  readonly #port: number;
  #forgotten = 0;
  #upTo = 0n;

  private constructor(server: http.Server, config: string) {
    this.#server = server;
    this.#port = (server.address() as AddressInfo).port;
    this.kubeconfig = path.join(newDataDir(), "kubeconfig");
    const parsed = JSON.parse(config);
    const [{ cluster }] = parsed.clusters;
    const target = new URL(cluster.server);
    const ca = Buffer.from(cluster["certificate-authority-data"], "base64");
    // Only the connection between Berth and the proxy is without TLS.
    parsed.clusters[0].cluster = {
      server: `http://127.0.0.1:${this.#port}`,
      "insecure-skip-tls-verify": true,
    };
    writeFileSync(this.kubeconfig, JSON.stringify(parsed));
    server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
    server.on("request", ({ method, url = "", headers }, answer) => {
      const to = new URL(url, target);
      const version = to.searchParams.get("resourceVersion");
      if (to.searchParams.has("watch") && version !== null && BigInt(version) <= this.#upTo) {
        this.#forgotten++;
        to.searchParams.set("resourceVersion", "1");
      }
      const onward = https.request(to, { method, headers: { ...headers, host: to.host }, ca }, (from) => {
        answer.writeHead(from.statusCode ?? 502, from.headers);
        answer.flushHeaders();
        from.pipe(answer);
      });
      onward.on("error", () => answer.destroy());
      answer.once("close", () => onward.destroy());
      onward.end();
    });
  }

  static async open(): Promise<ApiLink> {
    const server = http.createServer();
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return new ApiLink(server, await kubectl(["config", "view", "--raw", "--output=json"], { as: "berth" }));
  }

  /** How many watches asked for forgotten changes. */
  get forgotten(): number {
    return this.#forgotten;
  }

  forgetUpTo(version: string): void {
    this.#upTo = BigInt(version);
  }

  /** Breaks every connection, and accepts no more. */
  cut(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  async restore(): Promise<void> {
    this.#server.listen(this.#port, "127.0.0.1");
    await once(this.#server, "listening");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
  }
}
