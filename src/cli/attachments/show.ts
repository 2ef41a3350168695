import type { Attachment } from "../../../gen/ts/berth/v1/session_pb.js";
import { formatSize, visible } from "../format.ts";
import { type Io, write } from "../io.ts";
import { drawPng, pictureProtocol } from "./draw.ts";

const DEFAULT_COLUMNS = 80;

/** Draws attachments if the terminal can. For the others, says how to save them. */
export async function showAttachments(io: Io, attachments: readonly Attachment[]): Promise<void> {
  const protocol = io.stdout.isTTY ? pictureProtocol(io.env) : undefined;
  const { columns = DEFAULT_COLUMNS } = io.stdout as { columns?: number };
  for (const { name, mediaType, content } of attachments) {
    const drawn = protocol && mediaType === "image/png" ? drawPng(content, protocol, columns) : undefined;
    if (drawn !== undefined) await write(io.stdout, drawn);
    else {
      const what = `${visible(name) || "an attachment"} (${visible(mediaType)}, ${formatSize(content.length)})`;
      await write(io.stderr, `berth: it returned ${what}; write it to a file with -o FILE\n`);
    }
  }
}
