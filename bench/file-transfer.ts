import { FileService } from "../gen/ts/berth/v1/file_pb.js";
import type { BenchClient } from "./client.ts";

const CHUNK_BYTES = 256 * 1024;

/** A file in a sandbox. */
export interface File {
  readonly sandboxId: string;
  readonly path: string;
}

/** Writes a file of `bytes` equal bytes, as fast as the service accepts them. */
export async function upload(client: BenchClient, file: File, bytes: number): Promise<void> {
  const { encode, send, end, answer } = client.upload(FileService.method.uploadFile);
  const data = new Uint8Array(CHUNK_BYTES).fill(0x5a);
  const chunkOf = (length: number) => encode({ part: { case: "chunk", value: data.subarray(0, length) } });
  const whole = chunkOf(CHUNK_BYTES);
  // The clients announce the size, too.
  await send(encode({ part: { case: "header", value: { ...file, sizeBytes: BigInt(bytes) } } }));
  for (let left = bytes; left > 0; left -= CHUNK_BYTES) {
    await send(left < CHUNK_BYTES ? chunkOf(left) : whole);
  }
  end();
  await answer;
}

/** Reads a whole file. Rejects unless it has `bytes` bytes. */
export function download(client: BenchClient, file: File, bytes: number): Promise<void> {
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
