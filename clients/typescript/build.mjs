// Builds dist/: the sources as JavaScript with types, the generated code, and the license.
import { spawnSync } from "node:child_process";
import { cpSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = path.dirname(fileURLToPath(import.meta.url));
const tsc = path.join(
  path.dirname(createRequire(import.meta.url).resolve("@typescript/native/package.json")),
  "bin/tsc",
);

rmSync(path.join(root, "dist"), { recursive: true, force: true });
const { status } = spawnSync(process.execPath, [tsc, "-p", root], { stdio: "inherit" });
// In src/ this is a link to the generated code of the whole repository.
cpSync(path.join(root, "src/v1"), path.join(root, "dist/v1"), { recursive: true, dereference: true });
cpSync(path.join(root, "../../LICENSE"), path.join(root, "LICENSE"));
process.exitCode = status ?? 1;
