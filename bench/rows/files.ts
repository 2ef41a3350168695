import { FileService } from "../../gen/ts/berth/v1/file_pb.js";
import type { Row } from "../row.ts";
import type { BenchService } from "../service.ts";
import { quantile, timed } from "../stats.ts";

const MIB = 1024 * 1024;
const MB = 1_000_000;
const CHUNK_BYTES = 256 * 1024;
const ROUNDS = 7;

/** One large file into a sandbox and out of it. */
export const files: Row = {
  name: "files",
  limitSeconds: 240,
  run: async ({ start, scale }) => {
    const service = await start();
    const file = { sandboxId: await service.create(), path: "/workspace/big" };
    const bytes = Math.round(100 * MIB * Math.max(scale, 0.2));
    const times = { up: [] as number[], down: [] as number[] };
    for (let round = 0; round <= ROUNDS; round++) {
      const up = await timed(() => upload(service, file, bytes));
      const down = await timed(() => download(service, file, bytes));
      if (round === 0) continue;
      times.up.push(up);
      times.down.push(down);
    }
    return (["up", "down"] as const).map((way) => {
      const p50 = bytes / MB / (quantile(times[way], 0.5) / 1000);
      return {
        name: `file of ${Math.round(bytes / MIB)} MiB ${way}`,
        unit: "MB/s" as const,
        p50,
        goal: "≥ 200 MB/s",
        reached: p50 >= 200,
      };
    });
  },
};

interface File {
  readonly sandboxId: string;
  readonly path: string;
}

async function upload({ client }: BenchService, file: File, bytes: number): Promise<void> {
  const { encode, send, end, answer } = client.upload(FileService.method.uploadFile);
  const data = new Uint8Array(CHUNK_BYTES).fill(0x5a);
  const chunkOf = (length: number) => encode({ part: { case: "chunk", value: data.subarray(0, length) } });
  const whole = chunkOf(CHUNK_BYTES);
  await send(encode({ part: { case: "header", value: file } }));
  for (let left = bytes; left > 0; left -= CHUNK_BYTES) {
    await send(left < CHUNK_BYTES ? chunkOf(left) : whole);
  }
  end();
  await answer;
}

function download({ client }: BenchService, file: File, bytes: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const call = client.stream(FileService.method.downloadFile, file);
    let received = 0;
    call.on("data", ({ part }) => {
      if (part.case === "chunk") received += part.value.length;
    });
    call.on("error", reject);
    call.on("end", () =>
      received === bytes ? resolve() : reject(new Error(`${received} bytes of ${bytes} came`)),
    );
  });
}
