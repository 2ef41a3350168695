import { posix } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Glob } from "../../../../../src/sessions/types/files/glob.ts";
import { HeldMemory } from "../../../../../src/sessions/types/held-memory.ts";
import { Pace } from "../../../../../src/sessions/types/pace.ts";
import { keptBytes } from "../../../../support/kept-bytes.ts";
import { processorNowMs } from "../../../../support/measure.ts";
import { scaled } from "../../../../support/scale.ts";

const MIB = 2 ** 20;
const pace = new Pace(new AbortController().signal);

const matches = (pattern: string, path: string): Promise<boolean> =>
  new Glob("pattern", pattern).matches(path, pace);

describe("a glob", () => {
  test.each([
    ["*.py", "a.py", true],
    ["*.py", "d/a.py", false],
    ["*.py", ".py", false],
    ["[.a]b", ".b", false],
    ["@(.a|b)", ".a", true],
    ["**/*.py", "a.py", true],
    ["**/*.py", "d/e/a.py", true],
    ["**/*.py", ".d/a.py", false],
    [".d/**", ".d/a/b", true],
    ["src/**/test/*", "src/test/a", true],
    ["src/**/test/*", "src/a/b/test/c", true],
    ["src/{a,b}/*.{ts,js}", "src/b/x.js", true],
    ["src/{a,b}/*.{ts,js}", "src/c/x.js", false],
    ["{1..3}.txt", "2.txt", true],
    ["{08..10}", "09", true],
    ["{a..e..2}", "c", true],
    ["[a-c]?[!x]", "b1y", true],
    ["[a-c]?[!x]", "b1x", false],
    ["[[:upper:]]*", "Über", true],
    ["[[:constructor:]]", "c", false],
    ["[]]", "]", true],
    ["a[", "a[", true],
    ["\\*", "*", true],
    ["\\*", "a", false],
    ["+(a|aa)b", "aaab", true],
    ["+(a|aa)b", "b", false],
    ["?(x)y", "y", true],
    ["*(a|b)", "abba", true],
    ["@(a|b).@(c|d)", "b.c", true],
    ["?", "語", true],
    ["?", "😀", true],
    ["a(b)", "a(b)", true],
    ["{a}", "{a}", true],
    ["{a,b", "{a,b", true],
  ])("%s, %s: %s", async (pattern, path, expected) => {
    expect(await matches(pattern, path)).toBe(expected);
  });

  test("agrees with Node's on patterns that both support", async () => {
    const name = fc.stringMatching(/^[ab.]{1,4}$/).filter((text) => !/^\.\.?$/.test(text));
    const part = fc.constantFrom("a", "b", ".", "*", "?", "[ab]", "[!a]", "{a,b}", "{a,.b}", "ab");
    const segment = fc.oneof(
      { weight: 1, arbitrary: fc.constant("**") },
      { weight: 4, arbitrary: fc.array(part, { minLength: 1, maxLength: 4 }).map((parts) => parts.join("")) },
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(segment, { minLength: 1, maxLength: 4 }),
        fc.array(name, { minLength: 1, maxLength: 4 }),
        async (segments, names) => {
          const pattern = segments.join("/");
          // Node treats ** within a name as **, and . and .. as directories.
          fc.pre(segments.every((text) => text === "**" || !/\*\*|^\.\.?$|^(\{a,)?\.|\{a,\.b\}/.test(text)));
          const path = names.join("/");
          expect([pattern, path, await matches(pattern, path)]).toEqual([
            pattern,
            path,
            posix.matchesGlob(path, pattern),
          ]);
        },
      ),
      { numRuns: scaled(30_000, 1_500) },
    );
  });
});

describe("a hostile glob", () => {
  const long = "a".repeat(4000);

  test.each([
    ["stars", `${"*a".repeat(400)}b`],
    ["nested repetitions", `${"+(a|aa)".repeat(20)}b`],
    ["a repetition of repetitions", "*(*(*(*(a))))b"],
    ["directories", `${"**/".repeat(150)}b`],
    ["empty repetitions", `${"*()".repeat(100)}b`],
  ])("takes no longer than a plain one: %s", async (_, pattern) => {
    const glob = new Glob("pattern", pattern);
    const before = processorNowMs();
    for (let count = 0; count < 20; count++) expect(await glob.matches(long, pace)).toBe(false);
    expect(processorNowMs() - before).toBeLessThan(5000);
  });

  test.each([
    ["{1..100000}", "braces"],
    ["{a,b}".repeat(30), "braces"],
    ["x".repeat(1001), "characters"],
    ["!(a)", "!(…)"],
    ["{*a*b*c*d*e,f}".repeat(9), "complex"],
  ])("is refused: %s", (pattern, why) => {
    expect(() => new Glob("pattern", pattern)).toThrow(why);
  });

  test("is refused if its sets are long together, before they are read", () => {
    expect(() => new Glob("pattern", `[${letters(900)}]{1..700}`)).toThrow("complex");
  });

  test.each([
    ["steps", `*a${"?".repeat(400)}`, ["a", "b"]],
    ["sets", `**/*[${letters(960)}]{01..20}`, Array.from(letters(1000, 0x4e00))],
  ])("is refused if it takes too much work for the number of files: %s", async (_, pattern, characters) => {
    const glob = new Glob("pattern", pattern);
    let seed = 1;
    const random = () => (seed = (seed * 48271) % 2147483647);
    const name = () =>
      Array.from({ length: 2000 }, () => characters[random() % characters.length] ?? "").join("");
    const matchAll = async () => {
      for (let count = 0; count < 1000; count++) await glob.matches(name(), pace);
    };
    await expect(matchAll()).rejects.toThrow("takes too long");
  });

  test("holds the states that names lead to, which others can drop, until it is disposed of", async () => {
    const memory = new HeldMemory(2 * MIB);
    const held: number[] = [];
    const before = await keptBytes();
    const glob = new Glob("pattern", `*a${"?".repeat(250)}`, (drop, bytes) => {
      held.push(bytes);
      memory.hold("owner", drop, bytes);
    });
    let seed = 1;
    const random = () => (seed = (seed * 48271) % 2147483647);
    for (let count = 0; count < 150; count++)
      await glob.matches(Array.from({ length: 250 }, () => "ab"[random() % 2]).join(""), pace);
    // They are counted for what they take, and would take 35 MiB together.
    expect(Math.max(...held) / MIB).toBeCloseTo(2, 1);
    expect((await keptBytes()) - before).toBeLessThan(8 * MIB);
    expect(await glob.matches(`a${"b".repeat(250)}`, pace)).toBe(true);
    glob[Symbol.dispose]();
    expect(held.at(-1)).toBe(0);
  });

  test("lets others use the event loop while it looks at one long name", async () => {
    const glob = new Glob("pattern", "*{1..1000}*");
    let longestMs = 0;
    let before = processorNowMs();
    class Watched extends Pace {
      override next(): undefined {
        longestMs = Math.max(longestMs, processorNowMs() - before);
        before = processorNowMs();
      }
    }
    const watched = new Watched(new AbortController().signal);
    const name = Array.from({ length: 400 }, (_, at) => (at * at * 7) % 1013).join("");
    expect(await glob.matches(name, watched)).toBe(true);
    watched.next();
    expect(longestMs).toBeLessThan(100);
  });
});

/** Different letters. */
function letters(count: number, first = 0x100): string {
  return String.fromCharCode(...Array.from({ length: count }, (_, index) => first + index));
}
