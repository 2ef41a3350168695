import type { Defect } from "./defect.ts";

const ZYGOTE = "test/integration/engine/docker/zygote.test.ts";

/** Those of the Docker engine. */
export const DOCKER_DEFECTS: readonly Defect[] = [
  {
    name: "containers share files that root in one of them can lease and watch",
    changes: [
      {
        file: "src/engine/docker/container-pipes.ts",
        from: "  copyFile,\n",
        to: "  link as copyFile,\n",
      },
    ],
    test: {
      file: "test/integration/engine/docker/pipes.test.ts",
      title: "share their directory with no file of another container, which root could lease or watch",
    },
  },
  {
    name: "mounts pass unpinned if the service may open no more files",
    changes: [
      {
        file: "src/engine/docker/mounts.ts",
        from: "if (!TEMPORARY.has(code)) return;",
        to: 'if (code !== "") return;',
      },
    ],
    test: {
      file: "test/integration/engine/docker/mounts.test.ts",
      title:
        "a mount never passes unpinned for lack of descriptors, and a stage that could not be made is made later",
    },
  },
  {
    name: "warm containers never take mounts again after a lack of descriptors",
    changes: [
      {
        file: "src/engine/docker/mounts.ts",
        from: "    await unbind(inert).catch(() => {});\n    throwTemporary(error);\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/engine/docker/mounts.test.ts",
      title: "what warm containers need for mounts is made later if there were no descriptors for it",
    },
  },
  {
    name: "mounts pass unpinned without a warning",
    changes: [
      {
        file: "src/engine/docker/mounts.ts",
        from: '    logger.warn(\n      { err: error },\n      "mounts of sandboxes',
        to: '    logger.debug(\n      { err: error },\n      "mounts of sandboxes',
      },
    ],
    test: {
      file: "test/integration/engine/docker/mounts.test.ts",
      title: "that mounts cannot be pinned is logged once, with what to do",
    },
  },
  {
    name: "a container that cannot be inspected after its create stays",
    changes: [
      {
        file: "src/engine/docker/engine.ts",
        from: "lateTarget(await this.#inspectNew(ref, signal), owner)",
        to: "lateTarget(await this.#inspect(ref, signal), owner)",
      },
    ],
    test: {
      file: "test/integration/engine/docker/mounts.test.ts",
      title: "nothing is left of a create whose container cannot be inspected for later mounts",
    },
  },
  {
    name: "the directory of a container whose pipes could not be made stays",
    changes: [
      {
        file: "src/engine/docker/container-pipes.ts",
        from: "      this.#failed(attempt, error);\n      if (existsSync(this.#directory(container))) await this.remove(container);\n",
        to: "      this.#failed(attempt, error);\n",
      },
    ],
    test: {
      file: "test/integration/engine/docker/pipes.test.ts",
      title: "leave nothing of a directory that could not be completed",
    },
  },
  {
    name: "what root in a container writes to the answers of its zygote is read as fast as it comes",
    changes: [
      {
        file: "src/engine/docker/zygote.ts",
        from: "if (isAsked && chunk.length <= MAX_READ_BYTES) return;",
        to: "if (isAsked || chunk.length <= MAX_READ_BYTES) return;",
      },
    ],
    test: {
      file: "test/unit/engine/docker/zygote.test.ts",
      title: "answers %s are not read as fast as they are written",
      row: "of no request",
    },
  },
  {
    name: "a lane that is opened before processes are recovered loses their exit codes",
    changes: [{ file: "src/engine/docker/zygote.ts", from: "this.#keep(id, text);", to: "" }],
    test: {
      file: ZYGOTE,
      title: "exit codes outlive the service, also of processes that end while it is down",
    },
  },
  {
    name: "a process whose exit code an earlier run of the service had read never ends",
    changes: [
      {
        file: "src/engine/docker/zygote.ts",
        from: "if (!this.#isRecovered) await outputEnded?.wait(signal);",
        to: "await (outputEnded?.wait(signal) ?? new Promise<void>(() => {}));",
      },
    ],
    test: {
      file: ZYGOTE,
      title: "an exit code that the service had read, and not kept when it ended, is lost",
    },
  },
  {
    name: "the configuration of a container is in the URL of its create",
    changes: [
      {
        file: "src/engine/docker/containers.ts",
        from: "{ _query: { name }, _body: body }",
        to: "{ name, ...body }",
      },
    ],
    test: {
      file: "test/integration/engine/docker/create.test.ts",
      title: "takes as many variables as a sandbox may have, also of bytes that take three in a URL",
    },
  },
  {
    name: "files that a sandbox reads repeatedly count as its memory",
    changes: [
      {
        file: "src/engine/outside/cgroup.ts",
        from: 'v2: ["inactive_file", "active_file"]',
        to: 'v2: ["inactive_file"]',
      },
    ],
    test: {
      file: "test/unit/engine/outside/cgroup.test.ts",
      title: "the usage of control groups of %s is read",
      row: "version 2",
    },
  },
  {
    name: "a sandbox has no limit of processes where the daemon has no control groups",
    changes: [
      {
        file: "src/engine/docker/info.ts",
        from: "[resources.pidsLimit > 0,",
        to: "[false,",
      },
    ],
    test: {
      file: "test/unit/engine/docker/limits.test.ts",
      title: "a sandbox is refused by a daemon that lacks %s, never unlimited",
      row: "pidsLimit",
    },
  },
  {
    name: "whoever has the name of a pipe can open it",
    changes: [
      {
        file: "src/engine/docker/container-pipes.ts",
        from: "          await give(pipe, uid);\n",
        to: "          await chmod(pipe, 0o666);\n",
      },
    ],
    test: {
      file: "test/integration/engine/docker/pipes-attack.test.ts",
      title: "no user in a sandbox can open or find the pipes of another's processes",
    },
  },
  {
    name: "the name of a process's pipe stands in its arguments",
    changes: [
      {
        file: "src/engine/docker/spawn-piped.ts",
        from: '"sh", ...request.argv]',
        to: "pipes.inside.stdin, ...request.argv]",
      },
    ],
    test: {
      file: "test/integration/engine/docker/pipes-attack.test.ts",
      title: "nor if the service may not change the owner of pipes",
    },
  },
  {
    name: "any user in a container can have the zygote start programs as root",
    changes: [
      {
        file: "src/engine/docker/container-pipes.ts",
        from: '["-m", "600", ...names]',
        to: '["-m", "666", ...names]',
      },
    ],
    test: {
      file: "test/integration/engine/docker/pipes-attack.test.ts",
      title: "no user in a sandbox can open or find the pipes of another's processes",
    },
  },
  {
    name: "what a zygote starts has no supplementary groups",
    changes: [
      {
        file: "src/engine/docker/zygote-script.ts",
        from: '"$BERTHZ_GID$BERTHZ_GROUPS"',
        to: '""',
      },
    ],
    test: { file: ZYGOTE, title: "as %s", row: "a user by name" },
  },
  {
    name: "the shell that starts with a container is given to who wants other variables",
    changes: [
      {
        file: "src/engine/docker/zygote-request.ts",
        from: "isSame && readsOn && Object.keys(env).length === 0;",
        to: "isSame && readsOn && Object.keys(env).length < 9;",
      },
    ],
    test: { file: ZYGOTE, title: "is not used for a command that wants %s", row: "an environment" },
  },
  {
    name: "the shell that starts with a container leaves its pipes behind",
    changes: [
      {
        file: "src/engine/docker/spawn-forked.ts",
        from: "    this.#early?.abandon();\n",
        to: "",
      },
    ],
    test: {
      file: ZYGOTE,
      title: "that nobody uses is removed with its container, also with one that does not start",
    },
  },
  {
    name: "a zygote ends when it cannot fork",
    changes: [
      {
        file: "src/engine/docker/zygote-script.ts",
        from: 'command eval \'( ( S "$@" ) & R "p$!" )\' ||',
        to: '( ( S "$@" ) & R "p$!" ) ||',
      },
    ],
    test: { file: ZYGOTE, title: "outlives forks that fail, for which the daemon starts processes at once" },
  },
  {
    name: "a directory of pipes in use is not removed",
    changes: [
      {
        file: "src/engine/docker/container-pipes.ts",
        from: "{ maxRetries: 5, retryDelay: 20 }",
        to: "{}",
      },
    ],
    test: {
      file: "test/integration/engine/docker/pipes.test.ts",
      title: "do not keep a container's directory from being removed while they are opened",
    },
  },
  {
    name: "a removal that failed waits for somebody to ask again",
    changes: [
      {
        file: "src/sandboxes/delete.ts",
        from: "        this.#retry(record, error);\n",
        to: "        void this.#retry;\n        void record;\n",
      },
    ],
    test: {
      file: "test/unit/sandboxes/expiry-sweeper.test.ts",
      title:
        "a failed removal is retried with growing pauses, each logged, and the sandbox keeps its place until it is gone",
    },
  },
  {
    name: "a start runs although its caller has gone before it reached the engine",
    changes: [{ file: "src/processes/shell/plain-job.ts", from: "        dropSignal: signal,\n", to: "" }],
    test: {
      file: "test/integration/processes/cancelled-starts.test.ts",
      title: "a start whose caller left before it reached the engine is dropped",
    },
  },
  {
    name: "a waiting shell is waited for without a limit",
    changes: [
      {
        file: "src/processes/shell/prestarted-shells.ts",
        from: "AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)])",
        to: "AbortSignal.any([signal, AbortSignal.timeout(timeoutMs + 90_000)])",
      },
    ],
    test: {
      file: "test/integration/processes/cancelled-starts.test.ts",
      title: "a shell that does not report ready is waited for only so long",
    },
  },
  {
    name: "readers that reopen a closed stdin are given up at the first error",
    changes: [
      {
        file: "src/engine/docker/named-pipes.ts",
        from: 'if (code === "ENXIO" || code === "ENOENT")',
        to: "if (code)",
      },
    ],
    test: {
      file: "test/integration/engine/docker/pipes.test.ts",
      title:
        "give EOF to readers that reopen a closed stdin, although the service had no descriptor for a while",
    },
  },
  {
    name: "whoever stops reading waits for the stream",
    changes: [
      {
        file: "src/rpc/stream.ts",
        from: "    items.return(undefined)",
        to: "    await items.return(undefined)",
      },
    ],
    test: {
      file: "test/unit/server/keepalive.test.ts",
      title: "a reader that stops does not wait for a stream that does not end",
    },
  },
  {
    name: "a container sees where the data directory is",
    changes: [
      {
        file: "src/engine/docker/container-pipes.ts",
        from: "  return process.getuid?.() === 0 && isOwn",
        to: "  return process.getuid?.() === 0 && isOwn && run === dataDir",
      },
    ],
    test: {
      file: "test/integration/engine/docker/pipes-directory.test.ts",
      title: "its pipes reveal nothing about the data directory",
    },
  },
  {
    name: "a runtime is allowed if every object has its name",
    changes: [
      {
        file: "src/engine/docker/engine.ts",
        from: "ownValue(this.#options.allowedRuntimes ?? {}, runtime)",
        to: "this.#options.allowedRuntimes?.[runtime]",
      },
    ],
    test: {
      file: "test/integration/rpc/bad-input/create-sandbox.test.ts",
      title: "a runtime with a name that every object inherits",
    },
  },
  {
    name: "a pause on Docker waits for starts in the container although its caller has left",
    changes: [
      {
        file: "src/engine/docker/start-gate.ts",
        from: "await untilAborted(Promise.all(starts.keys()), signal);",
        to: "await untilAborted(Promise.all(starts.keys()), undefined);",
      },
    ],
    test: {
      file: "test/unit/engine/docker/start-gate.test.ts",
      title: "a pause that is aborted while it waits for starts leaves nothing behind",
    },
  },
  {
    name: "nothing starts in a container while root there reads the answers of its zygote",
    changes: [
      {
        file: "src/engine/docker/spawn-forked.ts",
        from: "await untilAborted(Promise.race([pid, end, late]), signal);",
        to: "await untilAborted(Promise.race([opened.promise, end, late]), signal).then((one) => one ?? pid);",
      },
    ],
    test: {
      file: "test/integration/engine/docker/zygote.test.ts",
      title: "whose answers are read by others is replaced by the daemon",
    },
  },
  {
    name: "the pipes of a container that somebody has renamed are removed at the next start of the service",
    changes: [
      {
        file: "src/engine/docker/engine.ts",
        from: "(Mounts ?? []).map(({ Source }) => [Source, Id])",
        to: "(Mounts ?? []).map(({ Source }) => [`${this.#options.pipesDir}${containers.find((one) => one.Id === Id)?.Names[0]}`, Id, Source])",
      },
    ],
    test: {
      file: "test/integration/engine/docker/pipes.test.ts",
      title: "are found again although the operator has renamed their container",
    },
  },
  {
    name: "one container that Docker cannot inspect makes the engine unavailable",
    changes: [
      {
        file: "src/engine/docker/engine.ts",
        from: "if (answerTo(error) === undefined && !hadNoAnswer(error)) throw error;",
        to: "void hadNoAnswer;\n      throw error;",
      },
    ],
    test: {
      file: "test/integration/engine/docker/daemon.test.ts",
      title: "how a container ended keeps no other container from being listed",
    },
  },
  {
    name: "a running process counts as lost because Docker once did not say how it is",
    changes: [
      {
        file: "src/engine/docker/exec.ts",
        from: "const mayFail = outputEnded?.settled === false;",
        to: "const mayFail = false;",
      },
    ],
    test: {
      file: "test/integration/engine/docker/daemon.test.ts",
      title: "how a process ended does not end it",
    },
  },
  {
    name: "a claim with less memory than a warm sandbox uses fails instead of being cold",
    changes: [
      {
        file: "src/engine/docker/engine.ts",
        from: 'throw answerTo(error)?.text.includes("unable to set memory limit") ? usesMore(error) : error;',
        to: "void usesMore;\n        throw error;",
      },
    ],
    test: {
      file: "test/integration/engine/docker/lifecycle.test.ts",
      title: "a limit of memory below what a sandbox uses is impossible for it, or in force",
    },
  },
  {
    name: "each write to a stdin over Docker's own streams that waits leaves something until the process ends",
    changes: [
      {
        file: "src/engine/docker/spawn-attached.ts",
        from: "await this.#writers.write(this.#socket, data);",
        to: "await Promise.race([this.#writers.write(this.#socket, data), this.ended]);",
      },
    ],
    test: {
      file: "test/integration/engine/docker/spawn.test.ts",
      title: "a write to stdin that had to wait leaves nothing behind",
    },
  },
  {
    name: "a running process counts as lost because the service may open no more files",
    changes: [
      {
        file: "src/engine/docker/exec.ts",
        from: ' || hasReason(error, "TOO_MANY_OPERATIONS");',
        to: ";",
      },
    ],
    test: {
      file: "test/unit/engine/docker/exec.test.ts",
      title: "a poll that fails with %s while a process writes does not end it",
      row: "TOO_MANY_OPERATIONS",
    },
  },
  {
    name: "answers of Docker are read at any length",
    changes: [{ file: "src/engine/docker/daemon.ts", from: "  limitAnswers(docker.modem);\n", to: "" }],
    test: {
      file: "test/unit/engine/docker/answers.test.ts",
      title: "%s is not read any further than its limit",
      row: "an error",
    },
  },
  {
    name: "a line of Docker is searched again with every part that arrives",
    changes: [
      {
        file: "src/engine/docker/answers.ts",
        from: '(typeof chunk === "string" ? chunk : decoder.write(chunk)).split("\\n");',
        to: '(rest + (typeof chunk === "string" ? chunk : decoder.write(chunk))).split("\\n");\n    rest = "";',
      },
    ],
    test: {
      file: "test/unit/engine/docker/answers.test.ts",
      title: "a long line costs about as much as the same bytes in many lines",
    },
  },
  {
    name: "a line of Docker is kept at any length",
    changes: [
      {
        file: "src/engine/docker/answers.ts",
        from: "if (rest.length > MAX_LINE_CHARS)",
        to: "if (rest === undefined)",
      },
    ],
    test: { file: "test/unit/engine/docker/answers.test.ts", title: "a line that never ends is not kept" },
  },
  {
    name: "every answer about a container may be as long as an image makes it",
    changes: [
      {
        file: "src/engine/docker/images.ts",
        from: "if (description.length > MAX_DESCRIPTION_BYTES)",
        to: "if (description === undefined)",
      },
    ],
    test: {
      file: "test/integration/engine/docker/images.test.ts",
      title: "is refused before one exists: %s",
      row: "a long label",
    },
  },
  {
    name: "an image may have any number of volumes",
    changes: [
      { file: "src/engine/docker/images.ts", from: "if (entries > MAX_ENTRIES)", to: "if (entries < 0)" },
    ],
    test: {
      file: "test/integration/engine/docker/images.test.ts",
      title: "is refused before one exists: %s",
      row: "many volumes",
    },
  },
  {
    name: "names that others give an image keep everybody from it",
    changes: [
      {
        file: "src/engine/docker/images.ts",
        from: 'text.replace(/"Repo(Tags|Digests)":\\[[^\\]]*\\]/g, \'"Repo$1":[]\')',
        to: "text",
      },
    ],
    test: {
      file: "test/unit/engine/docker/answers.test.ts",
      title: "names that others gave an image do not count among its settings",
    },
  },
  {
    name: "a container is made of another image than the one that was checked",
    changes: [
      {
        file: "src/engine/docker/container-config.ts",
        from: "Image: facts.imageId,",
        to: "Image: spec.image,",
      },
    ],
    test: {
      file: "test/integration/engine/docker/images.test.ts",
      title: "a container is made of the image that was checked, whatever its name means by then",
    },
  },
  {
    name: "what a container prints before it is ready is searched for every frame",
    changes: [
      {
        file: "src/engine/docker/setup.ts",
        from: '    text[stream] += chunk.toString("utf8");\n',
        to: '    text[stream] = (text[stream] + chunk.toString("utf8")).slice(-MAX_REPORT_CHARS);\n    if (printed(SETUP_MARKERS.ready)) resolve({ owner: owner(), printed: text.stdout });\n',
      },
    ],
    test: {
      file: "test/unit/engine/docker/setup.test.ts",
      title: "a shell that prints single bytes costs little more than to take them out of their frames",
    },
  },
  {
    name: "a container may print without end before it is ready",
    changes: [
      { file: "src/engine/docker/setup.ts", from: "if (bytes > MAX_PRINTED_BYTES)", to: "if (bytes < 0)" },
    ],
    test: {
      file: "test/unit/engine/docker/setup.test.ts",
      title: "a shell that prints without end is not waited for",
    },
  },
  {
    name: "a create that has succeeded fails because its mounts cannot be unstaged",
    changes: [
      {
        file: "src/engine/docker/mounts.ts",
        from: "        failure = error;\n        this.#released.push(target);\n",
        to: "        throw error;\n",
      },
    ],
    test: {
      file: "test/integration/engine/docker/mounts.test.ts",
      title: "a mount that cannot be unstaged now fails nothing, and is unstaged later",
    },
  },
  {
    name: "a mount that could not be unstaged stays until the service ends",
    changes: [
      { file: "src/engine/docker/mounts.ts", from: "        this.#released.push(target);\n", to: "" },
    ],
    test: {
      file: "test/integration/engine/docker/mounts.test.ts",
      title: "a mount that cannot be unstaged now fails nothing, and is unstaged later",
    },
  },
  {
    name: "a mount for which there is no room now is refused as one that changed",
    changes: [
      {
        file: "src/engine/docker/mounts.ts",
        from: '    throwTemporary(error);\n    throw new BerthError(\n      "NOT_ALLOWED"',
        to: '    throw new BerthError(\n      "NOT_ALLOWED"',
      },
    ],
    test: {
      file: "test/integration/engine/docker/mounts.test.ts",
      title: "a mount for which the stage has no space is not taken for one that was not allowed",
    },
  },
  {
    name: "waits for a process of a zygote that are given up take memory until it ends",
    changes: [
      {
        file: "src/base/shared-result.ts",
        from: "await untilAborted(promise, signal)",
        to: "await untilAborted(Promise.race([this.#result, promise]), signal)",
      },
    ],
    test: {
      file: "test/contract/engine/docker-pipes.test.ts",
      title: "takes no memory for callers that gave up",
      suite: "started by its zygotes",
    },
  },
  {
    name: "waits for a process of the daemon that are given up take memory until it ends",
    changes: [
      {
        file: "src/engine/docker/exec.ts",
        from: "outputEnded?.wait(hurry.signal)",
        to: "outputEnded?.wait()",
      },
    ],
    test: {
      file: "test/contract/engine/docker-pipes.test.ts",
      title: "takes no memory for callers that gave up",
      suite: "started by the daemon",
    },
  },
];
