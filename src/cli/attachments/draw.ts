/** How a terminal takes pictures. */
export type PictureProtocol = "kitty" | "iterm";

/** The largest picture that is drawn. */
const MAX_BYTES = 16 * 1024 * 1024;
/** The most that the kitty protocol takes in one sequence, of base64. */
const CHUNK = 4096;
/** About what a character is wide, in pixels: a smaller picture is not blown up. */
const CELL_WIDTH = 8;
/** The first Konsole that draws them. */
const KONSOLE = 220_400;

const PNG_MAGIC = Buffer.from("89504e470d0a1a0a", "hex");

type Environment = Readonly<Record<string, string | undefined>>;

/** How the terminal of this environment takes pictures; undefined: not at all, as far as it says. */
export function pictureProtocol(env: Environment): PictureProtocol | undefined {
  const { TERM = "", TERM_PROGRAM = "", LC_TERMINAL = "", KONSOLE_VERSION = "" } = env;
  // A multiplexer between them drops what it does not know.
  if (env.TMUX || env.STY || /^(screen|tmux)/.test(TERM)) return undefined;
  const isKitty =
    Boolean(env.KITTY_WINDOW_ID) || /^xterm-(kitty|ghostty)$/.test(TERM) || TERM_PROGRAM === "ghostty";
  if (isKitty || Number(KONSOLE_VERSION) >= KONSOLE) return "kitty";
  if (["iTerm.app", "WezTerm"].includes(TERM_PROGRAM) || LC_TERMINAL === "iTerm2") return "iterm";
  return undefined;
}

/**
 * The sequence that draws a PNG, no wider than the terminal; undefined for other
 * content. It is all base64: nothing in the picture acts on the terminal.
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
