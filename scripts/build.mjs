#!/usr/bin/env node
// npm run build: writes the program to dist/, as it is in the package: main.js, which loads the file of a command when
// it is called, and next to it the files that the program reads. Replaces an earlier dist/ as a whole.
//
//   node scripts/build.mjs DIR [MAIN...]    to DIR instead of dist/, with further programs of these names that import
//                                          the sources; installed packages are found through DIR/..
//
// Development dependencies are bundled into these files, so that a start reads few of them. Dependencies are installed.
import { cpSync, readdirSync, readFileSync, renameSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import { build } from "rolldown";
import { ROOT } from "./dependencies.mjs";

const [dir = path.join(ROOT, "dist"), ...mains] = process.argv.slice(2);
const DIST = path.resolve(dir);
/** Next to it, because built files refer to others by relative paths. */
const FRESH = `${DIST}.new`;
const { dependencies } = JSON.parse(readFileSync(path.join(ROOT, "package.json"), "utf8"));
// Clients call through it. It is a dependency only for users of the generated code.
const { "@bufbuild/protobuf": _, ...installed } = dependencies;

/** What bundled packages use of some of Node's modules, which most commands never need. Each is loaded on first use. */
const LAZY_BUILTINS = {
  "node:child_process": `
    export default { spawn: (...given) => require("node:child_process").spawn(...given) };
  `,
  "node:http2": `
    export const connect = (...given) => require("node:http2").connect(...given);
    export const constants = new Proxy({}, { get: (_, name) => require("node:http2").constants[name] });
  `,
  "node:https": `export const request = (...given) => require("node:https").request(...given);`,
  "node:zlib": `
    export const gzip = (...given) => require("node:zlib").gzip(...given);
    export const gunzip = (...given) => require("node:zlib").gunzip(...given);
    export const brotliCompress = (...given) => require("node:zlib").brotliCompress(...given);
    export const brotliDecompress = (...given) => require("node:zlib").brotliDecompress(...given);
  `,
};

const began = new Date();
rmSync(FRESH, { recursive: true, force: true });
const { output } = await build({
  cwd: ROOT,
  input: {
    main: "src/main.ts",
    "checkpoint-worker": "src/state/checkpoint-worker.ts",
    "parse-worker": "src/tenants/parse-worker.ts",
    ...Object.fromEntries(mains.map((main) => [path.basename(main, ".ts"), main])),
  },
  platform: "node",
  // Berth uses neither dockerode's SSH, parts of which are compiled at install, nor its builds of images. They would be
  // a third of the program.
  resolve: { alias: { ssh2: false, "@grpc/grpc-js": false, "@grpc/proto-loader": false, protobufjs: false } },
  external: Object.keys(installed).flatMap((name) => [name, new RegExp(`^${name}/`)]),
  transform: { target: "node20" },
  // A module that one command imports at its start, another may import later.
  checks: { ineffectiveDynamicImport: false },
  onLog: (level, { code, message }, log) => {
    // CommonJS has no import.meta: the program would fail on reaching it.
    if (code === "EMPTY_IMPORT_META") throw new Error(message);
    log(level, message);
  },
  plugins: [
    {
      name: "lazy-builtins",
      // Connect and commander import them always (ADR 109).
      resolveId: (id, importer = "") =>
        Object.hasOwn(LAZY_BUILTINS, id) && /\/(@connectrpc\/connect-node|commander)\//.test(importer)
          ? `\0lazy:${id}`
          : null,
      load: (id) => LAZY_BUILTINS[id.replace(/^\0lazy:/, "")] ?? null,
    },
    {
      name: "ascii",
      // Node keeps the source in memory, with two bytes per character if a single character needs that.
      generateBundle(_, bundle) {
        for (const chunk of Object.values(bundle)) if (chunk.type === "chunk") chunk.code = ascii(chunk.code);
      },
    },
  ],
  // As Node does for packages in node_modules: an operator cannot fix deprecated calls in them.
  output: {
    dir: FRESH,
    // An ES module that imports one of Node's modules creates all of its exports, including all of `fetch` (ADR 109).
    format: "cjs",
    comments: false,
    banner: ({ isEntry }) => (isEntry ? "process.noDeprecation = true;" : ""),
  },
});
writeFileSync(path.join(FRESH, "package.json"), '{ "type": "commonjs" }\n');
cpSync(path.join(ROOT, "src/sessions/types/vm/driver"), path.join(FRESH, "driver"), { recursive: true });
writeFileSync(path.join(FRESH, "LICENSES.txt"), licenses(output.flatMap(({ moduleIds = [] }) => moduleIds)));
// bin/berth compares its time with that of the sources.
utimesSync(path.join(FRESH, "main.js"), began, began);
rmSync(DIST, { recursive: true, force: true });
renameSync(FRESH, DIST);

/** The same program in ASCII. Without comments, other characters only appear in strings and regular expressions. */
function ascii(code) {
  return code.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** The licenses of the bundled packages. The package already contains the text of Apache-2.0. */
function licenses(modules) {
  const roots = modules.flatMap((id) => /^(\/.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1] ?? []);
  const texts = [...new Set(roots)].sort().map((root) => {
    const { name, version, license } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
    const files =
      license === "Apache-2.0" ? [] : readdirSync(root).filter((file) => /^licen[cs]e/i.test(file));
    const texts = files.map((file) => readFileSync(path.join(root, file), "utf8"));
    return [`${name} ${version}: ${license}\n`, ...texts].join("\n");
  });
  return texts.join(`\n${"-".repeat(80)}\n\n`);
}
