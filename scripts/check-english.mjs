#!/usr/bin/env node
// Refuses words and phrases that are never right in this repository, and says what to write instead.
//
//   node scripts/check-english.mjs          this repository
//   node scripts/check-english.mjs ROOT     the same files below another directory
//
// Checks comments and strings of sources, comments of protos, and whole scripts and documents. Names in code are not
// checked: some are part of the API.
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import ts from "typescript";
import { ROOT } from "./dependencies.mjs";

const PLACES = [
  "src",
  "clients",
  "proto",
  "docs",
  "scripts",
  "bench",
  "test",
  "bin",
  "deploy",
  "interop",
  "README.md",
  "CONTRIBUTING.md",
  "SECURITY.md",
];
/** Lists the words itself; tests the list; written by `npm run bench`. */
const LEFT_OUT = [
  "scripts/check-english.mjs",
  "test/integration/checks.test.ts",
  "docs/benchmarks.md",
  "docs/benchmarks.json",
  "docs/benchmarks.svg",
];

/** What builds and installs leave among the sources. */
const GENERATED =
  /(?:^|\/)(?:node_modules|dist|build|coverage|__pycache__|LICENSE|\.[^/]+|[^/]+\.egg-info)(?:\/|$)/u;

/** Between two words: a phrase may continue on the next line of a comment. */
const GAP = /[\s*/#>]+/gu;

/** What is refused, and what to write instead. */
const RULES = [
  ["told|telling|tells", "report, say, show, inform; distinguish"],
  ["mend(?:s|ed|ing)?", "fix"],
  ["anew", "again; start … anew: restart"],
  ["begun", "started"],
  ["whom", "who, or rephrase"],
  ["let(?:s|ting)? go of", "release, close, detach, drop"],
  ["(?:is|are|was|were) to be", "must be, should be, will be"],
  ["owns? up to|owned up to", "records"],
  ["the weather of", "the load of"],
  ["tried again all the time", "Berth keeps retrying"],
  ["(?:ran|runs?) longer than", "exceeded its timeout of"],
  ["longer than (?:it|they) may", "past its timeout, past its limit"],
  ["as many as (?:it|they|there) may", "has reached its limit of"],
  ["meets? (?:its|their|the) end", "gets EOF, ends"],
  ["beside", "next to; in addition to, as well as; during"],
  ["in vain", "without success, fails to"],
  ["at one stroke", "at once, atomically"],
  [
    "befall(?:s|en)?|befell|hitherto|whence|hence|thereof|therein|lest",
    "the modern word: happens, so far, so, in it",
  ],
  ["slip of the pen", "typo"],
  ["of (?:his|her) own", "their own"],
  ["whosoever|whomever", "who, anyone who"],
].map(([words, instead]) => ({
  pattern: new RegExp(`\\b(?:${words.replaceAll(" ", GAP.source)})\\b`, "giu"),
  instead,
}));

const root = path.resolve(process.argv[2] ?? ROOT);
const findings = PLACES.flatMap(filesOf)
  .filter((file) => !LEFT_OUT.includes(file))
  .flatMap(findingsIn);
for (const { file, line, word, instead } of findings)
  console.error(`${file}:${line}: "${word}": write: ${instead}`);
if (findings.length > 0) {
  const files = new Set(findings.map(({ file }) => file)).size;
  console.error(
    `${findings.length} ${findings.length === 1 ? "finding" : "findings"} in ${files} ${files === 1 ? "file" : "files"}.`,
  );
  process.exitCode = 1;
}

/** The files in a place, as paths relative to the root. */
function filesOf(place) {
  const at = path.join(root, place);
  if (!existsSync(at)) return [];
  if (!statSync(at).isDirectory()) return [place];
  return readdirSync(at, { recursive: true })
    .map((name) => path.join(place, name))
    .filter((file) => !GENERATED.test(file))
    .filter((file) => statSync(path.join(root, file)).isFile())
    .sort();
}

function findingsIn(file) {
  const prose = proseOf(file, readFileSync(path.join(root, file), "utf8"));
  return RULES.flatMap(({ pattern, instead }) =>
    [...prose.matchAll(pattern)].map(({ 0: match, index }) => ({
      file,
      line: prose.slice(0, index).split("\n").length,
      word: match.replace(GAP, " "),
      instead,
    })),
  ).sort((a, b) => a.line - b.line);
}

/** The text with everything blanked that is not prose, so that lines and columns stay. */
function proseOf(file, text) {
  if (/\.[cm]?[jt]s$/.test(file)) return withoutNames(text, file);
  if (file.endsWith(".proto")) return keep(text, /\/\/.*|\/\*[\s\S]*?\*\//gu);
  if (file.endsWith(".md")) {
    return [/^ *```[\s\S]*?^ *```/gmu, /`[^`\n]+`/gu, /\]\([^)\s]*\)/gu].reduce(
      (prose, code) => prose.replace(code, blank),
      text,
    );
  }
  return text;
}

/** TypeScript or JavaScript without its identifiers. Comments, strings and keywords remain. */
function withoutNames(text, file) {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest);
  const parts = [];
  let end = 0;
  const visit = (node) => {
    if (ts.isIdentifier(node) || ts.isPrivateIdentifier(node)) {
      const start = node.getStart(source);
      parts.push(text.slice(end, start), blank(text.slice(start, node.end)));
      end = node.end;
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return parts.join("") + text.slice(end);
}

function keep(text, pattern) {
  let kept = "";
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    kept += blank(text.slice(end, match.index)) + match[0];
    end = match.index + match[0].length;
  }
  return kept + blank(text.slice(end));
}

function blank(text) {
  return text.replace(/[^\n]/gu, " ");
}
