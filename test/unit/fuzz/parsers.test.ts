import { PassThrough } from "node:stream";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { expect, test } from "vitest";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { BerthError } from "../../../src/base/errors.ts";
import { hasFewValues } from "../../../src/base/json.ts";
import { MarkerScanner } from "../../../src/base/markers.ts";
import { parseDomainRule } from "../../../src/egress/domains.ts";
import { Demux } from "../../../src/engine/docker/daemon.ts";
import { isWithin, resolvePath } from "../../../src/files/path.ts";
import { readTar } from "../../../src/files/tar/tar-reader.ts";
import { Decompressor } from "../../../src/server/decompressor.ts";
import { readMessage } from "../../../src/server/framing.ts";
import { checkedMessages, requestFormat } from "../../../src/server/library-handler.ts";
import { ReceiveBudget } from "../../../src/server/limits.ts";
import { Glob } from "../../../src/sessions/types/files/glob.ts";
import { Pace } from "../../../src/sessions/types/pace.ts";
import { parseTokenFile, TokenFileError } from "../../../src/tenants/token-file.ts";
import { asStream, chunked, FUZZ_TIMEOUT_MS, fuzz, mutated } from "../../support/fuzz/fuzz.ts";
import { makeTar, pax, type RawEntry } from "../../support/tar-builder.ts";

const timeout = FUZZ_TIMEOUT_MS;
const noisy = fc.oneof(
  fc.uint8Array({ maxLength: 200 }),
  fc.string({ maxLength: 60 }).map((text) => Buffer.from(text)),
);

/** Shares of all cases. The requests get the rest. */
const SHARE = {
  frames: 0.1,
  plain: 0.03,
  markers: 0.08,
  demux: 0.03,
  tar: 0.08,
  paths: 0.03,
  globs: 0.03,
  rest: 0.02,
};

/** Accepts a refusal, but no other error. */
async function orRefusal(take: () => unknown): Promise<void> {
  try {
    await take();
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
  }
}

const frame = fc
  .record({
    flags: fc.oneof(fc.constantFrom(0, 1, 2, 128, 129), fc.nat(255)),
    zip: fc.boolean(),
    content: noisy,
    lie: fc.oneof(fc.constant(0), fc.integer({ min: -3, max: 3 }), fc.constant(2 ** 31)),
  })
  .map(({ flags, zip, content, lie }) => {
    const body = zip ? gzipSync(content) : Buffer.from(content);
    const head = Buffer.alloc(5);
    head[0] = flags;
    head.writeUInt32BE(Math.min(2 ** 32 - 1, Math.max(0, body.length + lie)), 1);
    return Buffer.concat([head, body]);
  });
const frames = chunked(mutated(fc.array(frame, { maxLength: 4 }).map((list) => Buffer.concat(list))));

test.each([
  "application/grpc",
  "application/grpc+json",
  "application/connect+json",
  "application/grpc-web+proto",
])("frames of messages: %s", { timeout }, async (type) => {
  const decompressor = new Decompressor();
  const header = new Headers({
    "content-type": type,
    "grpc-encoding": "gzip",
    "connect-content-encoding": "gzip",
  });
  const format = requestFormat(SandboxService.method.createSandbox, header, 4096);
  const { signal } = new AbortController();
  await fuzz(SHARE.frames / 4, frames, (chunks) =>
    orRefusal(async () => {
      let bytes = 0;
      const gunzip = (message: Uint8Array) => decompressor.gunzip(message, format.maxBytes, signal);
      for await (const part of checkedMessages(asStream(chunks), format, gunzip)) bytes += part.length;
      expect(bytes).toBeLessThan(100_000);
    }),
  );
});

test("the one message of a plain call", { timeout }, async () => {
  const budget = new ReceiveBudget(1 << 20);
  await fuzz(SHARE.plain, frames, async (chunks) => {
    const request = new PassThrough();
    const account = budget.open("me");
    const message = readMessage(request as never, 4096, account).finally(() => account.close());
    for (const chunk of chunks) request.write(chunk);
    request.end();
    await orRefusal(() => message);
    expect(budget.heldBytes).toBe(0);
  });
});

const NONCE = "\x1e0123456789abcdef";
const treacherous = fc
  .array(
    fc.oneof(
      noisy,
      fc.nat(NONCE.length).map((length) => Buffer.from(NONCE.slice(0, length))),
    ),
    { maxLength: 8 },
  )
  .map((parts) => Buffer.concat(parts));

test("what a lane writes", { timeout }, async () => {
  await fuzz(SHARE.markers, chunked(mutated(treacherous)), (chunks) => {
    const passed: Buffer[] = [];
    const scanner = new MarkerScanner(NONCE, (chunk) => passed.push(Buffer.from(chunk)));
    let found: { readonly text: string; readonly rest: Buffer } | undefined;
    let used = 0;
    for (const chunk of chunks) {
      used += chunk.length;
      found = scanner.push(Buffer.from(chunk));
      if (found !== undefined) break;
    }
    if (found === undefined) scanner.flush();
    const whole = Buffer.concat(chunks).subarray(0, used);
    const before = Buffer.concat(passed);
    // No byte is lost, added or interpreted as a marker, except what follows the nonce.
    expect(whole.subarray(0, before.length).equals(before)).toBe(true);
    if (found === undefined) expect(before.length).toBe(whole.length);
    else expect(whole.indexOf(NONCE)).toBe(before.length);
  });
});

test("frames of the Docker daemon", { timeout }, async () => {
  await fuzz(SHARE.demux, chunked(mutated(noisy)), (chunks) => {
    let bytes = 0;
    const demux = new Demux((_stream, chunk) => {
      bytes += chunk.length;
    });
    for (const chunk of chunks) demux.push(Buffer.from(chunk));
    expect(bytes).toBeLessThanOrEqual(Buffer.concat(chunks).length);
  });
});

const name = fc.oneof(
  fc.constantFrom("a", "../a", "/etc/passwd", "d/", "\n", "-rf", "a".repeat(99)),
  fc.string({ maxLength: 20 }),
);
const entry: fc.Arbitrary<RawEntry> = fc.oneof(
  fc.record({
    name,
    type: fc.constantFrom("0", "1", "2", "3", "5", "6", "7", "S", "L", "K", "x", "g", "\0"),
    linkName: name,
    content: fc.string({ maxLength: 700 }),
    mode: fc.nat(0o7777),
  }),
  fc
    .dictionary(
      fc.constantFrom("path", "linkpath", "size", "mtime", "GNU.sparse.major", "GNU.sparse.realsize", "x"),
      fc.string({ maxLength: 20 }),
    )
    .map((records) => pax(records)),
);
const tars = chunked(mutated(fc.array(entry, { maxLength: 4 }).map((entries) => makeTar(entries))));

test("archives", { timeout }, async () => {
  await fuzz(SHARE.tar, tars, (chunks) =>
    orRefusal(async () => {
      let bytes = 0;
      for await (const item of readTar(asStream(chunks)))
        if (item.type === "content") bytes += item.data.length;
      expect(bytes).toBeLessThan(1 << 20);
    }),
  );
});

const part = fc.constantFrom(
  "a",
  "..",
  ".",
  "",
  "*",
  "**",
  "?",
  "[a",
  "[!a-z]",
  "{a,b}",
  "{1..99}",
  "+(a|b)",
  "\\",
  "😀",
  "/",
);
const pathLike = fc.oneof(
  fc.array(part, { maxLength: 30 }).map((parts) => parts.join("/")),
  fc.string({ maxLength: 100 }),
);

test("paths", { timeout }, async () => {
  await fuzz(SHARE.paths, fc.tuple(pathLike, pathLike), ([home, bytes]) =>
    orRefusal(() => {
      const found = resolvePath(`/${home.replaceAll("..", "")}`, { field: "path", bytes });
      expect(isWithin(found, "/") && !found.split("/").includes("..")).toBe(true);
    }),
  );
});

test("globs", { timeout }, async () => {
  const pace = new Pace(new AbortController().signal);
  const pattern = fc.oneof(
    fc.array(part, { maxLength: 20 }).map((parts) => parts.join("")),
    pathLike,
  );
  await fuzz(SHARE.globs, fc.tuple(pattern, fc.array(pathLike, { maxLength: 4 })), ([text, paths]) =>
    orRefusal(async () => {
      const glob = new Glob("pattern", text);
      for (const path of paths) await glob.matches(path, pace);
    }),
  );
});

test("what an operator or a caller writes", { timeout }, async () => {
  const document = "tokens:\n- id: abcd\n  tenant: acme\n  scope: user\n  hash: sha256-AAAA\n";
  await fuzz(
    SHARE.rest,
    mutated(
      fc
        .constantFrom(document, '{"tokens":[]}', "*.example.com:443", "a.b", "[{}]")
        .map((text) => Buffer.from(text)),
    ),
    async (bytes) => {
      const text = bytes.toString();
      parseDomainRule(text);
      hasFewValues(bytes, 100);
      try {
        parseTokenFile(text, "tokens.yaml");
      } catch (error) {
        if (!(error instanceof TokenFileError)) throw error;
      }
    },
  );
});
