import type { Attachment } from "../../../gen/ts/berth/v1/session_pb.js";
import { formatSize } from "../format.ts";
import { type Io, write } from "../io.ts";
import { visible } from "../visible.ts";

/** A protocol with which a terminal draws pictures. */
type PictureProtocol = "kitty" | "iterm";

const DEFAULT_COLUMNS = 80;
/** The largest picture to draw. */
const MAX_BYTES = 16 * 1024 * 1024;
/** The kitty protocol's limit for one sequence, in characters of base64. */
const CHUNK = 4096;
/** Approximate width of a character in pixels, so that small pictures are not enlarged. */
const CELL_WIDTH = 8;
/** The first version of Konsole that draws pictures. */
const KONSOLE = 220_400;

const PNG_MAGIC = Buffer.from("89504e470d0a1a0a", "hex");

type Environment = Readonly<Record<string, string | undefined>>;

/** Draws attachments if the terminal can. For the others, says how to save them. */
export async function showAttachments(
  io: Io,
  attachments: readonly Attachment[],
  signal: AbortSignal,
): Promise<void> {
  const protocol = io.stdout.isTTY ? pictureProtocol(io.env) : undefined;
  const { columns = DEFAULT_COLUMNS } = io.stdout as { columns?: number };
  for (const { name, mediaType, content } of attachments) {
    const drawn = protocol && mediaType === "image/png" ? drawPng(content, protocol, columns) : undefined;
    if (drawn !== undefined) await write(io.stdout, drawn, signal);
    else {
      const what = `${visible(name) || "an attachment"} (${visible(mediaType)}, ${formatSize(content.length)})`;
      await write(io.stderr, `berth: it returned ${what}; write it to a file with -o FILE\n`);
    }
  }
}

/** The picture protocol of the terminal, by the environment. Undefined: none, as far as it shows. */
export function pictureProtocol(env: Environment): PictureProtocol | undefined {
  const { TERM = "", TERM_PROGRAM = "", LC_TERMINAL = "", KONSOLE_VERSION = "" } = env;
  // A terminal multiplexer drops sequences that it does not know.
  if (env.TMUX || env.STY || /^(screen|tmux)/.test(TERM)) return undefined;
  const isKitty =
    Boolean(env.KITTY_WINDOW_ID) || /^xterm-(kitty|ghostty)$/.test(TERM) || TERM_PROGRAM === "ghostty";
  if (isKitty || Number(KONSOLE_VERSION) >= KONSOLE) return "kitty";
  if (["iTerm.app", "WezTerm"].includes(TERM_PROGRAM) || LC_TERMINAL === "iTerm2") return "iterm";
  return undefined;
}

/**
 * The sequence that draws a PNG, at most as wide as the terminal. Undefined for other content. The picture is sent as
 * base64, so that nothing in it can act on the terminal.
 */
export function drawPng(
  content: Uint8Array,
  protocol: PictureProtocol,
  terminalColumns: number,
): string | undefined {
  const png = Buffer.from(content.buffer, content.byteOffset, content.byteLength);
  if (png.length < 24 || png.length > MAX_BYTES || !png.subarray(0, 8).equals(PNG_MAGIC)) return undefined;
  const columns = Math.max(1, Math.min(terminalColumns, Math.ceil(png.readUInt32BE(16) / CELL_WIDTH)));
  const data = png.toString("base64");
  if (protocol === "iterm") {
    const options = `inline=1;size=${png.length};width=${columns};preserveAspectRatio=1`;
    return `\x1b]1337;File=${options}:${data}\x07\n`;
  }
  const parts = data.match(new RegExp(`.{1,${CHUNK}}`, "g")) ?? [];
  const sequences = parts.map((part, index) => {
    // f=100: PNG. q=2: no answers, which would be read as keys.
    const first = index === 0 ? `a=T,f=100,q=2,c=${columns},` : "";
    return `\x1b_G${first}m=${index < parts.length - 1 ? 1 : 0};${part}\x1b\\`;
  });
  return `${sequences.join("")}\n`;
}
