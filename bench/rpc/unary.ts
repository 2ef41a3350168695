import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import {
  GetStatsRequestSchema,
  GetStatsResponseSchema,
  SandboxService,
} from "../../gen/ts/berth/v1/sandbox_pb.js";

// Latency and throughput of a unary call, against a bare grpc-js server in the same run:
//   node bench/rpc/unary.ts
// The servers take turns in short rounds, so that whatever else the machine does meets all of them.

const { getStats } = SandboxService.method;
const PATH = `/${getStats.parent.typeName}/${getStats.name}`;
const WARM_UP = 3000;
const ROUNDS = 30;
const CALLS_A_ROUND = 300;
const AT_ONCE = 32;
const THROUGHPUT_MS = 3000;

interface Target {
  readonly name: string;
  readonly process: ChildProcess;
  readonly client: grpc.Client;
  readonly latencies: number[];
}

async function launch(name: string): Promise<Target> {
  const child = fork(new URL(`./${name}-server.ts`, import.meta.url));
  const [port] = await once(child, "message");
  const client = new grpc.Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
  return { name, process: child, client, latencies: [] };
}

function call({ client }: Target): Promise<void> {
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(
      PATH,
      (message: ReturnType<typeof request>) => Buffer.from(toBinary(GetStatsRequestSchema, message)),
      (bytes) => fromBinary(GetStatsResponseSchema, bytes),
      request(),
      (error) => (error ? reject(error) : resolve()),
    );
  });
}

const request = () => create(GetStatsRequestSchema);

function quantile(values: readonly number[], q: number): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length * q)] ?? Number.NaN;
}

async function callsPerSecond(target: Target): Promise<number> {
  const begin = performance.now();
  let calls = 0;
  const worker = async () => {
    for (; performance.now() - begin < THROUGHPUT_MS; calls++) await call(target);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return (calls / (performance.now() - begin)) * 1000;
}

const targets = await Promise.all(["bare", "berth", "library"].map(launch));
try {
  for (const target of targets) for (let index = 0; index < WARM_UP; index++) await call(target);
  for (let round = 0; round < ROUNDS; round++) {
    for (const target of targets) {
      for (let index = 0; index < CALLS_A_ROUND; index++) {
        const begin = performance.now();
        await call(target);
        target.latencies.push(performance.now() - begin);
      }
    }
  }
  const rows = [];
  for (const target of targets) {
    rows.push({
      server: target.name,
      "p50 ms": quantile(target.latencies, 0.5),
      "p99 ms": quantile(target.latencies, 0.99),
      "calls/s": await callsPerSecond(target),
    });
  }
  const [bare] = rows;
  console.table(
    rows.map((row) => ({
      server: row.server,
      "p50 ms": row["p50 ms"].toFixed(3),
      "p99 ms": row["p99 ms"].toFixed(3),
      "p50 / bare": (row["p50 ms"] / (bare?.["p50 ms"] ?? Number.NaN)).toFixed(2),
      [`calls/s, ${AT_ONCE} at once`]: row["calls/s"].toFixed(0),
    })),
  );
} finally {
  for (const target of targets) {
    target.client.close();
    target.process.kill();
  }
}
