import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, describe, expect, onTestFinished, test } from "vitest";
import { DockerEngine } from "../../../../src/engine/docker/engine.ts";
import { containersOf, docker, removeContainers } from "../../../support/docker.ts";
import { eventually } from "../../../support/eventually.ts";
import { settled } from "../../../support/manual-clock.ts";
import { failure, run, silent, spec, useEngine } from "./support.ts";

const DOCKER_SOCKET = "/var/run/docker.sock";
const dir = mkdtempSync(path.join(tmpdir(), "berth-proxy-"));
const { engine: direct, instance } = useEngine();

afterEach(() => removeContainers(instance));

afterAll(() => rmSync(dir, { recursive: true, force: true }));

const HOUR_MS = 3_600_000;
/** Longer than a test may take, so that a call which uses one of these timeouts fails its test. */
const HOURS = {
  createMs: HOUR_MS,
  startMs: HOUR_MS,
  readyMs: HOUR_MS,
  registryMs: HOUR_MS,
  pullStallMs: HOUR_MS,
};

const FAILURE = `HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{"message":"no"}`;

/** A socket in front of Docker's that can stop forwarding responses, fail some requests, or break. */
class FaultProxy {
  readonly path = path.join(dir, `${Math.random().toString(36).slice(2)}.sock`);
  readonly #clients = new Set<Socket>();
  readonly #server = createServer((client) => {
    this.#clients.add(client);
    const daemon = connect(DOCKER_SOCKET);
    for (const socket of [client, daemon]) socket.on("error", () => {});
    client.on("data", (chunk) => {
      if (this.fails?.test(chunk.toString("latin1")) !== true) daemon.write(chunk);
      else {
        this.failed++;
        if (this.answersFailed) client.write(FAILURE);
      }
    });
    client.on("end", () => daemon.end());
    daemon.on("data", (chunk) => {
      if (!this.hangs) client.write(chunk);
    });
    daemon.on("end", () => client.end());
    client.on("close", () => {
      this.#clients.delete(client);
      daemon.destroy();
    });
  });
  hangs = false;
  /** Requests that it does not forward, how many there were, and whether it answers them with an error. */
  fails: RegExp | undefined;
  failed = 0;
  answersFailed = true;

  /** Listens at its path, or at a free TCP port. Returns its address as in `DOCKER_HOST`. */
  async listen(over: "unix" | "tcp" = "unix"): Promise<string> {
    const at = over === "unix" ? { path: this.path } : { host: "127.0.0.1", port: 0 };
    await new Promise<void>((resolve) => this.#server.listen(at, resolve));
    onTestFinished(() => {
      this.cut();
      this.#server.close();
    });
    const address = this.#server.address();
    return typeof address === "object" ? `tcp://127.0.0.1:${address?.port}` : `unix://${address}`;
  }

  get connections(): number {
    return this.#clients.size;
  }

  /** Breaks every connection and accepts no new one, as if the daemon had died. */
  die(): void {
    this.#server.close();
    this.cut();
  }

  cut(): void {
    for (const client of this.#clients) client.destroy();
  }
}

async function proxied(timeouts = {}): Promise<{ engine: DockerEngine; proxy: FaultProxy }> {
  const proxy = new FaultProxy();
  const host = await proxy.listen();
  const engine = new DockerEngine({ instance, logger: silent, host, timeouts });
  onTestFinished(() => engine.close());
  return { engine, proxy };
}

describe("without a daemon", () => {
  test("every call says so, and what to do", async () => {
    const engine = new DockerEngine({ instance, logger: silent, host: `unix://${dir}/nobody.sock` });
    const calls = [
      engine.info(),
      engine.list(),
      engine.ensureImage("debian", {}),
      engine.create(spec()),
      engine.remove("x"),
      engine.pause("x"),
      engine.usage("x"),
      engine.spawn("x", { argv: ["true"], stdin: false }, { data() {}, end() {} }),
      engine.events(new AbortController().signal)[Symbol.asyncIterator]().next(),
    ];
    for (const error of await Promise.all(calls.map((call) => failure(call, "ENGINE_UNAVAILABLE")))) {
      expect(error.message).toContain("Docker is not running. Start it");
      expect(error.message).not.toContain(dir);
    }
    await engine.close();
  });
});

describe("with a daemon that hangs", () => {
  test("every call ends in time and leaves no connection", async () => {
    const { engine, proxy } = await proxied({ ...HOURS, callMs: 300, removeMs: 300 });
    // A busy machine may be late with an answer.
    await eventually(() => engine.info().catch(() => undefined));
    const { ref } = await direct.create(spec());
    proxy.hangs = true;
    const calls = [
      engine.info(),
      engine.list(),
      engine.ensureImage("debian", {}),
      engine.remove(ref),
      engine.usage(ref),
      engine.spawn(ref, { argv: ["true"], stdin: false }, { data() {}, end() {} }),
      engine.events(new AbortController().signal)[Symbol.asyncIterator]().next(),
    ];
    for (const error of await Promise.all(calls.map((call) => failure(call, "ENGINE_UNAVAILABLE")))) {
      expect(error.message).toContain("Docker did not answer in time");
    }
    await expect.poll(() => proxy.connections).toBeLessThanOrEqual(1);
    await failure(engine.list(AbortSignal.timeout(50)), "CANCELED");
    proxy.hangs = false;
  });

  test("a create without an answer leaves no container once the daemon is back", async () => {
    const { engine, proxy } = await proxied({ createMs: 300, callMs: 2000, removeMs: 2000 });
    await eventually(() => engine.info().catch(() => undefined));
    const creating = engine.create(spec());
    await sleep(2);
    proxy.hangs = true;
    await failure(creating, "ENGINE_UNAVAILABLE");
    proxy.hangs = false;
    await expect.poll(() => containersOf(instance)).toEqual([]);
  });
});

describe("with a connection that breaks", () => {
  test("a process's output ends with an error when the daemon dies", async () => {
    const { engine, proxy } = await proxied();
    const { ref } = await engine.create(spec());
    const ended = Promise.withResolvers<Error | undefined>();
    const request = { argv: ["sleep", "9"], stdin: false };
    const spawned = await engine.spawn(ref, request, { data() {}, end: ended.resolve });
    const waiting = failure(spawned.wait(), "ENGINE_UNAVAILABLE");
    proxy.die();
    expect(await ended.promise).toMatchObject({ reason: "ENGINE_UNAVAILABLE" });
    await waiting;
  });

  test("calls continue with the next one", async () => {
    const { engine, proxy } = await proxied();
    const { ref } = await engine.create(spec());
    proxy.cut();
    await expect.poll(() => proxy.connections).toBe(0);
    // The engine has its ends of the connections in this process too, and notices a turn later.
    await settled();
    expect((await run(engine, ref, ["true"])).exitCode).toBe(0);
  });

  test("an exit code that Docker invents then is not trusted", async () => {
    const { engine } = await proxied();
    const { ref } = await engine.create(spec());
    const argv = ["sh", "-c", "i=0; while [ $i -lt 50 ]; do sleep 0.1; echo $((i += 1)); done"];
    const spawned = await engine.spawn(ref, { argv, stdin: false }, { data() {}, end() {} });
    await engine.close();
    await failure(spawned.wait(), "ENGINE_UNAVAILABLE");
  });

  test("events without a listener are dropped", async () => {
    const { engine, proxy } = await proxied();
    const abort = new AbortController();
    engine.events(abort.signal);
    await expect.poll(() => proxy.connections).toBe(1);
    await sleep(100);
    abort.abort();
    await expect.poll(() => proxy.connections).toBe(0);
  });

  test("events end with an error", async () => {
    const { engine, proxy } = await proxied();
    const next = engine.events(new AbortController().signal)[Symbol.asyncIterator]().next();
    await expect.poll(() => proxy.connections).toBe(1);
    await sleep(100);
    proxy.cut();
    await failure(next, "ENGINE_UNAVAILABLE");
  });
});

describe.each([
  ["with an error", true],
  ["never", false],
])("a question that is answered %s", (_, answersFailed) => {
  const given = async () => {
    const { engine, proxy } = await proxied({ callMs: 1_000 });
    proxy.answersFailed = answersFailed;
    return { engine, proxy };
  };

  test("how a container ended keeps no other container from being listed", async () => {
    const { engine, proxy } = await given();
    const refs = [await engine.create(spec()), await engine.create(spec())].map(({ ref }) => ref);
    const [gone = "", running = ""] = refs;
    const abort = new AbortController();
    const next = engine.events(abort.signal)[Symbol.asyncIterator]().next();
    next.catch(() => {});
    proxy.fails = new RegExp(`^GET /containers/${gone}/json`);
    await docker.getContainer(gone).kill();
    const end = { exitCode: -1, outOfMemory: false, cause: expect.stringContaining("how it ended") };
    await expect(next).resolves.toMatchObject({ value: { type: "ended", ref: gone, end } });
    await expect(engine.list()).resolves.toEqual(
      expect.arrayContaining([
        expect.objectContaining({ ref: gone, state: "ended", end }),
        expect.objectContaining({ ref: running, state: "running" }),
      ]),
    );
    abort.abort();
  });

  test("how a process ended does not end it", async () => {
    const { engine, proxy } = await given();
    const { ref } = await engine.create(spec());
    const argv = ["sh", "-c", "read x; exit 5"];
    const spawned = await engine.spawn(ref, { argv, stdin: true }, { data() {}, end() {} });
    proxy.fails = /^GET \/exec\//;
    const waiting = spawned.wait();
    waiting.catch(() => {});
    await expect.poll(() => proxy.failed, { timeout: 20_000 }).toBeGreaterThan(1);
    proxy.fails = undefined;
    await spawned.writeStdin(Buffer.from("\n"));
    await expect(waiting).resolves.toBe(5);
  });
});

describe("what a container uses", () => {
  test("is read from its control groups, which a daemon that hangs does not delay", async () => {
    const { engine, proxy } = await proxied();
    const { ref } = await engine.create(spec());
    // Processes that start the container may still be there for a moment.
    await expect.poll(async () => (await engine.usage(ref)).pids).toBe(2);
    proxy.hangs = true;
    await expect(engine.usage(ref)).resolves.toMatchObject({ pids: 2 });
    proxy.hangs = false;
  });

  test("is what Docker says, where its control groups are not accessible", async () => {
    const { engine } = await proxied();
    const { ref } = await engine.create(spec());
    const host = await new FaultProxy().listen("tcp");
    const remote = new DockerEngine({ instance, logger: silent, host });
    onTestFinished(() => remote.close());
    // The container is idle once its first processes have started.
    await expect.poll(async () => (await engine.usage(ref)).pids).toBe(2);
    const before = await engine.usage(ref);
    const told = await remote.usage(ref);
    const after = await engine.usage(ref);
    expect(told.pids).toBe(2);
    expect(told.cpuNanos).toBeGreaterThanOrEqual(before.cpuNanos - 50e6);
    expect(told.cpuNanos).toBeLessThanOrEqual(after.cpuNanos);
    expect(Math.abs(told.memoryBytes - after.memoryBytes)).toBeLessThan(1 << 20);
    await engine.remove(ref);
    await failure(remote.usage(ref), "SANDBOX_TERMINATED");
  });
});
