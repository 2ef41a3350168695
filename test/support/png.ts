import { inflateSync } from "node:zlib";

/** A decoded picture. */
export interface Picture {
  readonly width: number;
  readonly height: number;
  /** Red, green and blue, as `#rrggbb`. */
  pixel(x: number, y: number): string;
}

const SIGNATURE = "89504e470d0a1a0a";
const CHANNELS = 3;

/** Decodes a PNG with 8 bits each of red, green and blue, and unfiltered lines. Fails for any other. */
export function decodePng(png: Buffer): Picture {
  if (png.subarray(0, 8).toString("hex") !== SIGNATURE) throw new Error("this is not a PNG");
  const parts: Buffer[] = [];
  for (let at = 8; at < png.length; ) {
    const length = png.readUInt32BE(at);
    if (png.toString("latin1", at + 4, at + 8) === "IDAT") parts.push(png.subarray(at + 8, at + 8 + length));
    at += 12 + length;
  }
  const [width, height] = [png.readUInt32BE(16), png.readUInt32BE(20)];
  if (png.readUInt16BE(24) !== 0x0802) throw new Error("its pixels are not 24 bits");
  const line = width * CHANNELS + 1;
  // Also verifies the checksum.
  const data = inflateSync(Buffer.concat(parts));
  if (data.length !== line * height) throw new Error("it has too many or too few pixels");
  for (let y = 0; y < height; y++) if (data[y * line] !== 0) throw new Error("a line is filtered");
  return {
    width,
    height,
    pixel: (x, y) => {
      const at = y * line + 1 + x * CHANNELS;
      return `#${data.toString("hex", at, at + CHANNELS)}`;
    },
  };
}
