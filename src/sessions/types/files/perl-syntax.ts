/** The escapes of grep's extended regular expressions, besides punctuation and back references. */
const EXTENDED_ESCAPE = /[wWsSbB<>`'1-9]/;
/** Those of them that are plain characters in Perl's syntax. */
const NOT_PERL_ESCAPE = /[<>`']/;
const LETTER_OR_DIGIT = /[A-Za-z0-9]/;
const QUANTIFIER = /[*+?}]/;

/** What shows that a pattern uses one of the two syntaxes. Undefined: nothing. */
interface PatternSyntax {
  /** For example `\d`, `(?` or `+?`. */
  readonly perl: string | undefined;
  /** For example `\<`. */
  readonly extended: string | undefined;
}

/**
 * Finds out whether a pattern uses Perl's syntax or is an extended regular expression. In the wrong syntax most
 * patterns are not errors: they match nothing, or everything.
 */
export function syntaxOf(pattern: string): PatternSyntax {
  let perl: string | undefined;
  let extended: string | undefined;
  let before = "";
  const lastBracket = pattern.lastIndexOf("]");
  for (let at = 0; at < pattern.length; at++) {
    const character = pattern[at] ?? "";
    const next = pattern[at + 1] ?? "";
    if (character === "[") {
      const set = setAt(pattern, at, lastBracket);
      perl ??= /\\[A-Za-z\]]/.exec(set.slice(0, -1))?.[0];
      at += set.length - 1;
      before = "";
      continue;
    }
    if (character === "\\") {
      if (NOT_PERL_ESCAPE.test(next)) extended ??= character + next;
      else if (LETTER_OR_DIGIT.test(next) && !EXTENDED_ESCAPE.test(next)) perl ??= character + next;
      at++;
      before = "";
      continue;
    }
    if (character === "(" && next === "?") perl ??= "(?";
    if (QUANTIFIER.test(before) && /[?+]/.test(character)) perl ??= before + character;
    before = character;
  }
  return { perl, extended };
}

/** A class such as `[:alpha:]` in a bracket expression. */
const CLASS = /\[([:.=])[^\]]{1,20}\1\]/y;

/** A bracket expression, from its opening to its closing bracket. */
function setAt(pattern: string, start: number, lastBracket: number): string {
  let at = start + 1;
  if (pattern[at] === "^") at++;
  // A closing bracket in the first position is a literal.
  if (pattern[at] === "]") at++;
  while (at < pattern.length && pattern[at] !== "]") {
    CLASS.lastIndex = at;
    if (pattern[at] === "[" && CLASS.test(pattern)) at = CLASS.lastIndex;
    // Perl's way to include a closing bracket, unless no other bracket ends the set.
    else if (pattern[at] === "\\" && pattern[at + 1] === "]" && lastBracket > at + 1) at += 2;
    else at++;
  }
  return pattern.slice(start, at + 1);
}
