import { create, fromBinary, toBinary, toJsonString } from "@bufbuild/protobuf";
import { ExecRequestSchema, ExecResponseSchema, ProcessService } from "../../gen/ts/berth/v1/process_pb.js";
import type { Figure, Row } from "../row.ts";
import { type Dialect, RawHttpClient } from "../rpc/raw-http.ts";
import { countBody } from "../rpc/socket-client.ts";
import { perSecond, quantile, timed } from "../stats.ts";

const GRPC: Dialect = { name: "gRPC", version: 2, protocol: "grpc", codec: "proto" };
const CONNECT: readonly Dialect[] = ([1, 2] as const).flatMap((version) =>
  (["proto", "json"] as const).map((codec) => ({
    ...{ name: `Connect, HTTP/${version === 1 ? "1.1" : "2"}, ${codec}`, version, codec },
    protocol: "connect" as const,
  })),
);
/** The limit, as a multiple of gRPC's time. */
const MOST = 1.15;
const AT_ONCE = 16;

const PATH = `/${ProcessService.typeName}/${ProcessService.method.exec.name}`;

/** Exec over Connect, in every form, compared with gRPC. The clients are otherwise equal. */
export const connect: Row = {
  name: "connect",
  limitSeconds: 300,
  run: async ({ start, scale, progress }) => {
    const service = await start();
    const sandboxId = await service.create();
    const clients = [GRPC, ...CONNECT].map((dialect) => ({
      dialect,
      client: new RawHttpClient(service.address, dialect),
      ...{ ms: [] as number[], perSecond: [] as number[] },
      ...{ mbPerSecond: [] as number[], toSocket: [] as number[] },
    }));
    const rounds = Math.max(3, Math.round(10 * scale));
    const megabytes = Math.max(20, Math.round(100 * scale));
    for (let round = -1; round < rounds; round++) {
      progress(`round ${round + 1} of ${rounds}`);
      for (const { dialect, client, ...values } of clients) {
        const exec = (line: string) => execBy(client, dialect, sandboxId, line);
        const ms: number[] = [];
        for (let i = 0; i < 40; i++) ms.push(await timed(() => exec("true")));
        const rate = await perSecond(AT_ONCE, 400, () => exec("true"));
        let bytes = 0;
        const took = await timed(async () => {
          bytes = await exec(`head -c ${megabytes}000000 /dev/zero`);
        });
        const request = requestOf(dialect, sandboxId, `head -c ${megabytes}000000 /dev/zero`);
        let counted = 0;
        const tookToSocket = await timed(async () => {
          counted = await countBody(service.address, dialect, PATH, request);
        });
        if (counted < megabytes * 1_000_000) throw new Error(`${dialect.name}: ${counted} bytes came`);
        // The first rounds are a warm-up.
        if (round < 0) continue;
        values.ms.push(...ms);
        values.perSecond.push(rate);
        values.mbPerSecond.push(bytes / 1000 / took);
        values.toSocket.push((megabytes * 1000) / tookToSocket);
      }
    }
    for (const { client } of clients) client.close();
    const [grpc, ...others] = clients;
    if (grpc === undefined) return [];
    return others.flatMap((one) => [
      figure(`${one.dialect.name}: Exec of true`, "ms", one.ms, grpc.ms),
      figure(`${one.dialect.name}: execs, ${AT_ONCE} at once`, "per second", one.perSecond, grpc.perSecond),
      figure(`${one.dialect.name}: Exec output, Node's client`, "MB/s", one.mbPerSecond, grpc.mbPerSecond),
      figure(`${one.dialect.name}: Exec output, bare socket`, "MB/s", one.toSocket, grpc.toSocket),
    ]);
  },
};

function figure(
  name: string,
  unit: "ms" | "MB/s" | "per second",
  values: readonly number[],
  grpc: readonly number[],
): Figure {
  const p50 = quantile(values, 0.5);
  const rawP50 = quantile(grpc, 0.5);
  const ratio = unit === "ms" ? rawP50 / p50 : p50 / rawP50;
  return {
    ...{ name, unit, p50, rawP50, ratio },
    ...{ goal: `within ${MOST} × of gRPC`, reached: ratio >= 1 / MOST },
  };
}

/** The request to run a shell line. */
function requestOf({ codec }: Dialect, sandboxId: string, line: string): Uint8Array {
  const request = create(ExecRequestSchema, { sandboxId, command: { case: "shell", value: line } });
  if (codec === "proto") return toBinary(ExecRequestSchema, request);
  return Buffer.from(toJsonString(ExecRequestSchema, request));
}

/** Runs a shell line to its end. Returns how many bytes it wrote. */
async function execBy(
  client: RawHttpClient,
  dialect: Dialect,
  sandboxId: string,
  line: string,
): Promise<number> {
  let bytes = 0;
  let exitCode: number | undefined;
  await client.stream(PATH, requestOf(dialect, sandboxId, line), (frame) => {
    if (dialect.codec === "json") {
      const { output, exited } = JSON.parse(frame.toString());
      if (output) bytes += Buffer.from(output.data, "base64").length;
      if (exited) exitCode = exited.exitCode;
      return;
    }
    const { event } = fromBinary(ExecResponseSchema, frame);
    if (event.case === "output") bytes += event.value.data.length;
    if (event.case === "exited") exitCode = event.value.exitCode;
  });
  if (exitCode !== 0) throw new Error(`exec ended with ${exitCode}`);
  return bytes;
}
