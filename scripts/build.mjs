#!/usr/bin/env node
// npm run build: writes the program to dist/, as it is in the package: main.js, which loads the file of a command when it
// is called, and beside it the files that the program reads. An earlier dist/ is replaced as a whole.
//
//   node scripts/build.mjs DIR [MAIN...]    to DIR in place of dist/, with further programs of these names that import the
//                                          sources; what is installed is found from there through DIR/..
//
// Development dependencies become part of these files, so that a start reads few of them; dependencies are installed.
import { cpSync, readdirSync, readFileSync, renameSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import { build } from "rolldown";
import { ROOT } from "./dependencies.mjs";

const [dir = path.join(ROOT, "dist"), ...mains] = process.argv.slice(2);
const DIST = path.resolve(dir);
/** Beside it: what is built refers to files by their place relative to it. */
const FRESH = `${DIST}.new`;
const { dependencies } = JSON.parse(readFileSync(path.join(ROOT, "package.json"), "utf8"));
// Clients call through it: it is a dependency for those who use the generated code.
const { "@bufbuild/protobuf": _, ...installed } = dependencies;

/** What Connect uses of modules of Node's, which are loaded when that is used. */
const LAZY_BUILTINS = {
  "node:http2": `
    export const connect = (...given) => require("node:http2").connect(...given);
    export const constants = new Proxy({}, { get: (_, name) => require("node:http2").constants[name] });
  `,
  "node:https": `export const request = (...given) => require("node:https").request(...given);`,
};

const began = new Date();
rmSync(FRESH, { recursive: true, force: true });
const { output } = await build({
  cwd: ROOT,
  input: {
    main: "src/main.ts",
    "parse-worker": "src/tenants/parse-worker.ts",
    ...Object.fromEntries(mains.map((main) => [path.basename(main, ".ts"), main])),
  },
  platform: "node",
  // Of dockerode, Berth uses neither SSH, which has parts that are compiled at install, nor builds of images: a third of
  // the program otherwise.
  resolve: { alias: { ssh2: false, "@grpc/grpc-js": false, "@grpc/proto-loader": false, protobufjs: false } },
  external: Object.keys(installed).flatMap((name) => [name, new RegExp(`^${name}/`)]),
  transform: { target: "node20" },
  // What one command loads at its start, another may load later.
  checks: { ineffectiveDynamicImport: false },
  onLog: (level, { code, message }, log) => {
    // CommonJS has no such thing: the program would fail where it reaches it.
    if (code === "EMPTY_IMPORT_META") throw new Error(message);
    log(level, message);
  },
  plugins: [
    {
      name: "lazy-builtins",
      // A client needs these for services elsewhere alone (ADR 109), and Connect imports them where it may need them.
      resolveId: (id, importer = "") =>
        Object.hasOwn(LAZY_BUILTINS, id) && importer.includes("/@connectrpc/connect-node/")
          ? `\0lazy:${id}`
          : null,
      load: (id) => LAZY_BUILTINS[id.replace(/^\0lazy:/, "")] ?? null,
    },
    {
      name: "ascii",
      // The program keeps its text in memory, each character in two bytes if a single one needs that.
      generateBundle(_, bundle) {
        for (const chunk of Object.values(bundle)) if (chunk.type === "chunk") chunk.code = ascii(chunk.code);
      },
    },
  ],
  // As Node does for packages in node_modules: what they call that is deprecated is nothing that an operator can change.
  output: {
    dir: FRESH,
    // An ES module that imports one of Node's has all made that it exports, down to the whole of `fetch` (ADR 109).
    format: "cjs",
    comments: false,
    banner: ({ isEntry }) => (isEntry ? "process.noDeprecation = true;" : ""),
  },
});
writeFileSync(path.join(FRESH, "package.json"), '{ "type": "commonjs" }\n');
cpSync(path.join(ROOT, "src/sessions/types/vm/driver"), path.join(FRESH, "driver"), { recursive: true });
writeFileSync(path.join(FRESH, "LICENSES.txt"), licenses(output.flatMap(({ moduleIds = [] }) => moduleIds)));
// bin/berth compares the sources with it.
utimesSync(path.join(FRESH, "main.js"), began, began);
rmSync(DIST, { recursive: true, force: true });
renameSync(FRESH, DIST);

/** The same program without comments in ASCII: what is not is in strings and regular expressions. */
function ascii(code) {
  return code.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** The licences of the packages that became part of the program. The package has the text of Apache-2.0 already. */
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
