import { createHash, randomBytes, randomUUID } from "node:crypto";
import { getEventListeners } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Readable } from "node:stream";
import { setImmediate } from "node:timers/promises";
import { inspect } from "node:util";
import { runInNewContext } from "node:vm";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import {
  Agent,
  Berth,
  BerthError,
  CommandError,
  type Sandbox,
} from "../../../clients/typescript/src/node.ts";
import { Berth as WebBerth } from "../../../clients/typescript/src/web.ts";
import { eventually } from "../../support/eventually.ts";
import { ServeProcess } from "../../support/program.ts";

let service: ServeProcess;
let berth: Berth;
let sandbox: Sandbox;

beforeAll(async () => {
  service = await ServeProcess.start([], { BERTH_ENGINE: "bubblewrap" });
  berth = Berth.connect(service.address, { token: "" });
  sandbox = await berth.sandboxes.create();
});

afterAll(async () => {
  await berth?.close();
  await service?.dispose();
});

const decoded = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
const ended = async (processId: string): Promise<boolean> =>
  (await sandbox.process(processId)).status !== undefined;

test("creates a sandbox, which the end of a block deletes", async () => {
  let sandboxId: string;
  {
    await using made = await berth.sandboxes.create({
      labels: { test: "block" },
      memoryBytes: 64 << 20,
      idleTimeoutMs: 90_500,
    });
    sandboxId = made.sandboxId;
    expect(made.info).toMatchObject({ state: "RUNNING", generation: 1, engine: "bubblewrap" });
    expect(made.info.spec).toMatchObject({ memoryBytes: 64 << 20, idleTimeoutMs: 90_500, network: "NONE" });
    expect(made.info.createTime).toBeInstanceOf(Date);
    const listed = await berth.sandboxes.list({ labels: { test: "block" } });
    expect(listed.map((each) => each.sandboxId)).toEqual([sandboxId]);
    await made.update({ labels: { test: "other" } });
    expect(made.info.spec.labels).toEqual({ test: "other" });
  }
  expect((await berth.sandboxes.get(sandboxId)).info).toMatchObject({
    state: "TERMINATED",
    termination: { cause: "DELETED" },
  });
});

test("no call reaches a later sandbox with the same id", async () => {
  const sandboxId = "job-7";
  const first = await berth.sandboxes.create({ sandboxId });
  await berth.sandboxes.delete(sandboxId, { graceMs: 0 });
  await using second = await berth.sandboxes.create({ sandboxId });
  await second.files.write("kept", "of the second");
  const { files } = first;
  const calls: Record<string, () => Promise<unknown>> = {
    refresh: () => first.refresh(),
    usage: () => first.usage(),
    keepAlive: () => first.keepAlive(),
    update: () => first.update({ labels: { of: "the first" } }),
    pause: () => first.pause(),
    resume: () => first.resume(),
    run: () => first.run("rm kept"),
    exec: () => first.exec("rm kept").result(),
    detached: () => first.exec("rm kept", { detach: true }).start(),
    read: () => files.read("kept"),
    write: () => files.write("kept", ""),
    append: () => files.write("kept", "and more", { append: true }),
    upload: () => files.upload("kept", ""),
    download: () => new Response(files.download("kept")).text(),
    uploadArchive: () => files.uploadArchive(new Uint8Array(1024)),
    downloadArchive: () => new Response(files.downloadArchive(".")).text(),
    stat: () => files.stat("kept"),
    exists: () => files.exists("kept"),
    list: () => files.list(),
    mkdir: () => files.mkdir("directory"),
    move: () => files.move("kept", "moved"),
    remove: () => files.remove("kept"),
    watch: () => files.watch().start(),
  };
  const others = Object.entries(calls).map(async ([name, call]) => {
    const refusal = await call().catch((error: unknown) => error);
    return BerthError.is(refusal, "SANDBOX_REPLACED") ? [] : [name];
  });
  expect((await Promise.all(others)).flat()).toEqual([]);
  // The first one is gone, as its deletion should have it.
  await expect(first.delete()).resolves.toBeUndefined();
  await expect(first[Symbol.asyncDispose]()).resolves.toBeUndefined();
  expect((await second.refresh()).state).toBe("RUNNING");
  expect(await (await berth.sandboxes.get(sandboxId)).files.readText("kept")).toBe("of the second");
});

test("measures what a sandbox uses, which is not a use of it", async () => {
  await using made = await berth.sandboxes.create({ memoryBytes: 200 << 20, cpuMillis: 1000, pidsLimit: 90 });
  const { lastUsedTime } = made.info;
  const idle = await made.usage();
  expect(idle).toMatchObject({ memoryLimitBytes: 200 << 20, cpuLimitMillis: 1000, processLimit: 90 });
  expect(idle.processes).toBeGreaterThan(0);
  expect((await made.refresh()).lastUsedTime).toEqual(lastUsedTime);
  await using _busy = await made.exec(["python3", "-c", "x = bytearray(64 << 20)\nwhile True: pass"]).start();
  await expect.poll(async () => (await made.usage()).memoryBytes).toBeGreaterThan(64 << 20);
  await expect.poll(async () => (await made.usage()).cpuTimeMs).toBeGreaterThan(idle.cpuTimeMs + 200);
  const busy = await made.usage();
  expect(busy.processes).toBeGreaterThan(idle.processes);
  expect(busy.measureTime.getTime()).toBeGreaterThan(idle.measureTime.getTime());
  await made.delete({ graceMs: 0 });
  await expect(made.usage()).rejects.toMatchObject({ reason: "SANDBOX_NOT_RUNNING" });
});

test("runs a command to its end", async () => {
  const result = await sandbox.run("printf out; printf err >&2; exit 3", { env: { A: "b" } });
  expect(result).toMatchObject({ stdout: "out", stderr: "err", exitCode: 3, ok: false, truncated: false });
  expect(result.status.cause).toBe("EXITED");
  await expect(sandbox.run(["false"], { check: true })).rejects.toThrow(CommandError);
  expect((await sandbox.run(["cat"], { stdin: "given" })).stdout).toBe("given");
  const long = await sandbox.run("seq 1000", { maxOutputBytes: 10 });
  const cut = {
    truncated: true,
    stdout: "1\n2\n31000\n",
    stdoutGap: { fromOffset: 5, toOffset: 3888 },
    stderrGap: undefined,
  };
  expect(long).toMatchObject(cut);
  const live = await sandbox.run("seq 1000", { maxOutputBytes: 10, onStdout: () => {} });
  expect(live).toMatchObject(cut);
  expect(live.toJSON()).toMatchObject(cut);
  const rest = await sandbox.attach(live.processId, { stdoutOffset: 2 }).result({ maxOutputBytes: 10 });
  expect(rest).toMatchObject({ stdout: "2\n3\n41000\n", stdoutGap: { fromOffset: 7, toOffset: 3888 } });
});

test("0 as the most output to keep is the default, on every path", async () => {
  const line = "head -c 1100000 /dev/zero | tr '\\0' x";
  const kept = [
    await sandbox.run(line, { maxOutputBytes: 0 }),
    await sandbox.run(line, { maxOutputBytes: 0, onStdout: () => {} }),
    await sandbox.exec(line).result({ maxOutputBytes: 0 }),
  ];
  expect(kept.map(({ stdoutBytes }) => stdoutBytes.length)).toEqual([1 << 20, 1 << 20, 1 << 20]);
});

test("a command gets stdin that is longer than a message may be", async () => {
  const stdin = new Uint8Array(randomBytes((5 << 20) + 1));
  const sum = createHash("sha256").update(stdin).digest("hex");
  const requestId = randomUUID();
  for (const options of [{}, { requestId }, { requestId }, { onStdout: () => {} }]) {
    const result = await sandbox.run("sha256sum; echo end >&2", { stdin, check: true, ...options });
    expect(result.stdout.slice(0, 64)).toBe(sum);
    expect(result.stderr).toBe("end\n");
  }
  // Its output comes while it reads, and more may be written.
  await using process = sandbox.exec("cat", { stdin, keepStdinOpen: true });
  const result = process.result({ maxOutputBytes: 16 << 20 });
  await process.write("more");
  await process.closeStdin();
  expect(Buffer.concat([stdin, Buffer.from("more")]).equals((await result).stdoutBytes)).toBe(true);
  // It need not read all of it.
  expect((await sandbox.run("head -c 3", { stdin: new Uint8Array(30 << 20) })).stdoutBytes.length).toBe(3);
  expect(
    (await sandbox.run("exec sleep 100", { stdin: new Uint8Array(30 << 20), timeoutMs: 300 })).status.cause,
  ).toBe("TIMED_OUT");
  // A detached one has all of it once it has started.
  const detached = await sandbox.exec("sha256sum > sum; sleep 0", { stdin, detach: true }).start();
  expect((await sandbox.attach(detached.processId).wait()).exitCode).toBe(0);
  expect((await sandbox.run("cat sum")).stdout.slice(0, 64)).toBe(sum);
});

test("a result prints its output as text", async () => {
  const result = await sandbox.run("echo hello");
  expect(inspect(result)).toContain("CommandResult {\n  stdout: 'hello\\n',\n  stderr: '',\n  exitCode: 0,");
  expect(JSON.parse(JSON.stringify(result))).toMatchObject({ stdout: "hello\n", exitCode: 0, ok: true });
});

test("names what callers without types get wrong", async () => {
  const given = (value: unknown) => value as never;
  await expect(berth.sandboxes.create({ network: given("egress") })).rejects.toThrow(
    'network is "NONE" or "EGRESS", not "egress".',
  );
  await expect(sandbox.run(given(undefined))).rejects.toThrow("The command must be a string or an array");
  await expect(berth.sandboxes.create({ memoryBytes: given("1GiB") })).rejects.toThrow(
    "memoryBytes must be a whole number, not 1GiB.",
  );
  await expect(sandbox.run("true", { maxOutputBytes: 1.5 })).rejects.toThrow(
    "maxOutputBytes must be a whole number, not 1.5.",
  );
  const env = { UNSET: undefined, SET: "yes" };
  expect((await sandbox.run("echo ${UNSET-unset} $SET", { env })).stdout).toBe("unset yes\n");
  const data = "The data must be a string, a Uint8Array or an ArrayBuffer, not";
  await expect(sandbox.files.write("wrong", given({}))).rejects.toThrow(`${data} Object.`);
  await expect(sandbox.files.upload("wrong", given(null))).rejects.toThrow(`${data} Null.`);
  await using process = await sandbox.exec(["sleep", "1000"]).start();
  await expect(process.signal(given("INT"))).rejects.toThrow(
    '"INT" is not a signal: give its number, or a name such as SIGTERM.',
  );
  await process.signal("SIGINT");
  expect(await process.wait()).toMatchObject({ cause: "SIGNALED", signal: 2 });
});

test("passes output on as it arrives, and returns all of it", async () => {
  const seen: string[] = [];
  const result = await sandbox.run("echo out; echo err >&2", {
    onStdout: async (text) => {
      await Promise.resolve();
      seen.push(`out ${text}`);
    },
    onStderr: (text) => seen.push(`err ${text}`),
  });
  expect(seen.sort()).toEqual(["err err\n", "out out\n"]);
  expect(result).toMatchObject({ stdout: "out\n", stderr: "err\n", ok: true });
});

test("leaving the loop ends the command", async () => {
  const process = sandbox.exec("echo started; exec sleep 1000");
  for await (const { stream, text } of process) {
    expect({ stream, text }).toEqual({ stream: "stdout", text: "started\n" });
    break;
  }
  await eventually(() => ended(process.processId));
  expect((await sandbox.process(process.processId)).status).toMatchObject({ cause: "SIGNALED", signal: 9 });
});

test("a signal ends the command, and is what the loop throws", async () => {
  const stop = new AbortController();
  const process = sandbox.exec("echo started; exec sleep 1000", { signal: stop.signal });
  const reading = (async () => {
    for await (const _ of process) stop.abort(new Error("enough"));
  })();
  await expect(reading).rejects.toThrow("enough");
  await eventually(() => ended(process.processId));
});

test("a signal ends a started command at once, even if nobody reads it", async () => {
  const stop = new AbortController();
  await using process = await sandbox.exec("exec sleep 1000", { signal: stop.signal }).start();
  const kills = vi.spyOn(berth.connection.processes, "signalProcess");
  onTestFinished(() => kills.mockRestore());
  stop.abort(new Error("enough"));
  expect(kills).toHaveBeenCalledOnce();
  await eventually(() => ended(process.processId));
  expect((await sandbox.process(process.processId)).status).toMatchObject({ cause: "SIGNALED", signal: 9 });
  await expect(process.read()).rejects.toThrow("enough");
  await process.end();
  expect(kills).toHaveBeenCalledOnce();
});

test("a signal ends a command of which the client does not know yet that it has started", async () => {
  const other = Berth.connect(service.address, { token: "" });
  onTestFinished(() => other.close());
  const far = await other.sandboxes.get(sandbox.sandboxId);
  const stop = new AbortController();
  const { exec } = other.connection.processes;
  const kills = vi.spyOn(other.connection.processes, "signalProcess");
  let processId = "";
  vi.spyOn(other.connection.processes, "exec").mockImplementationOnce(async function* (request, options) {
    for await (const response of exec(request, options)) {
      if (response.event.case === "started") processId = response.event.value.processId;
      // It has arrived, but nobody has read it.
      stop.abort(new Error("enough"));
      options?.signal?.throwIfAborted();
      yield response;
    }
  });
  await expect(far.exec("exec sleep 1000", { signal: stop.signal }).start()).rejects.toThrow("enough");
  await other.close();
  expect(kills).toHaveBeenCalledOnce();
  vi.restoreAllMocks();
  await eventually(() => ended(processId));
  expect((await sandbox.process(processId)).status).toMatchObject({ cause: "SIGNALED", signal: 9 });
});

test.each(["left", "closed"])(
  "a command whose start is on its way when its reader has %s ends",
  async (how) => {
    const other = Berth.connect(service.address, { token: "" });
    onTestFinished(() => other.close());
    const far = await other.sandboxes.get(sandbox.sandboxId);
    const { exec } = other.connection.processes;
    const { promise: started, resolve: start } = Promise.withResolvers<string>();
    const { promise: arrived, resolve: arrive } = Promise.withResolvers<void>();
    vi.spyOn(other.connection.processes, "exec").mockImplementationOnce(async function* (request, options) {
      const { signal } = options ?? {};
      const aborted = new Promise<void>((resolve) => signal?.addEventListener("abort", () => resolve()));
      for await (const response of exec(request, options)) {
        if (response.event.case === "started") start(response.event.value.processId);
        await Promise.race([arrived, aborted]);
        signal?.throwIfAborted();
        yield response;
      }
    });
    // However long the service would wait for its reader.
    const process = far.exec("exec sleep 1000", { reconnectMs: 600_000 });
    const reading = process.read();
    const processId = await started;
    const end = how === "closed" ? other.close() : process.end();
    expect(await reading).toBeUndefined();
    arrive();
    await end;
    await other.close();
    await expect.poll(() => ended(processId)).toBe(true);
    expect((await sandbox.process(processId)).status).toMatchObject({ cause: "SIGNALED", signal: 9 });
  },
);

test("a command that the end of its client interrupts is CANCELLED", async () => {
  const other = Berth.connect(service.address, { token: "" });
  const far = await other.sandboxes.get(sandbox.sandboxId);
  const failure = async (call: Promise<unknown>) => call.catch((error: unknown) => error);
  const process = await far.exec("exec sleep 1000").start();
  const ends = [process, far.attach(process.processId)].map((each) => failure(each.wait()));
  await eventually(async () => (await sandbox.processes()).length > 0);
  await other.close();
  const closed = expect.objectContaining({ code: "CANCELLED", message: "The client was closed." });
  expect(await Promise.all(ends)).toEqual([closed, closed]);
});

test("one signal serves many calls at once", async () => {
  const controller = new AbortController();
  const { signal } = controller;
  const calls = Array.from({ length: 20 }, () => sandbox.run("sleep 1000", { signal }));
  await eventually(async () => (await sandbox.processes()).length >= 20);
  // Node 20 warns of more than ten.
  expect(getEventListeners(signal, "abort").length).toBeLessThanOrEqual(10);
  controller.abort(new Error("enough"));
  for (const call of calls) await expect(call).rejects.toThrow("enough");
});

test("characters that are split arrive whole, and invalid UTF-8 as U+FFFD", async () => {
  const texts: string[] = [];
  const line = "printf '\\303'; sleep 0.3; printf '\\251'; sleep 0.3; printf '\\377\\303'";
  for await (const { text } of sandbox.exec(line)) texts.push(text);
  expect(texts.join("")).toBe("é\uFFFD\uFFFD");
});

test("writes to stdin, once and in order, also from a web stream", async () => {
  await using process = await sandbox.exec("cat", { keepStdinOpen: true }).start();
  await Promise.all([process.write("one "), process.write("two ")]);
  await new Response("three").body?.pipeThrough(new TextDecoderStream()).pipeTo(process.stdin());
  const { stdout, ok } = await process.result();
  expect({ stdout, ok }).toEqual({ stdout: "one two three", ok: true });
  await expect(process.write("late")).rejects.toMatchObject({ reason: "PROCESS_STATE" });
});

test("gives a command a terminal that can be resized", async () => {
  await using process = await sandbox
    .exec("stty size; read line; stty size", { terminal: { columns: 90, rows: 30 } })
    .start();
  await process.resize(120, 40);
  await process.write("\n");
  const { stdout } = await process.result();
  // The terminal echoes the typed line, before or after the first size.
  expect(stdout).toMatch(/^(\r\n)?(30 90|40 120)\r\n(\r\n)?40 120\r\n$/);
});

test("leaves a detached command running, which others attach to, signal and wait for", async () => {
  const first = sandbox.exec("echo started; sleep 1000", { detach: true });
  await first.start();
  await first.end();
  const found = await sandbox.processes();
  expect(found.map(({ processId }) => processId)).toContain(first.processId);
  const second = sandbox.attach(first.processId);
  expect((await second.read())?.text).toBe("started\n");
  await second.signal(15);
  expect(await second.wait()).toMatchObject({ cause: "SIGNALED", exitCode: 143, ok: false });
  await second.kill();
  const again = await sandbox.attach(first.processId, { stdoutOffset: 2 }).result();
  expect(again.stdout).toBe("arted\n");
});

test("reads and writes files", async () => {
  const { files } = sandbox;
  expect(await files.write("a/text.txt", "héllo", { mode: 0o600 })).toMatchObject({ size: 6, mode: 0o600 });
  await files.write("a/text.txt", "!", { append: true });
  expect(await files.readText("a/text.txt")).toBe("héllo!");
  expect(decoded(await files.read("a/text.txt", { offset: 3, limit: 2 }))).toBe("ll");
  expect((await files.list("a")).map(({ name, kind }) => [name, kind])).toEqual([["text.txt", "REGULAR"]]);
  await files.move("a/text.txt", "b/text.txt", { createParents: true });
  expect([await files.exists("a/text.txt"), await files.exists("b/text.txt")]).toEqual([false, true]);
  const moved = await files.move("b/", "slash//");
  expect([moved.name, decoded(moved.rawName)]).toEqual(["slash", "slash"]);
  expect(await files.mkdir(new Uint8Array([0xff, 0x2f]))).toMatchObject({
    name: "\ufffd",
    rawName: new Uint8Array([0xff]),
  });
  expect((await files.mkdir("/")).name).toBe("/");
  await files.mkdir("a/deep/er");
  await files.remove("a", { recursive: true });
  await files.remove("a", { allowMissing: true });
  await expect(files.read("a")).rejects.toMatchObject({ reason: "FILE_NOT_FOUND", code: "NOT_FOUND" });
  await files.write("bad.txt", new Uint8Array([0xff]));
  await expect(files.readText("bad.txt")).rejects.toThrow(TypeError);
});

test("transfers files as web streams, of any size", async () => {
  const bytes = new Uint8Array(randomBytes(20 << 20));
  const uploaded = await sandbox.files.upload("big", new Blob([bytes]).stream());
  expect(uploaded.size).toBe(bytes.length);
  expect(Buffer.from(await sandbox.files.read("big")).equals(bytes)).toBe(true);
  const down = new Uint8Array(await new Response(sandbox.files.download("big", { offset: 5 })).arrayBuffer());
  expect(Buffer.from(down).equals(bytes.subarray(5))).toBe(true);
  expect((await sandbox.files.write("big2", bytes)).size).toBe(bytes.length);
  const left = sandbox.files.download("big").getReader();
  expect((await left.read()).value?.length).toBeGreaterThan(0);
  await left.cancel();
  const failing = new ReadableStream({ pull: () => Promise.reject(new Error("torn")) });
  await expect(sandbox.files.upload("big", failing)).rejects.toThrow("torn");
  expect((await sandbox.files.stat("big")).size).toBe(bytes.length);
});

test("an upload writes through a link at the end of its path, on every platform", async () => {
  const web = WebBerth.connect(service.address, { token: "" });
  await using made = await berth.sandboxes.create();
  const { files } = await web.sandboxes.get(made.sandboxId);
  await made.run(
    "mkdir real; echo old > real/file; chmod 600 real/file; ln -s real/file one; ln -s $PWD/one two",
    {
      check: true,
    },
  );
  for (const upload of [made.files, files]) {
    await upload.upload("two", "new");
    expect(await made.files.stat("two", { followSymlink: false })).toMatchObject({ kind: "SYMLINK" });
    expect(await made.files.readText("real/file")).toBe("new");
    expect(await made.files.stat("real/file")).toMatchObject({ kind: "REGULAR", mode: 0o600 });
    await made.files.write("real/file", "old");
  }
  // It may be another directory that ".." is in than the path says.
  await made.run("ln -s ../outside three; ln -s loop loop", { check: true });
  await expect(files.upload("three", "new")).rejects.toMatchObject({ reason: "UNSUPPORTED" });
  await expect(files.upload("loop", "new")).rejects.toMatchObject({ reason: "UNSUPPORTED" });
});

test("an upload that ends early cancels the source that it waits for", async () => {
  const canceled: string[] = [];
  const awaited: string[] = [];
  const stalled = (name: string) =>
    new ReadableStream<Uint8Array>({
      // The upload takes this piece, and then waits for the next.
      start: (controller) => controller.enqueue(new Uint8Array(1)),
      pull: () => {
        awaited.push(name);
        return new Promise(() => {});
      },
      cancel: () => void canceled.push(name),
    });
  const child = new Readable({ read: () => void awaited.push("child") });
  child.once("close", () => canceled.push("child"));
  const stop = new AbortController();
  const { signal } = stop;
  const uploads = [
    sandbox.files.upload("stalled", stalled("file"), { signal }),
    sandbox.files.upload("stalled", child, { signal }),
    sandbox.files.uploadArchive(stalled("archive"), ".", { signal }),
    berth.workspaces.importArchive("stalled", stalled("import"), { signal }),
  ].map((upload) => upload.then(String, (error: Error) => error.message));
  await eventually(() => awaited.length === uploads.length);
  stop.abort(new Error("enough"));
  expect(await Promise.all(uploads)).toEqual(uploads.map(() => "enough"));
  // A stream of Node's reports its end later.
  await setImmediate();
  expect(canceled.sort()).toEqual(["archive", "child", "file", "import"]);
  expect(await sandbox.files.exists("stalled")).toBe(false);
});

test("an upload that never starts cancels its source", async () => {
  const client = Berth.connect(service.address, { token: "" });
  const { files } = await client.sandboxes.get(sandbox.sandboxId);
  const { workspaces } = client;
  const web = WebBerth.connect(service.address, { token: "" });
  const withoutStreams = (await web.sandboxes.get(sandbox.sandboxId)).files;
  const canceled: string[] = [];
  const stream = (name: string) =>
    new ReadableStream<Uint8Array>({ cancel: () => void canceled.push(name) }, { highWaterMark: 0 });
  const items = (name: string) => {
    const iterator = {
      [Symbol.asyncIterator]: () => iterator,
      next: () => Promise.reject(new Error(`${name} was read`)),
      return: async () => ({ done: true, value: void canceled.push(name) }) as const,
    };
    return iterator;
  };
  const child = () => new Readable({ read: () => {} }).once("close", () => canceled.push("child"));
  const upload = (signal?: AbortSignal) =>
    Promise.all(
      [
        files.upload("unread", stream("file"), { signal }),
        files.upload("unread", items("items"), { signal }),
        files.upload("unread", child(), { signal }),
        files.uploadArchive(stream("archive"), ".", { signal }),
        workspaces.importArchive("unread", stream("import"), { signal }),
      ].map((each) => each.then(String, (error: Error) => error.message)),
    );
  const all = ["archive", "child", "file", "import", "items"];
  const stop = AbortSignal.abort(new Error("enough"));
  expect(await upload(stop)).toEqual(all.map(() => "enough"));
  // A stream of Node's reports its end later.
  await setImmediate();
  expect(canceled.splice(0).sort()).toEqual(all);
  await client.close();
  expect(await upload()).toEqual(all.map(() => "This client is closed. Connect again."));
  await setImmediate();
  expect(canceled.splice(0).sort()).toEqual(all);
  await expect(withoutStreams.upload("unread", stream("web"), { signal: stop })).rejects.toThrow("enough");
  await expect(withoutStreams.uploadArchive(stream("unsupported"))).rejects.toThrow("cannot stream");
  expect(canceled).toEqual(["web", "unsupported"]);
});

test("takes buffers and text in every form", async () => {
  const { files } = sandbox;
  await files.write("buffer", new TextEncoder().encode("one").buffer);
  expect(await files.readText("buffer")).toBe("one");
  await files.write("buffer", runInNewContext("new ArrayBuffer(2)"));
  expect(await files.read("buffer")).toEqual(new Uint8Array(2));
  await files.upload("lines", Readable.from(["two\n", Buffer.from("three\n")]));
  expect(await files.readText("lines")).toBe("two\nthree\n");
  await files.upload("lines", new DataView(new ArrayBuffer(3)) as never);
  expect(await files.read("lines")).toEqual(new Uint8Array(3));
});

test("calls with much to send do not hinder each other", async () => {
  const data = new Uint8Array(8 << 20);
  const calls = Array.from({ length: 8 }, async () => {
    const write = sandbox.files.write("parallel", data).then(({ size }) => size);
    const run = sandbox.run("echo on").then(({ stdout }) => stdout);
    return Promise.all([write, run]);
  });
  const answered = { status: "fulfilled", value: [data.length, "on\n"] };
  expect(await Promise.allSettled(calls)).toEqual(calls.map(() => answered));
});

test("a request that is refused for its size harms no later call", async () => {
  const refused = await sandbox
    .run("cat", { env: { LONG: "x".repeat(30 << 20) } })
    .catch((error) => error.reason);
  expect(refused).toBe("MESSAGE_TOO_LARGE");
  expect((await sandbox.run("echo on")).stdout).toBe("on\n");
});

test("does not remove or move the directory in which commands start", async () => {
  await sandbox.files.write("here/kept", "x");
  for (const call of [
    sandbox.files.remove(".", { recursive: true }),
    sandbox.files.remove("here/..", { recursive: true, allowMissing: true }),
    sandbox.files.move(".", "/tmp/there"),
  ]) {
    await expect(call).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining("it is the working directory, where commands start."),
    });
  }
  expect((await sandbox.run("cat here/kept")).stdout).toBe("x");
});

test("transfers archives", async () => {
  await sandbox.files.write("tree/one", "1");
  expect(await sandbox.files.uploadArchive(sandbox.files.downloadArchive("tree"), "copy")).toMatchObject({
    size: 1,
  });
  expect(await sandbox.files.readText("copy/one")).toBe("1");
});

test("watches a directory", async () => {
  await sandbox.files.mkdir("watched");
  await using changes = await sandbox.files.watch("watched", { intervalMs: 100 }).start();
  await sandbox.files.write("watched/new", "x");
  expect(await changes.read()).toMatchObject({ type: "CREATED", path: "new", file: { kind: "REGULAR" } });
});

test("creates sessions and calls their tools", async () => {
  const worker = berth.worker();
  {
    await using mine = worker;
    expect(await mine.create("bash")).toMatchObject([{ status: "CREATED", resourceType: "bash" }]);
    expect(await mine.create(["bash"])).toMatchObject([{ status: "EXISTS" }]);
    await mine.execute("bash:run", { command: "X=5" });
    const result = await mine.execute("bash:run", { command: "echo $X" });
    expect(result).toMatchObject({
      ok: true,
      code: 0,
      data: { stdout: "5\n" },
      meta: { temporarySession: false },
    });
    const streamed = [];
    for await (const each of mine.executeStream("bash:run", { command: "echo out" })) streamed.push(each);
    expect(streamed.map((each) => ("stream" in each ? decoded(each.data) : each.code))).toEqual(["out\n", 0]);
    const batch = await mine.executeBatch([
      { tool: "bash:run", params: { command: "echo $X" } },
      { tool: "bash:nothing" },
    ]);
    expect(batch).toMatchObject([{ data: { stdout: "5\n" } }, { reason: "TOOL_NOT_FOUND" }]);
    expect(await mine.reinitialize("bash")).toMatchObject({ status: "REINITIALIZED", error: undefined });
    expect((await mine.execute("bash:run", { command: "echo $X" })).data).toMatchObject({ stdout: "\n" });
    expect(await mine.refresh()).toMatchObject([{ status: "REFRESHED" }]);
    await expect(mine.view("bash")).rejects.toMatchObject({ reason: "UNSUPPORTED" });
  }
  expect(await worker.list()).toEqual([]);
  const temporary = await worker.execute<{ stdout: string }>("bash:run", { command: "echo once" });
  expect(temporary.data.stdout).toBe("once\n");
  expect(temporary.meta.temporarySession).toBe(true);
  const { tools, resourceTypes } = await berth.sessions.tools();
  expect(tools.map(({ name }) => name)).toContain("bash:run");
  expect(resourceTypes.map(({ name }) => name)).toContain("bash");
});

test("creates workspaces", async () => {
  const { workspaces } = berth;
  const id = "team/typescript";
  const { sandbox: own, reused } = await workspaces.ensureSandbox(id);
  expect(reused).toBe(false);
  await own?.run("echo kept > file.txt", { check: true });
  await workspaces.addTraceRef(id, "trace-1");
  expect(await workspaces.lookupTrace("trace-1")).toMatchObject({ workspaceId: id, refCount: 1 });
  expect(await workspaces.lookupTrace("trace-2")).toBeUndefined();
  const archive = new Uint8Array(await new Response(workspaces.exportArchive(id)).arrayBuffer());
  expect(await workspaces.importArchive("team/copy", archive)).toMatchObject({ size: 5 });
  expect(await workspaces.fork(id, "team/fork")).toMatchObject({ workspaceId: "team/fork", refCount: 0 });
  await expect(workspaces.fork(id, "team/fork")).rejects.toMatchObject({ reason: "WORKSPACE_EXISTS" });
  await own?.run("echo more >> file.txt", { check: true });
  const changes = [];
  for await (const change of workspaces.diff("team/fork", id)) changes.push(change);
  expect(changes).toMatchObject([
    {
      ...{ type: "MODIFIED", path: "file.txt", differences: ["CONTENT"] },
      ...{ baseFile: { kind: "REGULAR", size: 5 }, file: { name: "file.txt", size: 10 } },
    },
  ]);
  await expect(workspaces.diff(id, "team/unknown").next()).rejects.toMatchObject({
    reason: "WORKSPACE_NOT_FOUND",
  });
  await expect(workspaces.cleanup(id)).rejects.toMatchObject({
    reason: "WORKSPACE_IN_USE",
    metadata: { ref_count: "1" },
  });
  expect((await workspaces.get(id, { measureSize: true })).size).toBeGreaterThan(0);
  expect(await workspaces.cleanup(id, { force: true })).toBeUndefined();
  const left = (await workspaces.list()).workspaces.map(({ workspaceId }) => workspaceId);
  // Other tests leave workspaces, too.
  expect(left.filter((name) => name.startsWith("team/"))).toEqual(["team/copy", "team/fork"]);
});

test("supervises runs, and reports how they end", async () => {
  const { runs } = berth;
  const { runId } = await runs.create({ name: "by hand", maxSteps: 2, stepTimeoutMs: 60_000 });
  const { nextStep } = await runs.start(runId, "go");
  await runs.keepAlive(runId, nextStep);
  const first = await runs.report(runId, nextStep, { result: "half" });
  expect(first.nextStep?.step).toBe(2);
  // As a program does that continues another's run.
  const { currentStep } = await runs.get(runId);
  await runs.keepAlive(runId, currentStep);
  const last = await runs.report(runId, currentStep, { result: "all", outcome: "FINISHED" });
  expect(last.runEnd).toMatchObject({ state: "FINISHED", outcome: "FINISHED" });
  const types: string[] = [];
  for await (const { type } of runs.watch(runId)) {
    types.push(type);
    if (type === "ENDED") break;
  }
  expect(types).toEqual(["CREATED", "STARTED", "STEP_REPORTED", "STEP_REPORTED", "ENDED"]);
  expect(await runs.get(runId, { includeMessages: true })).toMatchObject({
    state: "FINISHED",
    steps: [{ result: "half" }, { result: "all", outcome: "FINISHED" }],
    messages: [{ role: "USER", content: "go" }],
  });
  await runs.delete(runId);
  expect((await runs.list()).map((run) => run.runId)).not.toContain(runId);
});

test("reports the events of sandboxes, and the service's figures", async () => {
  const made = await berth.sandboxes.create();
  await made.delete();
  const types: string[] = [];
  for await (const { type, termination } of berth.sandboxes.events({ sandboxId: made.sandboxId })) {
    types.push(type);
    if (type === "TERMINATED") expect(termination?.cause).toBe("DELETED");
    if (type === "TERMINATED") break;
  }
  expect(types).toEqual(["CREATING", "RUNNING", "DELETING", "TERMINATED"]);
  expect(await berth.sandboxes.stats()).toMatchObject({ engine: "bubblewrap", maxSandboxes: 100 });
});

test("an abandoned create leaves nothing", async () => {
  await using other = Berth.connect(service.address);
  const label = { test: "given up" };
  const stop = new AbortController();
  const creating = other.sandboxes.create({ labels: label, signal: stop.signal });
  stop.abort(new Error("changed my mind"));
  await expect(creating).rejects.toThrow("changed my mind");
  await other.close();
  expect(await berth.sandboxes.list({ labels: label })).toEqual([]);
  await expect(other.sandboxes.stats()).rejects.toThrow("closed");
});

test("a command that is being ended when its client is closed ends", async () => {
  const other = Berth.connect(service.address);
  const there = await other.sandboxes.get(sandbox.sandboxId);
  const command = await there.exec("sleep 1000", { reconnectMs: 1_000_000 }).start();
  const ending = command.end();
  await other.close();
  await ending;
  await expect.poll(() => ended(command.processId)).toBe(true);
});

test("a create that still runs when its client is closed leaves nothing", async () => {
  const other = Berth.connect(service.address);
  const { sandboxes, runs } = other.connection;
  const { createSandbox } = sandboxes;
  const { createRun } = runs;
  const created = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  // The service has created it, and its answer is on the way.
  const answerless = async (made: Promise<unknown>, which: number, signal?: AbortSignal) => {
    await made;
    created[which]?.resolve();
    return new Promise<never>((_, reject) => {
      signal?.addEventListener("abort", () => reject(signal.reason));
    });
  };
  vi.spyOn(sandboxes, "createSandbox").mockImplementationOnce((request, options) =>
    answerless(createSandbox(request), 0, options?.signal),
  );
  vi.spyOn(runs, "createRun").mockImplementationOnce((request, options) =>
    answerless(createRun(request), 1, options?.signal),
  );
  const labels = { test: "closed" };
  const creating = [other.sandboxes.create({ labels }), other.runs.create({ name: "closed" })];
  const ends = Promise.allSettled(creating);
  await Promise.all(created.map(({ promise }) => promise));
  vi.restoreAllMocks();
  await other.close();
  expect(await berth.sandboxes.list({ labels })).toEqual([]);
  expect((await berth.runs.list()).filter(({ name }) => name === "closed")).toEqual([]);
  const closed = { status: "rejected", reason: expect.objectContaining({ code: "CANCELLED" }) };
  expect(await ends).toEqual([closed, closed]);
});

test("what a call's time is too short to create is not left behind", async () => {
  await using hasty = Berth.connect(service.address, { timeoutMs: 1 });
  const labels = { test: "hasty" };
  const late = { code: "DEADLINE_EXCEEDED" };
  for (let count = 0; count < 5; count++) {
    await expect(hasty.sandboxes.create({ labels })).rejects.toMatchObject(late);
    await expect(hasty.runs.create({ name: "hasty" })).rejects.toMatchObject(late);
  }
  await hasty.close();
  expect(await berth.sandboxes.list({ labels })).toEqual([]);
  expect((await berth.runs.list()).filter(({ name }) => name === "hasty")).toEqual([]);
});

test("a run that is given up while it is created leaves nothing", async () => {
  await using other = Berth.connect(service.address);
  class Loop extends Agent {
    protected async step(): Promise<string> {
      throw new Error("a run that was given up must not start");
    }
  }
  const names = ["given up by its agent", "given up by its caller"];
  const starts = [
    (signal: AbortSignal) => new Loop(other, { name: names[0] }).run("", { signal }),
    (signal: AbortSignal) => other.runs.create({ name: names[1], signal }),
  ];
  for (const start of starts) {
    const stop = new AbortController();
    const { createRun } = other.connection.runs;
    // The service has created it, and its answer is lost.
    vi.spyOn(other.connection.runs, "createRun").mockImplementationOnce(async (request) => {
      await createRun(request);
      stop.abort(new Error("changed my mind"));
      throw stop.signal.reason;
    });
    await expect(start(stop.signal)).rejects.toThrow("changed my mind");
  }
  vi.restoreAllMocks();
  await other.close();
  const left = (await berth.runs.list()).map(({ name }) => name);
  expect(left.filter((name) => names.includes(name))).toEqual([]);
});

test("an agent that is closed while its run is created does no step and leaves no run", async () => {
  class Loop extends Agent {
    protected async step(): Promise<string> {
      throw new Error("a run that was given up must not start");
    }
  }
  const name = "closed by its agent";
  const agent = new Loop(berth, { name });
  const { createRun } = berth.connection.runs;
  let closing: Promise<void> | undefined;
  vi.spyOn(berth.connection.runs, "createRun").mockImplementationOnce(async (request) => {
    const made = await createRun(request);
    closing = agent.close();
    return made;
  });
  await expect(agent.run()).rejects.toThrow("The agent was closed.");
  vi.restoreAllMocks();
  await closing;
  expect((await berth.runs.list()).filter((run) => run.name === name)).toEqual([]);
  expect([agent.state, agent.runId]).toEqual(["IDLE", ""]);
});

test("connects to a service at a Unix socket", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-typescript-"));
  const address = `unix:${path.join(directory, "berth.sock")}`;
  const local = await ServeProcess.start([], { BERTH_ENGINE: "bubblewrap", BERTH_LISTEN: address });
  try {
    await using client = Berth.connect(address);
    expect((await client.sandboxes.stats()).engine).toBe("bubblewrap");
  } finally {
    await local.dispose();
    await rm(directory, { recursive: true });
  }
});

test("a detached command continues while nobody reads it, and its output can still be read", async () => {
  await using made = await berth.sandboxes.create();
  const command = "head -c 100000000 /dev/zero; touch done";
  const process = await made.exec(command, { detach: true }).start();
  // Against hangs only.
  await eventually(() => made.files.exists("done"), { timeoutMs: 150_000 });
  expect((await process.wait()).stdoutBytes).toBe(100_000_000);
});

test("a write after a failed write is whole", async () => {
  await using made = await berth.sandboxes.create();
  const command = "while [ ! -e go ]; do sleep 0.05; done; cat";
  await using process = await made.exec(command, { keepStdinOpen: true }).start();
  const { processes } = berth.connection;
  const writeStdin = processes.writeStdin.bind(processes);
  const spy = vi.spyOn(processes, "writeStdin");
  onTestFinished(() => spy.mockRestore());
  // Only what nobody reads has little time: a busy machine may need any time for the rest.
  spy.mockImplementation((request, options) => {
    const isPiece = (request.data?.length ?? 0) > 0;
    return writeStdin(request, { ...options, ...(isPiece && { timeoutMs: 1_000 }) });
  });
  await expect(process.write("a".repeat(3_000_000))).rejects.toMatchObject({ code: "DEADLINE_EXCEEDED" });
  spy.mockRestore();
  await made.files.write("go", "");
  const result = process.result({ maxOutputBytes: 16 << 20 });
  await process.write("b".repeat(100_000));
  await process.closeStdin();
  expect((await result).stdout.replace(/^a*/, "") === "b".repeat(100_000)).toBe(true);
});

test("a large file that is replaced during a read is read as one version", async () => {
  await using made = await berth.sandboxes.create();
  const size = 9 << 20;
  await made.files.write("large", "a".repeat(size));
  await made.files.write("other", "b".repeat(size));
  const { files } = berth.connection;
  const readFile = files.readFile.bind(files);
  using spy = vi.spyOn(files, "readFile");
  spy.mockImplementation(async (...given) => {
    const answer = await readFile(...given);
    await made.files.move("other", "large", { overwrite: true });
    return answer;
  });
  expect(Buffer.from(await made.files.read("large")).equals(Buffer.alloc(size, "b"))).toBe(true);
});
