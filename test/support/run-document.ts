import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { type Snippet, snippetsOf } from "./documents.ts";
import { TEST_IMAGE } from "./images.ts";
import { newDataDir, newInstance } from "./settings.ts";

const root = path.join(import.meta.dirname, "../..");
const MAX_OUTPUT = 64 << 20;

/** How to run the snippets of a document. */
export interface DocumentRun {
  /** Snippets and shell lines that are skipped, by how they start. */
  readonly leftOut?: readonly string[];
  /**
   * Shell lines that run until they are stopped, and a command that succeeds once they are ready. Their process group
   * is `$lasting`.
   */
  readonly lasting?: readonly { readonly line: RegExp; readonly ready: string }[];
  readonly env?: Readonly<Record<string, string>>;
  /** Whether a service runs and `berth` is the program, as set up by the README. Default: false. */
  readonly service?: boolean;
  /** Shell code before the document's own: what a reader has done before. */
  readonly before?: string;
}

/**
 * Runs the snippets of a document in order, as one shell would. It has its own, otherwise silent network, so that
 * addresses can be those of the document. Stops at the first command that fails. Its directory looks like the checkout;
 * files that it creates at the top are removed. Returns the output.
 */
export async function runDocument(name: string, options: DocumentRun, signal: AbortSignal): Promise<string> {
  const snippets = snippetsOf(name);
  const stale =
    options.leftOut?.filter(
      (start) => !snippets.some(({ text }) => text.split("\n").some((line) => line.startsWith(start))),
    ) ?? [];
  if (stale.length > 0) throw new Error(`${name} has no such lines any more: ${stale.join(", ")}`);
  const home = await mkdtemp(path.join(tmpdir(), "berth-document-"));
  try {
    const files = snippets.map((snippet, index) => scriptOf(snippet, index, home, options));
    const script = [
      PROLOGUE,
      options.service ? SERVICE : "",
      options.before ?? "",
      ...(await Promise.all(files)),
    ].join("\n");
    const file = path.join(home, "script");
    await writeFile(file, script);
    const checkout = path.join(home, "checkout");
    await mkdir(checkout);
    for (const entry of await readdir(root))
      await symlink(path.join(root, entry), path.join(checkout, entry));
    const env = {
      ...environmentOfUser(),
      HOME: home,
      TMPDIR: home,
      BERTH_DEFAULT_IMAGE: TEST_IMAGE,
      BERTH_INSTANCE: newInstance(),
      BERTH_DATA_DIR: newDataDir(),
      ...options.env,
    };
    return await output("unshare", ["--net", "--", "bash", file], { cwd: checkout, env, signal });
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}

/** This process's environment without the variables of the tests, and without colour. */
export function environmentOfUser(): NodeJS.ProcessEnv {
  const own = /^(BERTH_|VITEST|NODE_|FORCE_COLOR$)/;
  return {
    ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !own.test(name))),
    NO_COLOR: "1",
  };
}

/**
 * `await_lasting READY` waits until the command READY succeeds. Each lasting command leads a process group, which gets
 * SIGINT as from a terminal.
 */
const PROLOGUE = `
set -eEuo pipefail
shopt -s expand_aliases
ip link set lo up
service=
lasting=
stop() {
  [ -z "$1" ] || { kill -INT -- "-$1" 2>/dev/null && wait "$1" || true; }
}
trap 'stop "$lasting"; stop "$service"' EXIT
await_lasting() {
  for _ in $(seq 600); do
    if eval "$1" >/dev/null 2>&1; then return; fi
    kill -0 "$lasting" || break
    sleep 0.1
  done
  echo "not ready: $1" >&2
  cat "$HOME/lasting.log" >&2
  return 1
}
`;

const SERVICE = `
alias berth="$PWD/bin/berth"
set -m
berth serve >"$HOME/lasting.log" 2>&1 </dev/null &
set +m
lasting=$!
await_lasting "curl -fsS http://127.0.0.1:7070/healthz"
service=$lasting lasting=
`;

async function scriptOf(
  snippet: Snippet,
  index: number,
  home: string,
  options: DocumentRun,
): Promise<string> {
  const { place, language, text } = snippet;
  const isLeftOut = (code: string) => options.leftOut?.some((start) => code.startsWith(start)) ?? false;
  const heading = `echo '== ${place}'`;
  if (language === "sh") {
    return [heading, ...commandsOf(text).map((line) => (isLeftOut(line) ? "" : shell(line, options)))].join(
      "\n",
    );
  }
  if (isLeftOut(text)) return "";
  if (language === "python") {
    const file = path.join(home, `snippet-${index}.py`);
    await writeFile(file, text);
    return `${heading}\npython -I ${file}`;
  }
  if (language === "ts") {
    // In the checkout, where the packages are found that it imports. The repository's own are used from source.
    return `${heading}\nnode --conditions=@berth/source --input-type=module-typescript <<'END_OF_SNIPPET'\n${text}END_OF_SNIPPET`;
  }
  return "";
}

/** The commands of a block: lines, together with their continuations. */
function commandsOf(text: string): string[] {
  const commands: string[] = [];
  let command = "";
  for (const line of text.split("\n")) {
    command += command === "" ? line : `\n${line}`;
    if (command.endsWith("\\") || (command.match(/'/g) ?? []).length % 2 === 1) continue;
    commands.push(command);
    command = "";
  }
  if (command !== "") throw new Error(`This command has no end: ${command}`);
  return commands;
}

function shell(line: string, { lasting = [] }: DocumentRun): string {
  const ready = lasting.find((kind) => kind.line.test(line))?.ready;
  if (ready === undefined) return line;
  const command = line.replace(/ +#.*$/, "");
  return [
    'stop "$lasting"',
    "set -m",
    `${command} >"$HOME/lasting.log" 2>&1 </dev/null &`,
    "set +m",
    "lasting=$!",
    `await_lasting '${ready.replaceAll("'", `'\\''`)}'`,
  ].join("\n");
}

function output(
  file: string,
  args: readonly string[],
  options: { readonly cwd: string; readonly env: NodeJS.ProcessEnv; readonly signal: AbortSignal },
): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = execFile(
      file,
      [...args],
      { ...options, maxBuffer: MAX_OUTPUT },
      (error, stdout, stderr) => {
        if (error) reject(new Error(`${error.message}\n${stdout}\n${stderr}`));
        else resolve(stdout);
      },
    );
    child.stdin?.end();
  });
}
