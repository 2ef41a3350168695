import { type BerthError, invalidArgument } from "../../../base/errors.ts";
import { ownValue } from "../../../base/own-value.ts";
import type { Hold } from "../held-memory.ts";
import type { Pace } from "../pace.ts";
import { expandBraces } from "./expand-braces.ts";

const MAX_PATTERN = 1000;
/** How many patterns braces may expand to. */
const MAX_ALTERNATIVES = 1000;
/** How many characters these may have together. It also limits sets such as `[abc]`, which are one step each. */
const MAX_EXPANDED = 20_000;
const MAX_STEPS = 10_000;
/** How much memory cached states may take. */
const MAX_CACHED_BYTES = 16 * 1024 * 1024;
/** What a state takes, besides two bytes for each step in itself and in its key. */
const STATE_BYTES = 600;
const TRANSITION_BYTES = 40;
/** How much may be evaluated without a cached transition, for all names together: about a second. */
const MAX_WORK = 20_000_000;

const SLASH = 0x2f;
const DOT = 0x2e;

/** One step of the automaton. */
type Step =
  /** Takes a character and continues with the next step. */
  | {
      readonly kind: "take";
      readonly takes: (codePoint: number) => boolean;
      /** Whether it does not match a dot at the start of a name. */
      readonly wild: boolean;
      /** How many comparisons `takes` makes at most. */
      readonly cost: number;
    }
  | { readonly kind: "fork"; readonly to: number[] }
  | { readonly kind: "match" };

/** A set of steps that the automaton may be in. */
interface State {
  readonly steps: Uint16Array;
  readonly matches: boolean;
  /** Whether a name starts here. */
  readonly start: boolean;
  readonly next: Map<number, State>;
}

/**
 * A glob from a caller, matched against names that a sandbox created: `*`, `?`, `[a-z]`, `[!a]`, `[[:digit:]]`, `**`,
 * `{a,b}`, `{1..9}`, `?(a|b)`, `*(a|b)`, `+(a|b)`, `@(a|b)`, and `\` before a literal character. Only a literal dot
 * matches a dot at the start of a name.
 *
 * Matching takes time linear in the name, whatever the pattern: the automaton is in all its states at once and never
 * backtracks. Patterns that are unreasonably long or expensive are refused.
 *
 * It keeps states that names have led to until it is disposed of.
 */
export class Glob implements Disposable {
  readonly #field: string;
  readonly #hold: Hold;
  readonly #steps: Step[] = [];
  readonly #states = new Map<string, State>();
  #first: State;
  #cachedBytes = 0;
  #work = 0;
  /** For each step, the last call of {@link #stateOf} that reached it. */
  readonly #reachedIn: Uint32Array;
  #call = 0;
  /** Whether the name being compiled starts with a wildcard, so that it does not match a name with a leading dot. */
  #beginsWild = false;

  /**
   * @param field of the request, for errors
   * @param hold called with the memory that its states take, and with what drops them
   * @throws `INVALID_ARGUMENT` if the pattern is too long, expands to too much, or contains `!(…)`
   */
  constructor(field: string, pattern: string, hold: Hold = () => {}) {
    this.#field = field;
    this.#hold = hold;
    if (pattern.length > MAX_PATTERN) {
      throw invalidArgument(field, `has ${pattern.length} characters; at most ${MAX_PATTERN} are allowed`);
    }
    const alternatives = expandBraces(pattern, MAX_ALTERNATIVES);
    if (alternatives === undefined) {
      throw invalidArgument(field, `its braces make more than ${MAX_ALTERNATIVES} patterns; use * or [0-9]`);
    }
    if (alternatives.reduce((length, alternative) => length + alternative.length, 0) > MAX_EXPANDED)
      throw this.#tooComplex();
    this.#alternate(alternatives.map((alternative) => () => this.#path(alternative)));
    this.#add({ kind: "match" });
    this.#reachedIn = new Uint32Array(this.#steps.length);
    this.#first = this.#stateOf([0], true);
  }

  /**
   * Whether a path matches. May be called again once it has answered.
   * @throws `INVALID_ARGUMENT` if all names so far took too much work
   */
  async matches(path: string, pace: Pace): Promise<boolean> {
    let state = this.#first;
    for (let at = 0; at < path.length && state.steps.length > 0; ) {
      const codePoint = path.codePointAt(at) ?? 0;
      at += codePoint > 0xffff ? 2 : 1;
      const known = state.next.get(codePoint);
      if (known === undefined) await pace.next();
      state = known ?? this.#advance(state, codePoint);
    }
    return state.matches;
  }

  #advance(from: State, codePoint: number): State {
    if (this.#work > MAX_WORK) {
      throw invalidArgument(
        this.#field,
        "takes too long to match against so many files. Use a simpler pattern, or a directory with fewer files",
      );
    }
    const hidden = from.start && codePoint === DOT;
    const to: number[] = [];
    for (const at of from.steps) {
      const step = this.#steps[at];
      if (step?.kind !== "take") continue;
      this.#work += step.cost;
      if (!(hidden && step.wild) && step.takes(codePoint)) to.push(at + 1);
    }
    if (this.#cachedBytes > MAX_CACHED_BYTES) this.#forget();
    const state = this.#stateOf(to, codePoint === SLASH);
    from.next.set(codePoint, state);
    this.#cachedBytes += TRANSITION_BYTES;
    this.#hold(this.#forget, this.#cachedBytes);
    return state;
  }

  readonly #forget = (): void => {
    this.#states.clear();
    this.#cachedBytes = 0;
    this.#first = this.#stateOf([0], true);
  };

  [Symbol.dispose](): void {
    this.#hold(this.#forget, 0);
  }

  /** The state of all steps that can be reached from `steps` without a character. */
  #stateOf(steps: readonly number[], start: boolean): State {
    const call = ++this.#call;
    const reached: number[] = [];
    const reach = (at: number): void => {
      if (this.#reachedIn[at] === call) return;
      this.#reachedIn[at] = call;
      reached.push(at);
    };
    steps.forEach(reach);
    const taking: number[] = [];
    for (const at of reached) {
      const step = this.#steps[at];
      if (step?.kind === "fork") step.to.forEach(reach);
      else taking.push(at);
    }
    this.#work += reached.length;
    // A sorted array of numbers and its bytes as text take a fraction of the time of lists and decimals.
    const sorted = Uint16Array.from(taking).sort();
    const key = `${start}${Buffer.from(sorted.buffer).toString("latin1")}`;
    let state = this.#states.get(key);
    if (state === undefined) {
      const matches = sorted.some((at) => this.#steps[at]?.kind === "match");
      state = { steps: sorted, matches, start, next: new Map() };
      this.#states.set(key, state);
      this.#cachedBytes += STATE_BYTES + sorted.byteLength + key.length;
    }
    return state;
  }

  #add(step: Step): void {
    if (this.#steps.length >= MAX_STEPS) throw this.#tooComplex();
    this.#steps.push(step);
  }

  #tooComplex(): BerthError {
    return invalidArgument(this.#field, "is too complex; use a simpler one");
  }

  #take(takes: (codePoint: number) => boolean, wild: boolean, cost = 1): void {
    this.#add({ kind: "take", takes, wild, cost });
  }

  #literal(codePoint: number): void {
    this.#take((other) => other === codePoint, this.#beginsWild);
  }

  /** Adds a fork. The caller adds its targets to the returned array. */
  #fork(): number[] {
    const to: number[] = [];
    this.#add({ kind: "fork", to });
    return to;
  }

  get #here(): number {
    return this.#steps.length;
  }

  #alternate(ways: readonly (() => void)[]): void {
    const entry = this.#fork();
    const exits: number[][] = [];
    for (const way of ways) {
      entry.push(this.#here);
      way();
      exits.push(this.#fork());
    }
    for (const exit of exits) exit.push(this.#here);
  }

  /** Repeats `body` at least `min` times. */
  #repeat(min: 0 | 1, body: () => void): void {
    const entry = this.#fork();
    const begin = this.#here;
    entry.push(begin);
    body();
    const again = this.#fork();
    again.push(begin, this.#here);
    if (min === 0) entry.push(this.#here);
  }

  #path(pattern: string): void {
    const names = pattern.split("/").filter((name, index, all) => name !== "**" || all[index - 1] !== "**");
    names.forEach((name, index) => {
      const last = index === names.length - 1;
      if (name !== "**") {
        this.#name(name);
        if (!last) this.#literal(SLASH);
        return;
      }
      this.#repeat(last ? 1 : 0, () => {
        this.#repeat(1, () => this.#take(isNoSlash, true));
        if (!last) this.#literal(SLASH);
        else this.#slashOrEnd();
      });
    });
  }

  /** For a name matched by a `**` at the end: a slash if another name follows, or nothing. */
  #slashOrEnd(): void {
    const ways = this.#fork();
    ways.push(this.#here, this.#here + 1);
    this.#literal(SLASH);
  }

  #name(pattern: string): void {
    this.#beginsWild = /^(?:[*?](?!\()|\[)/.test(pattern);
    const parser = new Parser(pattern);
    this.#sequence(parser, 0);
    // An unmatched closing parenthesis ends a sequence; here it is a literal.
    while (!parser.done) {
      this.#literal(parser.take());
      this.#sequence(parser, 0);
    }
  }

  /** Compiles up to the end, or up to what ends an alternative within parentheses. */
  #sequence(parser: Parser, depth: number): void {
    while (!parser.done && !(depth > 0 && parser.at("|", ")"))) {
      const group = parser.group();
      if (group !== undefined) this.#group(group, parser, depth + 1);
      else this.#character(parser);
    }
  }

  #group(kind: string, parser: Parser, depth: number): void {
    if (kind === "!") throw invalidArgument(this.#field, "holds !(…), which is not supported");
    const alternatives = (): void => {
      const entry = this.#fork();
      const exits: number[][] = [];
      do {
        entry.push(this.#here);
        this.#sequence(parser, depth);
        exits.push(this.#fork());
      } while (parser.skip("|"));
      parser.skip(")");
      for (const exit of exits) exit.push(this.#here);
    };
    if (kind === "@") alternatives();
    else if (kind === "+") this.#repeat(1, alternatives);
    else if (kind === "*") this.#repeat(0, alternatives);
    else {
      const entry = this.#fork();
      entry.push(this.#here);
      alternatives();
      entry.push(this.#here);
    }
  }

  #character(parser: Parser): void {
    if (parser.skip("*")) {
      while (parser.at("*") && parser.group(true) === undefined) parser.skip("*");
      this.#repeat(0, () => this.#take(isNoSlash, true));
    } else if (parser.skip("?")) this.#take(isNoSlash, true);
    else {
      const set = parser.set();
      if (set !== undefined) this.#take(set.takes, true, set.cost);
      else {
        parser.skip("\\");
        if (!parser.done) this.#literal(parser.take());
      }
    }
  }
}

function isNoSlash(codePoint: number): boolean {
  return codePoint !== SLASH;
}

const CLASSES: Readonly<Record<string, RegExp>> = {
  alnum: /[\p{L}\p{Nl}\p{Nd}]/u,
  alpha: /[\p{L}\p{Nl}]/u,
  blank: /[\p{Zs}\t]/u,
  cntrl: /\p{Cc}/u,
  digit: /\p{Nd}/u,
  lower: /\p{Ll}/u,
  punct: /\p{P}/u,
  space: /[\p{Z}\t\r\n\v\f]/u,
  upper: /\p{Lu}/u,
  word: /[\p{L}\p{Nl}\p{Nd}\p{Pc}]/u,
  xdigit: /[A-Fa-f0-9]/,
};

/** Reads the pattern of one name. */
class Parser {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  get done(): boolean {
    return this.#at >= this.#text.length;
  }

  at(...characters: readonly string[]): boolean {
    return characters.includes(this.#text[this.#at] ?? "");
  }

  skip(character: string): boolean {
    if (this.#text[this.#at] !== character) return false;
    this.#at++;
    return true;
  }

  take(): number {
    const codePoint = this.#text.codePointAt(this.#at) ?? 0;
    this.#at += codePoint > 0xffff ? 2 : 1;
    return codePoint;
  }

  /** The kind of a group that starts here; undefined if there is none. Skips its start, unless `look` is set. */
  group(look = false): string | undefined {
    const kind = this.#text[this.#at] ?? "";
    const closes = this.#text.indexOf(")", this.#at) > 0;
    if (!"?*+@!".includes(kind) || kind === "" || this.#text[this.#at + 1] !== "(" || !closes)
      return undefined;
    if (!look) this.#at += 2;
    return kind;
  }

  /** The test for a bracket expression, and how many comparisons it makes. Undefined if none starts here. */
  set(): { readonly takes: (codePoint: number) => boolean; readonly cost: number } | undefined {
    const found = /^\[([!^]?)(\]?(?:\[:[a-z]+:\]|\\.|[^\]\\])*)\]/su.exec(this.#text.slice(this.#at));
    if (found === null || found[2] === "") return undefined;
    const [all, negated, content = ""] = found;
    this.#at += all.length;
    const tests: ((codePoint: number) => boolean)[] = [];
    const items = /\[:([a-z]+):\]|(\\?.)(?:-(\\?.))?/gsu;
    for (const [, name, from, to = from] of content.matchAll(items)) {
      if (name !== undefined) {
        const known = ownValue(CLASSES, name);
        tests.push((codePoint) => known?.test(String.fromCodePoint(codePoint)) ?? false);
        continue;
      }
      const [first, last] = [from, to].map((text) => text?.replace(/^\\(?=.)/su, "").codePointAt(0) ?? 0) as [
        number,
        number,
      ];
      tests.push((codePoint) => first <= codePoint && codePoint <= last);
    }
    const not = negated !== "";
    const takes = (codePoint: number): boolean =>
      codePoint !== SLASH && tests.some((test) => test(codePoint)) !== not;
    return { takes, cost: tests.length };
  }
}
