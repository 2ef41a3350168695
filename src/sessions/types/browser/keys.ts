/** A key as the DevTools protocol describes it. */
export interface Key {
  readonly key: string;
  readonly code: string;
  readonly windowsVirtualKeyCode: number;
  /** The text that it types. Undefined: none. */
  readonly text?: string;
  readonly location?: number;
}

/** A key pressed while others are held down. */
export interface Chord {
  readonly modifiers: readonly Key[];
  readonly key: Key;
}

/** The bits of the DevTools protocol for held modifier keys. */
export const MODIFIER_BITS: Readonly<Record<string, number>> = { Alt: 1, Control: 2, Meta: 4, Shift: 8 };

const NAMED: ReadonlyMap<string, Key> = new Map(
  [
    named("Alt", 18, "AltLeft", 1),
    named("Control", 17, "ControlLeft", 1),
    named("Meta", 91, "MetaLeft", 1),
    named("Shift", 16, "ShiftLeft", 1),
    named("Backspace", 8),
    named("Tab", 9),
    { ...named("Enter", 13), text: "\r" },
    named("Escape", 27),
    named("PageUp", 33),
    named("PageDown", 34),
    named("End", 35),
    named("Home", 36),
    named("ArrowLeft", 37),
    named("ArrowUp", 38),
    named("ArrowRight", 39),
    named("ArrowDown", 40),
    named("Insert", 45),
    named("Delete", 46),
    named("ContextMenu", 93),
    ...Array.from({ length: 12 }, (_, index) => named(`F${index + 1}`, 112 + index)),
  ].map((key) => [key.key.toLowerCase(), key]),
);

const ALIASES: Readonly<Record<string, string>> = {
  ctrl: "control",
  cmd: "meta",
  command: "meta",
  super: "meta",
  option: "alt",
  return: "enter",
  esc: "escape",
  del: "delete",
  up: "arrowup",
  down: "arrowdown",
  left: "arrowleft",
  right: "arrowright",
  space: " ",
  plus: "+",
};

/**
 * The keys of a US keyboard that type neither letters nor digits: characters without and with Shift, code, key number.
 */
const SYMBOLS: readonly (readonly [string, string, number])[] = [
  [";:", "Semicolon", 186],
  ["=+", "Equal", 187],
  [",<", "Comma", 188],
  ["-_", "Minus", 189],
  [".>", "Period", 190],
  ["/?", "Slash", 191],
  ["`~", "Backquote", 192],
  ["[{", "BracketLeft", 219],
  ["\\|", "Backslash", 220],
  ["]}", "BracketRight", 221],
  ["'\"", "Quote", 222],
  ["  ", "Space", 32],
];
const SHIFTED_DIGITS = ")!@#$%^&*(";

/** The key that types a character on a US keyboard. Undefined if there is none. */
export function keyOf(character: string): Key | undefined {
  if (character === "\n" || character === "\r") return NAMED.get("enter");
  if (character === "\t") return NAMED.get("tab");
  const typed = { key: character, text: character };
  if (/^[a-zA-Z]$/.test(character)) {
    const letter = character.toUpperCase();
    return { ...typed, code: `Key${letter}`, windowsVirtualKeyCode: letter.charCodeAt(0) };
  }
  const digit = /^[0-9]$/.test(character) ? Number(character) : SHIFTED_DIGITS.indexOf(character);
  if (character.length === 1 && digit >= 0) {
    return { ...typed, code: `Digit${digit}`, windowsVirtualKeyCode: 48 + digit };
  }
  const symbol = SYMBOLS.find(([both]) => character.length === 1 && both.includes(character));
  return symbol && { ...typed, code: symbol[1], windowsVirtualKeyCode: symbol[2] };
}

/** Parses `Enter`, `a` or `Control+Shift+ArrowLeft`. Returns undefined if it names no key. */
export function parseChord(text: string): Chord | undefined {
  const isPlus = text.endsWith("++") || text === "+";
  const names = (isPlus ? text.slice(0, -1) : text).split("+");
  if (isPlus) names.splice(-1, 1, "+");
  const keys = names.map((name) => {
    const known = name.length === 1 ? name : (ALIASES[name.toLowerCase()] ?? name.toLowerCase());
    return NAMED.get(known) ?? keyOf(known);
  });
  const key = keys.pop();
  if (key === undefined || keys.some((one) => one === undefined || MODIFIER_BITS[one.key] === undefined)) {
    return undefined;
  }
  const modifiers = keys.filter((one) => one !== undefined);
  // A key types nothing while Control, Alt or Meta is held.
  const isCommand = modifiers.some((one) => one.key !== "Shift");
  const { text: typed, ...silent } = key;
  if (isCommand) return { modifiers, key: silent };
  const shifted = modifiers.length > 0 && typed !== undefined ? shiftedOf(typed) : undefined;
  return { modifiers, key: shifted === undefined ? key : { ...key, key: shifted, text: shifted } };
}

/** What the key of a character types with Shift. Undefined if that is the same. */
function shiftedOf(character: string): string | undefined {
  if (/^[a-z]$/.test(character)) return character.toUpperCase();
  if (/^[0-9]$/.test(character)) return SHIFTED_DIGITS[Number(character)];
  return SYMBOLS.find(([[plain]]) => plain === character)?.[0][1];
}

function named(key: string, windowsVirtualKeyCode: number, code = key, location?: number): Key {
  return { key, code, windowsVirtualKeyCode, ...(location !== undefined && { location }) };
}
