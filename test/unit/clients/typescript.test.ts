import { getEventListeners } from "node:events";
import { createReadStream } from "node:fs";
import { copyFile, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { DurationSchema, timestampNow } from "@bufbuild/protobuf/wkt";
import {
  Code,
  ConnectError,
  type ConnectRouter,
  createRouterTransport,
  type ServiceImpl,
} from "@connectrpc/connect";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { parseAddress } from "../../../clients/typescript/src/address.ts";
import { BerthClient } from "../../../clients/typescript/src/client.ts";
import { keyPairOf } from "../../../clients/typescript/src/client-certificate.ts";
import type { ClientSettings } from "../../../clients/typescript/src/connection.ts";
import { duration } from "../../../clients/typescript/src/convert.ts";
import { nameOf } from "../../../clients/typescript/src/enum-name.ts";
import { BerthError, isBroken, isPassing } from "../../../clients/typescript/src/errors.ts";
import { Kept } from "../../../clients/typescript/src/kept.ts";
import { findAccess, type GivenAccess, profilesFile } from "../../../clients/typescript/src/profile.ts";
import { Pauses } from "../../../clients/typescript/src/retry.ts";
import { Sandbox } from "../../../clients/typescript/src/sandbox.ts";
import { piecesOf } from "../../../clients/typescript/src/streams.ts";
import { FileService } from "../../../clients/typescript/src/v1/file_pb.js";
import { ExitCause, OutputStream, ProcessService } from "../../../clients/typescript/src/v1/process_pb.js";
import { RunService } from "../../../clients/typescript/src/v1/run_pb.js";
import { SandboxSchema, SandboxService } from "../../../clients/typescript/src/v1/sandbox_pb.js";
import { SandboxState } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { makeCertificate } from "../../support/certificate.ts";
import { keptBytes } from "../../support/kept-bytes.ts";

test.each([
  ["127.0.0.1:7070", false, "http://127.0.0.1:7070"],
  [":7070", false, "http://127.0.0.1:7070"],
  ["berth.example:7070", true, "https://berth.example:7070"],
  ["[::1]:7070", false, "http://[::1]:7070"],
  ["https://berth.example/", false, "https://berth.example"],
  ["http://berth.example:80", true, "http://berth.example:80"],
])("the address %s, with TLS %s, is %s", (address, secure, baseUrl) => {
  expect(parseAddress(address, secure)).toEqual({ address, baseUrl });
});

test.each(["unix:/run/berth.sock", "unix:///run/berth.sock"])("%s is a socket", (address) => {
  expect(parseAddress(address, false)).toMatchObject({ socketPath: "/run/berth.sock" });
});

test.each([
  "host",
  "host:",
  "host:port",
  "host:70700",
  "https://",
  "https://a@b",
  "unix:",
  "a b:1",
  "",
  // Would call a host named "grpc", or "HTTPS" without TLS.
  "grpc://host:7070",
  "HTTPS://host:7070",
  "host/path:7070",
])("%s is not an address", (address) => {
  expect(() => parseAddress(address, false)).toThrow("is not an address");
});

test("a byte order mark before profiles and tokens is ignored", async () => {
  const home = await mkdtemp(path.join(tmpdir(), "berth-profiles-"));
  onTestFinished(() => rm(home, { recursive: true }));
  const [env, token] = [{ XDG_CONFIG_HOME: home }, path.join(home, "berth/token")];
  await mkdir(path.dirname(token));
  await writeFile(token, "\uFEFFberth_inside\r\n");
  const profiles = {
    inline: { address: "a:1", token: "berth_inline" },
    file: { address: "a:1", "token-file": "token" },
  };
  await writeFile(profilesFile(env), `\uFEFF${JSON.stringify(profiles)}`);
  const tokenOf = (given: GivenAccess) => findAccess(given, env).token();
  expect(tokenOf({ profile: "inline" })).toBe("berth_inline");
  expect(tokenOf({ profile: "file" })).toBe("berth_inside");
  expect(tokenOf({ tokenFile: token })).toBe("berth_inside");
});

test("the files of a token and a certificate are found wherever the program works later", async () => {
  const place = await mkdtemp(path.join(tmpdir(), "berth-token-"));
  onTestFinished(() => rm(place, { recursive: true }));
  const put = async (name: string) => {
    const { cert, key } = await makeCertificate(place, name);
    await writeFile(path.join(place, "token"), name);
    await Promise.all([copyFile(cert, path.join(place, "cert")), copyFile(key, path.join(place, "key"))]);
  };
  const before = process.cwd();
  onTestFinished(() => process.chdir(before));
  process.chdir(place);
  await put("old");
  const { token } = findAccess({ tokenFile: "token" }, {});
  const pair = keyPairOf({ name: "cert", file: "cert" }, { name: "key", file: "key" });
  const { cert } = pair();
  process.chdir("/");
  await put("renewed");
  expect(token()).toBe("renewed");
  expect(pair().cert).not.toBe(cert);
});

test("a duration is a number of milliseconds, or omitted", () => {
  expect(duration(1500)).toMatchObject({ seconds: 1n, nanos: 500_000_000 });
  for (const [ms, seconds, nanos] of [
    [1.005 * 1000, 1n, 5_000_000],
    [1000.1, 1n, 100_000],
    [0.1 + 0.2, 0n, 300_000],
    [-1000, -1n, 0],
    [-1500.5, -1n, -500_500_000],
  ] as const) {
    const message = duration(ms);
    expect(message).toMatchObject({ seconds, nanos });
    expect(toBinary(DurationSchema, message ?? create(DurationSchema)).length).toBeGreaterThan(0);
  }
  expect(duration(undefined)).toBeUndefined();
  for (const ms of [Number.NaN, Number.POSITIVE_INFINITY])
    expect(() => duration(ms)).toThrow(`${ms} is not a number of milliseconds`);
});

test("values of an enum have names, also those of a newer service", () => {
  expect(nameOf(SandboxState, SandboxState.RUNNING)).toBe("RUNNING");
  expect(nameOf(SandboxState, 0)).toBe("UNSPECIFIED");
  expect(nameOf(SandboxState, 99)).toBe("UNKNOWN_99");
});

describe("the head and the tail that are kept", () => {
  /** @param pieces numbers are lost bytes. @param start offset of the first. */
  const fill = (most: number, pieces: readonly (string | number)[], start = 0) => {
    const kept = new Kept(most);
    let offset = start;
    for (const piece of pieces) {
      const lost = typeof piece === "number" ? piece : 0;
      const data = new TextEncoder().encode(typeof piece === "number" ? "" : piece);
      offset += lost;
      kept.add({ offset, data, lost });
      offset += data.length;
    }
    const { bytes, gap } = kept.result();
    return [new TextDecoder().decode(bytes), ...(gap ? [gap.fromOffset, gap.toOffset] : [])];
  };

  test("are everything that fits", () => {
    expect(fill(6, ["ab", "cd", "ef"])).toEqual(["abcdef"]);
    expect(fill(6, [])).toEqual([""]);
  });

  test("are the first and last parts of longer text, in whatever pieces it arrives", () => {
    expect(fill(5, ["abcdefghij"])).toEqual(["abcij", 3, 8]);
    expect(fill(5, [..."abcdefghij"])).toEqual(["abcij", 3, 8]);
    expect(fill(5, ["abcdefghij"], 1000)).toEqual(["abcij", 1003, 1008]);
    expect(fill(0, ["abc"])).toEqual(["", 0, 3]);
  });

  test("are what surrounds all of the bytes that are lost", () => {
    expect(fill(8, ["ab", 10, "cd"])).toEqual(["abcd", 2, 12]);
    expect(fill(8, ["abcdef", 10, "gh", 5, "ij", 7], 20)).toEqual(["abcd", 24, 52]);
    expect(fill(8, [10, "cdefgh"], 20)).toEqual(["efgh", 20, 32]);
  });

  test("take no more memory than they should", () => {
    const long = Array.from({ length: 300 }, (_, index) => `${index}`.padStart(4, "0").repeat(256));
    expect(fill(8, long)).toEqual(["00000299", 4, 300 * 1024 - 4]);
  });

  test("take no more memory if they come byte by byte", async () => {
    const most = 128 * 1024;
    const before = await keptBytes();
    const kept = new Kept(most);
    for (let offset = 0; offset < 2 * most; offset++) {
      // As a message brings it: a view of memory that is longer.
      kept.add({ offset, data: new Uint8Array(64).subarray(0, 1), lost: 0 });
    }
    const after = await keptBytes();
    expect(kept.result().bytes.length).toBe(most);
    expect(after - before).toBeLessThan(16 * most);
  });
});

test("only calls that failed on their way are retried", () => {
  const unreached = new BerthError("", { code: "UNAVAILABLE" });
  const down = new BerthError("", { code: "UNAVAILABLE", reason: "SHUTTING_DOWN" });
  const engine = new BerthError("", { code: "UNAVAILABLE", reason: "ENGINE_UNAVAILABLE" });
  const refused = new BerthError("", { code: "NOT_FOUND", reason: "SANDBOX_NOT_FOUND" });
  const deleted = new BerthError("", { code: "ABORTED", reason: "SANDBOX_DELETED" });
  expect([unreached, down, engine, refused, deleted].map(isBroken)).toEqual([
    true,
    true,
    false,
    false,
    false,
  ]);
  expect([unreached, down, engine, refused, deleted].map(isPassing)).toEqual([
    true,
    true,
    true,
    false,
    false,
  ]);
});

test("pauses end with the error if the service's own would be too long", async () => {
  const error = new BerthError("later", { code: "UNAVAILABLE", retryAfterMs: 60_000 });
  await expect(new Pauses(1_000).wait(error)).rejects.toBe(error);
  const reason = new Error("enough");
  await expect(new Pauses(90_000).wait(error, AbortSignal.abort(reason))).rejects.toBe(reason);
});

test("a source that is left early is canceled", async () => {
  let canceled: unknown;
  const stream = new ReadableStream<Uint8Array>({
    pull: (controller) => controller.enqueue(new Uint8Array(3 << 20)),
    cancel: (reason) => {
      canceled = reason ?? "canceled";
    },
  });
  const lengths: number[] = [];
  for await (const piece of piecesOf(stream)) {
    lengths.push(piece.length);
    if (lengths.length === 4) break;
  }
  expect({ lengths, canceled }).toEqual({ lengths: Array(4).fill(1 << 20), canceled: "canceled" });
});

test("an upload of which nothing is read cancels its source, and does not read it", async () => {
  const ends: string[] = [];
  const stream = new ReadableStream<Uint8Array>(
    { pull: () => void ends.push("pulled"), cancel: () => void ends.push("canceled") },
    { highWaterMark: 0 },
  );
  const items: AsyncIterableIterator<string> = {
    [Symbol.asyncIterator]: () => items,
    next: async () => ({ done: false, value: "read" }),
    return: async () => ({ done: true, value: void ends.push("returned") }),
  };
  for (const source of [stream, items, new Blob(["text"]), "text"]) {
    const pieces = piecesOf(source);
    await pieces.return(undefined);
    expect(await pieces.next()).toEqual({ done: true, value: undefined });
  }
  expect(ends).toEqual(["canceled", "returned"]);
});

test("a file that cannot be read fails its upload, and does not end the program before", async () => {
  const source = createReadStream("/no/such/file");
  const pieces = piecesOf(source);
  const { promise, resolve } = Promise.withResolvers<unknown>();
  source.on("close", () => resolve("closed"));
  process.on("uncaughtException", resolve);
  // An upload reads nothing before it is connected.
  expect(await promise.finally(() => process.off("uncaughtException", resolve))).toBe("closed");
  await expect(pieces.next()).rejects.toMatchObject({ code: "ENOENT" });
});

/** A client of services that answer in this way. */
function clientOf(routes: (router: ConnectRouter) => void, settings: ClientSettings = {}): BerthClient {
  const transport = createRouterTransport(routes);
  const link = { address: "127.0.0.1:1", transport, streamsRequests: true, close: () => {} };
  return new BerthClient(link, settings);
}

/** A sandbox of a service that handles commands in this way. */
function sandboxOf(
  processes: Partial<ServiceImpl<typeof ProcessService>>,
  settings: ClientSettings = {},
): Sandbox {
  const { connection } = clientOf(({ service }) => service(ProcessService, processes), settings);
  return new Sandbox(connection, create(SandboxSchema, { sandboxId: "sbx" }));
}

const started = { case: "started" as const, value: { processId: "proc", startTime: timestampNow() } };

test("a detached command has not started if its stdin cannot be written", async () => {
  const sandbox = sandboxOf({
    async *exec(_request, { signal }) {
      yield { event: started };
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
    },
    writeStdin: () => {
      throw new ConnectError("no room", Code.ResourceExhausted);
    },
  });
  const process = sandbox.exec("cat", { stdin: new Uint8Array(3 << 20), detach: true });
  await expect(process.start()).rejects.toMatchObject({ code: "RESOURCE_EXHAUSTED" });
});

test("a detached command leaves nothing at the signal of its program", async () => {
  const sandbox = sandboxOf({
    async *exec() {
      yield { event: started };
    },
  });
  const any = vi.spyOn(AbortSignal, "any");
  onTestFinished(() => any.mockRestore());
  const { signal } = new AbortController();
  await sandbox.exec("true", { detach: true, signal }).start();
  const joined = any.mock.results.map(({ value }) => value as AbortSignal);
  expect(joined.length).toBeGreaterThan(0);
  for (const each of joined) expect(getEventListeners(each, "abort")).toEqual([]);
});

test("a call may take longer than the longest timer", async () => {
  const status = { cause: ExitCause.EXITED };
  const runCommand = async () => {
    await sleep(50);
    return { exitStatus: status };
  };
  const days = 24 * 3600 * 1000;
  const sandbox = sandboxOf({ runCommand }, { timeoutMs: 30 * days });
  expect(await sandbox.run("true").catch((error: unknown) => error)).toMatchObject({ exitCode: 0 });
});

test("an upload may take longer than one call may", async () => {
  const uploadFile: ServiceImpl<typeof FileService>["uploadFile"] = async (messages) => {
    let sizeBytes = 0n;
    for await (const { part } of messages) if (part.case === "chunk") sizeBytes += BigInt(part.value.length);
    return { file: { sizeBytes } };
  };
  const client = clientOf((router) => router.service(FileService, { uploadFile }), { timeoutMs: 50 });
  const { files } = new Sandbox(client.connection, create(SandboxSchema, { sandboxId: "box" }));
  async function* slow() {
    yield "ab";
    await sleep(150);
    yield "c";
  }
  const uploaded = await files.upload("file", slow()).catch((error: unknown) => error);
  expect(uploaded).toMatchObject({ size: 3 });
});

describe("a create that cannot be wanted is not made", () => {
  /** A client, and what its service has created. */
  function clientAndMade() {
    const made: string[] = [];
    const berth = clientOf((router) => {
      router.service(SandboxService, {
        createSandbox: () => {
          made.push("sandbox");
          return { sandbox: { sandboxId: "box" } };
        },
        deleteSandbox: () => ({}),
      });
      router.service(RunService, {
        createRun: () => {
          made.push("run");
          return { run: { runId: "run" } };
        },
        deleteRun: () => ({}),
      });
    });
    return { berth, made };
  }

  test("because its signal was aborted before", async () => {
    const { berth, made } = clientAndMade();
    const signal = AbortSignal.abort(new Error("too late"));
    await expect(berth.sandboxes.create({ signal })).rejects.toThrow("too late");
    await expect(berth.runs.create({ signal })).rejects.toThrow("too late");
    await berth.close();
    expect(made).toEqual([]);
  });

  test("because its client is being closed", async () => {
    const { berth, made } = clientAndMade();
    const open = Promise.withResolvers<void>();
    berth.connection.adopt({ end: () => open.promise });
    const closing = berth.close();
    const closed = { code: "CANCELLED" };
    await expect(berth.sandboxes.create()).rejects.toMatchObject(closed);
    await expect(berth.runs.create()).rejects.toMatchObject(closed);
    open.resolve();
    await closing;
    expect(made).toEqual([]);
  });
});

test("output as text has everything that its bytes have", async () => {
  const bytes = new TextEncoder().encode("\uFEFFhé");
  const status = { cause: ExitCause.EXITED };
  const sandbox = sandboxOf({
    async *exec() {
      yield { event: started };
      for (const [at, byte] of bytes.entries())
        yield {
          event: {
            case: "output",
            value: { stream: OutputStream.STDOUT, offset: BigInt(at), data: Uint8Array.of(byte) },
          },
        };
      yield { event: { case: "exited", value: status } };
    },
    runCommand: () => ({ stdout: bytes, stderr: bytes, exitStatus: status }),
  });
  let text = "";
  for await (const chunk of sandbox.exec("cat")) text += chunk.text;
  const { stdout, stderr } = await sandbox.run("cat");
  expect([text, stdout, stderr]).toEqual(Array(3).fill("\uFEFFhé"));
});
