import { invalidArgument } from "../../../base/errors.ts";

/** Common names of keys, in lower case, and X's names for them. */
const ALIASES: Readonly<Record<string, string>> = {
  enter: "Return",
  return: "Return",
  esc: "Escape",
  escape: "Escape",
  tab: "Tab",
  space: "space",
  backspace: "BackSpace",
  del: "Delete",
  delete: "Delete",
  ins: "Insert",
  insert: "Insert",
  home: "Home",
  end: "End",
  pageup: "Prior",
  page_up: "Prior",
  pgup: "Prior",
  pagedown: "Next",
  page_down: "Next",
  pgdn: "Next",
  pgdown: "Next",
  up: "Up",
  down: "Down",
  left: "Left",
  right: "Right",
  arrowup: "Up",
  arrowdown: "Down",
  arrowleft: "Left",
  arrowright: "Right",
  ctrl: "Control_L",
  control: "Control_L",
  ctrlleft: "Control_L",
  ctrlright: "Control_R",
  alt: "Alt_L",
  option: "Alt_L",
  altleft: "Alt_L",
  altright: "Alt_R",
  altgr: "ISO_Level3_Shift",
  shift: "Shift_L",
  shiftleft: "Shift_L",
  shiftright: "Shift_R",
  super: "Super_L",
  win: "Super_L",
  winleft: "Super_L",
  winright: "Super_R",
  windows: "Super_L",
  cmd: "Super_L",
  command: "Super_L",
  meta: "Super_L",
  menu: "Menu",
  apps: "Menu",
  capslock: "Caps_Lock",
  numlock: "Num_Lock",
  scrolllock: "Scroll_Lock",
  printscreen: "Print",
  prtsc: "Print",
  pause: "Pause",
  plus: "plus",
  minus: "minus",
};

/** F1 to F24. */
const FUNCTION_KEY = /^f([1-9]|1\d|2[0-4])$/;
/** Names in X's spelling are looked up in the sandbox. */
const X_NAME = /^[A-Za-z0-9_]{2,40}$/;
const MAX_KEYS = 16;

/** For the error about an unknown key. */
const KNOWN_KEYS =
  "a single character, a name such as enter, esc, tab, space, backspace, delete, up, pageup, ctrl, alt, shift, super, f1 to f24, or an X keysym's name such as XF86AudioPlay";

/** A key for the driver to press, and the parameter that named it. */
export type NamedKey = readonly [field: string, name: string];

/**
 * The name by which the driver finds a key. @param field below `params`. @throws `INVALID_ARGUMENT` if it cannot be a
 * key.
 */
export function keyName(field: string, key: string): string {
  const alias = key.toLowerCase();
  if (Object.hasOwn(ALIASES, alias)) return ALIASES[alias] ?? key;
  if (FUNCTION_KEY.test(alias)) return alias.toUpperCase();
  if ([...key].length === 1 && isPrintable(key)) return key;
  if (X_NAME.test(key)) return key;
  throw invalidArgument(
    `params.${field}`,
    `there is no key ${JSON.stringify(key.slice(0, 60))}: give ${KNOWN_KEYS}.`,
  );
}

/**
 * The keys of a combination such as `ctrl+shift+t`, in order. A plus sign at the end is the key itself, as in `ctrl++`.
 * @throws `INVALID_ARGUMENT`.
 */
export function splitKeys(field: string, text: string): readonly NamedKey[] {
  const parts = text === "+" ? ["+"] : text.replace(/\+\+$/, "+plus").split("+");
  return namedKeys(
    field,
    parts.map((part) => (part === " " ? part : part.trim())),
    () => field,
  );
}

/** The keys of a list. @throws `INVALID_ARGUMENT`. */
export function namedKeys(
  field: string,
  keys: readonly string[],
  fieldOf: (index: number) => string = (index) => `${field}[${index}]`,
): readonly NamedKey[] {
  if (keys.length === 0 || keys.length > MAX_KEYS) {
    throw invalidArgument(`params.${field}`, `must name 1 to ${MAX_KEYS} keys.`);
  }
  const names = keys.map((key, index) => keyName(fieldOf(index), key));
  // In a combination, a letter means its key. Callers who mean Shift name it.
  const plain =
    names.length > 1 ? names.map((name) => (/^[A-Z]$/.test(name) ? name.toLowerCase() : name)) : names;
  return plain.map((name, index) => [fieldOf(index), name]);
}

/** Whether a character can be typed: not a control character and not half of a surrogate pair. */
export function isPrintable(character: string): boolean {
  return !/[\p{Cc}\p{Cs}]/u.test(character);
}
