import type { Change, Defect } from "./defect.ts";

const DOCKER = "test/contract/engine/docker.test.ts";
const CONTAINER = "src/engine/docker/container-config.ts";
const RULES = "test/unit/engine/docker/egress-rules.test.ts";
const FIREWALL = "src/engine/docker/egress.ts";
const EXEC = "test/integration/processes/exec-cases.test.ts";
const BASH = "test/integration/sessions/bash-hostile.test.ts";
const SHELL = "src/sessions/types/bash/type.ts";
const LISTENER = "test/integration/server/listener.test.ts";

function defect(name: string, test: Defect["test"], ...changes: Change[]): Defect {
  return { name, changes, test };
}

const change = (file: string, from: string, to: string): Change => ({ file, from, to });

const ANY_MOUNT = change(
  "src/engine/mounts.ts",
  "!roots.some((root) => isWithin(real, root)) ||\n        exposesHost(real, mount.own ? [] : closed)",
  "roots.length + closed.length < 0",
);

/** Of what an attacker may try, where no other area has the defence. */
export const HOSTILE_DEFECTS: readonly Defect[] = [
  defect(
    "containers get the engine's socket",
    { file: DOCKER, title: "no socket of a container engine is visible" },
    change(
      CONTAINER,
      "        ...facts.mounts.map(bindMount),\n",
      '        ...facts.mounts.map(bindMount),\n        { Type: "bind", Source: "/var/run/docker.sock", Target: "/run/docker.sock", ReadOnly: true },\n',
    ),
  ),
  defect(
    "the whole machine may be mounted",
    { file: DOCKER, title: "%s as a mount", row: "the whole machine" },
    ANY_MOUNT,
  ),
  defect(
    "a mount may lead up to the whole machine",
    { file: DOCKER, title: "%s as a mount", row: "a way up" },
    ANY_MOUNT,
  ),
  defect(
    "containers have a variable of the service",
    { file: DOCKER, title: "environments and descriptors show nothing of the service" },
    change(CONTAINER, "    Env: env,\n", "    Env: [...env, `NODE_VERSION=${process.version}`],\n"),
  ),
  defect(
    "egress: the metadata address is not rejected",
    { file: RULES, title: "if there are none" },
    change(FIREWALL, "NOT_PUBLIC_IPV4.map((range)", "NOT_PUBLIC_IPV4.slice(0, 4).map((range)"),
  ),
  defect(
    "egress: the machine itself is in reach",
    { file: RULES, title: "if there are none" },
    change(FIREWALL, '  { chain: "INPUT", rule: `-i ${EGRESS_BRIDGE} ${REJECT}` },\n', ""),
  ),
  defect(
    "a name ends at a newline",
    {
      file: "test/integration/files/names.test.ts",
      title: "every name is written, listed, read, moved and removed unchanged",
    },
    change(
      "src/files/list.ts",
      '"find . -mindepth 1 -maxdepth 1 -print0"',
      "\"find . -mindepth 1 -maxdepth 1 -print | tr '\\\\n' '\\\\0'\"",
    ),
    change("src/files/list.ts", "${FIND_ACTIONS} 2>/dev/null", "-unknown 2>/dev/null"),
  ),
  defect(
    "an upload that breaks off takes the place of the old content",
    {
      file: "test/integration/rpc/file-service.test.ts",
      title: "during an upload leaves the old content and nothing else",
    },
    change(
      "src/files/write.ts",
      "sizeBytes === undefined ? cutMark(temporary) : `n=${sizeBytes}\\n`",
      '`n=$(stat -c %s "$t")\\n`',
    ),
    change(
      "src/files/write.ts",
      '    await op.abandon(running, script(assign("p", path), FOLLOW_LINKS, `rm -f "\\${p%/*}/${temporary}"\\n`));\n',
      "    running.closeStdin();\n    await running.ended;\n",
    ),
  ),
  defect(
    "other users of a sandbox can read short content while it is written",
    { file: "test/integration/files/write.test.ts", title: "no process has short content in its arguments" },
    change(
      "src/files/write.ts",
      '`w() { ${PRINT_CONTENT}; }\\nw >"$t" || w | cat`',
      "`w() { printf '${format}'; }\\nw >\"$t\" || w | cat`",
    ),
  ),
  defect(
    "a command has most of its shell's nonce in its environment",
    { file: EXEC, title: "the nonce is nowhere a command can read it" },
    change(
      "src/processes/shell/script.ts",
      "unset PWD OLDPWD SHLVL _n;",
      "export M=00\\${_n#??};unset PWD OLDPWD SHLVL _n;",
    ),
  ),
  defect(
    "a session's shell reads commands as its own input",
    { file: BASH, title: "%s", row: "an unterminated quote" },
    change(
      SHELL,
      '`${code}\\n${delimiter}\\n${end(nonce, "E$?", channel)}`',
      '`${delimiter}\\n${code}\\n${end(nonce, "E$?", channel)}`',
    ),
  ),
  defect(
    "a function replaces the printf that reports a command's end",
    { file: BASH, title: "a function named %s", row: "printf" },
    change(SHELL, "return `\\\\builtin printf '%s%s;' ${nonce}", "return `printf '%s%s;' ${nonce}"),
  ),
  defect(
    "a shell that may not report the end of a command lasts until the timeout",
    { file: BASH, title: "%s", row: "a restricted shell" },
    change(SHELL, ' || \\\\exit "\\${_#?}"', ""),
  ),
  defect(
    "the output of a background job becomes a part of the directory",
    {
      file: BASH,
      title: "what a background job writes at the end of a command is not taken for the directory",
    },
    change("src/sessions/types/execution.ts", 'phase === "payload" && isPart', 'phase === "payload"'),
  ),
  defect(
    "output of a background process in the middle of python's report makes it unreadable",
    {
      file: "test/integration/sessions/python.test.ts",
      title: "processes that write while a result is reported do not damage it",
    },
    change("src/sessions/types/python/driver.ts", "PART = ${ATOMIC_BYTES - 100}", "PART = 2 ** 30"),
  ),
  defect(
    "a shell that killed itself is given the next command",
    { file: BASH, title: "%s", row: "kill -9 $$" },
    change(
      "src/sessions/types/interpreter-process.ts",
      "return this.#end === undefined && this.#closing === undefined;",
      "return this.#closing === undefined;",
    ),
  ),
  defect(
    "what ignores SIGTERM is not killed",
    {
      file: "test/integration/processes/command-timeout.test.ts",
      title: "a command that ignores SIGTERM is killed after a grace period",
    },
    change("src/engine/outside/control.ts", "this.#send(doomed, SIGKILL)", "this.#send(doomed, SIGTERM)"),
  ),
  defect(
    "output passes as text",
    {
      file: EXEC,
      title: "binary, terminal sequences and split UTF-8 arrive byte for byte, as they were written",
    },
    change(
      "src/base/markers.ts",
      "    if (at > 0) this.#onData(bytes.subarray(0, at));\n    // Copy",
      '    if (at > 0) this.#onData(Buffer.from(bytes.toString("utf8", 0, at)));\n    // Copy',
    ),
  ),
  defect(
    "a connection has any number of calls at once",
    {
      file: LISTENER,
      title: "a client learns how many calls it may make at once, and queues more",
    },
    change(
      "src/server/listener.ts",
      "maxConcurrentStreams: limits.maxConcurrentStreams,",
      "maxConcurrentStreams: 1000,",
    ),
  ),
  defect(
    "a connection of HTTP/1 has any number of calls at once",
    { file: LISTENER, title: "may ask again before it is answered, but not any number of times" },
    change("src/server/listener.ts", "if (!hasRoom) socket.destroy();\n    return hasRoom;", "return true;"),
  ),
  defect(
    "nothing looks for headers that come slowly",
    { file: LISTENER, title: "headers that do not end close the connection" },
    change("src/server/listener.ts", 'this.#http1.emit("listening");', ""),
  ),
  defect(
    "a command that a crash cut short is run again by its retry",
    { file: "test/integration/restart/crash-points.test.ts", title: "at %s", row: "exec.started" },
    change(
      "src/processes/manager.ts",
      "begin(starting, () => progress.begin(id))",
      "begin(starting, () => {})",
    ),
  ),
  defect(
    "a full disk under the state is reported as Berth's own failure",
    {
      file: "test/integration/restart/disk-full.test.ts",
      title:
        "a full disk refuses creates with what to do; reads, commands and deletes work; nothing is broken after",
    },
    change(
      "src/state/database.ts",
      '"NO_SPACE",\n        "The disk of the server',
      '"INTERNAL",\n        "The disk of the server',
    ),
  ),
  defect(
    "operations do not report that their sandbox was deleted",
    {
      file: "test/integration/sandboxes/delete.test.ts",
      title: "a delete ends commands that exceed the grace period, and they report it",
    },
    change("src/sandboxes/delete.ts", "      record.leases.abortAll(deleted);\n", ""),
  ),
  defect(
    "each of many calls measures the sandbox",
    {
      file: "test/unit/sandboxes/usage.test.ts",
      title: "many callers share one measurement of a sandbox, which one of them cannot cancel",
    },
    change(
      "src/sandboxes/usage-meter.ts",
      "let measuring = this.#measuring.get(ref);",
      "let measuring: Promise<Measurement> | undefined;",
    ),
  ),
  defect(
    "the processes of a sandbox are added up without turns of the event loop",
    {
      file: "test/unit/engine/bubblewrap/tree-usage.test.ts",
      title: "the usage of many processes is added up with turns of the event loop between them",
    },
    change("src/engine/bubblewrap/tree-usage.ts", "if (turn) await turn;", "void turn;"),
  ),
  defect(
    "all children of a process are searched for an open file",
    {
      file: "test/unit/engine/outside/control.test.ts",
      title: "of a process's many children, only a few are searched for an open file",
    },
    change("src/engine/outside/control.ts", ".slice(0, MAX_DESCENDANTS)", ".slice(0 * MAX_DESCENDANTS)"),
  ),
  defect(
    "all descriptors of a process are searched in one turn of the event loop",
    {
      file: "test/unit/engine/outside/control.test.ts",
      title:
        "a process with thousands of descriptors is searched for the pipes of a tree with turns of the event loop in between",
    },
    change(
      "src/engine/outside/host-process.ts",
      "      if (turn) await turn;\n      if (targets.includes",
      "      void turn;\n      if (targets.includes",
    ),
  ),
  defect(
    "what a program's second thread starts does not count as the sandbox's",
    {
      file: "test/unit/engine/bubblewrap/tree-usage.test.ts",
      title: "threads count, and so do the children of every thread",
    },
    change("src/engine/bubblewrap/tree-usage.ts", "threads > 1 ? threadsOf(pid) : [pid]", "[pid]"),
  ),
  defect(
    "a measurement keeps its sandbox alive",
    {
      file: "test/unit/sandboxes/usage.test.ts",
      title: "a measurement does not count as use, of a paused sandbox either",
    },
    change(
      "src/sandboxes/manager.ts",
      "    const used = await this.#meter",
      "    record.touch();\n    const used = await this.#meter",
    ),
  ),
  defect(
    "a link in the place of a workspace's directory is followed",
    {
      file: "test/integration/workspaces/references.test.ts",
      title: "in place of a workspace's directory breaks only that workspace, and is not followed",
    },
    change(
      "src/workspaces/host/directories.ts",
      "import { chmod, lstat, mkdir, readdir, rename, rmdir }",
      "import { chmod, lstat, mkdir, readdir, rename, rmdir, stat }",
    ),
    change(
      "src/workspaces/host/directories.ts",
      "if ((await lstat(directory)).isDirectory()) return undefined;",
      "if ((await stat(directory)).isDirectory()) return undefined;",
    ),
  ),
];
