import { FileService } from "../../gen/ts/berth/v1/file_pb.js";
import type { Row } from "../row.ts";
import { quantile, timed } from "../stats.ts";

const MB = 1_000_000;
const CHUNK_BYTES = 256 * 1024;
const ROUNDS = 5;

/** One large file into a sandbox and out of it. */
export const files: Row = {
  name: "files",
  run: async ({ service, scale }) => {
    const id = await service.create();
    const bytes = Math.round(100 * 1024 * 1024 * Math.max(scale, 0.2));
    const chunk = new Uint8Array(CHUNK_BYTES).fill(0x5a);
    const up = async (): Promise<void> => {
      const { call, answer } = service.client.upload(FileService.method.uploadFile);
      const write = (message: Parameters<typeof call.write>[0]): Promise<void> | undefined =>
        call.write(message) ? undefined : new Promise((resolve) => call.once("drain", resolve));
      const request = (part: object) => ({ $typeName: "berth.v1.UploadFileRequest", part }) as never;
      await write(request({ case: "header", value: { sandboxId: id, path: "/workspace/big" } }));
      for (let sent = 0; sent < bytes; sent += chunk.length) {
        await write(
          request({ case: "chunk", value: chunk.subarray(0, Math.min(chunk.length, bytes - sent)) }),
        );
      }
      call.end();
      await answer;
    };
    const down = (): Promise<void> =>
      new Promise((resolve, reject) => {
        const call = service.client.stream(FileService.method.downloadFile, {
          sandboxId: id,
          path: "/workspace/big",
        });
        call.on("data", () => {});
        call.on("error", reject);
        call.on("end", resolve);
      });
    const times = { up: [] as number[], down: [] as number[] };
    for (let i = 0; i < ROUNDS; i++) {
      times.up.push(await timed(up));
      times.down.push(await timed(down));
    }
    await service.remove(id);
    return (["up", "down"] as const).map((way) => {
      const p50 = bytes / MB / (quantile(times[way], 0.5) / 1000);
      return {
        name: `file of ${Math.round(bytes / 1024 / 1024)} MiB ${way}`,
        unit: "MB/s" as const,
        p50,
        goal: "≥ 200 MB/s",
        reached: p50 >= 200,
      };
    });
  },
};
