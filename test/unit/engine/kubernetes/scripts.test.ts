import { spawnSync } from "node:child_process";
import fc from "fast-check";
import { expect, test } from "vitest";
import { type SpawnText, spawnText } from "../../../../src/engine/kubernetes/scripts.ts";

const request: SpawnText = {
  endNonce: "e".repeat(32),
  startNonce: "s".repeat(32),
  user: "",
  terminal: false,
  stdin: true,
  setsHome: false,
  env: {},
  argv: ["true"],
};

/** The words that a shell parses from a request, as the script in the pod would. */
function wordsOf(text: Buffer): string[] {
  const script = `BERTHZ_NL='
'
BERTHZ_Q= BERTHZ_L=
while IFS= read -r BERTHZ_L && [ "$BERTHZ_L" ]; do BERTHZ_Q=$BERTHZ_Q$BERTHZ_L; done
eval "$BERTHZ_Q"
printf '%s\\0' "$@"`;
  const { stdout, status } = spawnSync("/bin/sh", ["-c", script], { input: text });
  expect(status).toBe(0);
  return stdout.toString().split("\0").slice(0, -1);
}

test("a request with any words reaches the shell unchanged", () => {
  const word = fc.oneof(
    fc.string({ unit: "binary", maxLength: 40 }).map((text) => text.replaceAll("\0", "")),
    fc.constantFrom(
      "",
      " ",
      "a\nb\n",
      "\n",
      "'\"\\$(x)`y`",
      "\x01\x03\x04\x1b[0m\x7f",
      "%s\\n%",
      "ü🎉",
      "-n",
    ),
  );
  fc.assert(
    fc.property(fc.array(word, { minLength: 1, maxLength: 5 }), (argv) => {
      // Lone surrogates are not valid text.
      fc.pre(argv.every((text) => text.isWellFormed()));
      const words = wordsOf(spawnText({ ...request, argv: ["prog", ...argv] }));
      expect(words.slice(words.indexOf("--") + 1)).toEqual(["prog", ...argv]);
    }),
    { numRuns: 60 },
  );
});

test("no line is longer than a terminal accepts, and none contains control characters", () => {
  const argv = ["x".repeat(100_000), "\x03\x04\x1a\x7f", "a\nb"];
  const lines = spawnText({ ...request, argv })
    .toString("latin1")
    .split("\n");
  for (const line of lines) expect(line.length).toBeLessThan(4_000);
  expect(lines.join("")).toMatch(/^[\x20-\x7e]*$/);
});

test("a terminal's echo of it does not contain the nonce", () => {
  const text = spawnText(request).toString();
  expect(text).not.toContain(request.endNonce);
  expect(text).not.toContain(request.startNonce);
  expect(wordsOf(Buffer.from(text)).slice(0, 2)).toEqual([request.endNonce, request.startNonce]);
});

test("variables that shells drop or change go through env, and so does a program that looks like an option", () => {
  const env = { PLAIN: "1", "odd.name": "2", IFS: "/" };
  const words = wordsOf(spawnText({ ...request, env }));
  expect(words.slice(6)).toEqual(["4", "PLAIN=1", "--", "env", "--", "odd.name=2", "IFS=/", "true"]);
  expect(wordsOf(spawnText({ ...request, argv: ["-x"] })).slice(6)).toEqual(["2", "--", "env", "--", "-x"]);
});
