import http2 from "node:http2";
import { buffer } from "node:stream/consumers";
import { type DescMethod, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Client } from "../../support/client.ts";
import { FUZZ_CASES, FUZZ_SEED, FUZZ_TIMEOUT_MS, mutated } from "../../support/fuzz/fuzz.ts";
import { messages } from "../../support/fuzz/messages.ts";
import { PauseService } from "../../support/pause-service.ts";
import { reflectedMethods } from "../../support/reflected.ts";
import { grpcFrame } from "../../support/server/http.ts";

/** Of all cases: a case over the wire takes as long as fifty without it. */
const SHARE = 0.02;
const AT_ONCE = 8;
/** The event loop serves every caller, so no case may block it for longer. */
const MAX_PAUSE_MS = 100;
/** Slow code is slow each time; garbage collection is not. */
const TRIES = 4;

let service: PauseService;
let client: Client;
let session: http2.ClientHttp2Session;
let methods: readonly DescMethod[] = [];

beforeAll(async () => {
  // The only allowed sandbox already exists, with an id that no case has, so that nothing generated runs.
  service = await PauseService.start(["--engine", "bubblewrap", "--max-sandboxes", "1"]);
  client = new Client(service.process.address);
  await client.createSandbox();
  session = http2.connect(`http://${service.process.address}`);
  methods = await reflectedMethods(service.process.address, "");
});
afterAll(async () => {
  session?.destroy();
  client?.close();
  await service?.process.stop();
});

test("any bytes, to any method, never cause an internal error of the service", {
  timeout: FUZZ_TIMEOUT_MS,
}, async () => {
  const seed = FUZZ_SEED ?? Math.floor(Math.random() * 2 ** 31);
  const each = Math.ceil((SHARE * FUZZ_CASES) / methods.length);
  expect(methods.length).toBeGreaterThan(60);
  for (const method of methods) {
    const cases = mutated(messages(method.input).map((message) => toBinary(method.input, message)));
    const samples = fc.sample(cases, { numRuns: each, seed });
    const told = `${method.parent.typeName}/${method.name}, BERTH_FUZZ_SEED=${seed}`;
    let pauseMs = Number.POSITIVE_INFINITY;
    for (let tries = 0; tries < TRIES && pauseMs > MAX_PAUSE_MS; tries++) {
      await service.longestPause();
      for (let at = 0; at < samples.length; at += AT_ONCE) {
        const those = samples.slice(at, at + AT_ONCE);
        const statuses = await Promise.all(those.map((bytes) => call(method, bytes)));
        for (const [index, status] of statuses.entries()) {
          const bytes = those[index]?.toString("hex");
          // 2 and 13 are UNKNOWN and INTERNAL.
          expect(status, `${told}: ${bytes}`).toMatch(/^([013-9]|1[0124-6])$/);
        }
      }
      pauseMs = Math.min(pauseMs, await service.longestPause());
    }
    expect(pauseMs, told).toBeLessThan(MAX_PAUSE_MS);
  }
  expect((await client.call("SandboxService/GetStats")).total_sandboxes).toBe(1);
});

/** The status with which a call ends. */
async function call({ parent, name }: DescMethod, message: Buffer): Promise<string> {
  const stream = session.request({
    ":method": "POST",
    ":path": `/${parent.typeName}/${name}`,
    "content-type": "application/grpc",
    te: "trailers",
    // Some response streams do not end by themselves.
    "grpc-timeout": "300m",
  });
  let status: unknown;
  const note = (headers: http2.IncomingHttpHeaders) => {
    status ??= headers["grpc-status"];
  };
  stream.on("response", note);
  stream.on("trailers", note);
  stream.end(grpcFrame(message));
  await buffer(stream);
  return String(status);
}
