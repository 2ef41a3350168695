import type { Defect } from "./defect.ts";

const DESCRIPTORS = "test/integration/engine/bubblewrap/descriptors.test.ts";
const HOST_PROCESS = "src/engine/outside/host-process.ts";

/** Those of the bubblewrap engine. */
export const BUBBLEWRAP_DEFECTS: readonly Defect[] = [
  {
    name: "a create with a mount ends a service that may open only a few more files",
    changes: [
      {
        file: "src/engine/bubblewrap/create.ts",
        from: '  keeper.once("error", expected.fail);\n  // It has no streams then.\n  if (keeper.pid === undefined) return expected.started;\n',
        to: "",
      },
      {
        file: "src/engine/bubblewrap/create.ts",
        from: 'keeper.once("exit",',
        to: 'keeper.once("error", expected.fail);\n  keeper.once("exit",',
      },
    ],
    test: {
      file: DESCRIPTORS,
      title: "a create with a mount fails by itself, however few descriptors are left",
    },
  },
  {
    name: "a service without descriptors says that it cannot give a sandbox egress_domains",
    changes: [
      {
        file: "src/engine/outside/loopback-port.ts",
        from: "return tooManyFiles(cause) ?? unable;",
        to: "void tooManyFiles;\n  return unable;",
      },
    ],
    test: {
      file: DESCRIPTORS,
      title:
        "a port in a sandbox that cannot be opened for lack of descriptors is not a capability that is missing",
    },
  },
  {
    name: "a service that cannot start its janitor does not say so",
    changes: [
      {
        file: "src/engine/bubblewrap/janitor.ts",
        from: 'this.#child.once("error", lost);',
        to: 'this.#child.once("error", () => {});',
      },
    ],
    test: {
      file: "test/integration/engine/bubblewrap/janitor.test.ts",
      title: "a janitor that cannot be started is reported, and nobody waits for its end",
    },
  },
  {
    name: "a launcher that cannot be started does not say why",
    changes: [
      {
        file: "src/engine/bubblewrap/launcher.ts",
        from: "    if (this.#child.pid === undefined) return;\n    onGroup(this.#child.pid);\n",
        to: "    if (this.#child.pid !== undefined) onGroup(this.#child.pid);\n",
      },
    ],
    test: {
      file: "test/integration/engine/bubblewrap/launcher.test.ts",
      title: "a launcher that cannot be started says why, and the next one works",
    },
  },
  {
    name: "a shell whose pipes cannot be opened stays",
    changes: [
      {
        file: "src/engine/bubblewrap/launcher.ts",
        from: "    endSoon(shell);\n    throw error;",
        to: "    throw error;",
      },
    ],
    test: { file: DESCRIPTORS, title: "starts that fail for lack of descriptors leave no processes" },
  },
  {
    name: "running commands count as killed while the service may open no more files",
    changes: [
      {
        file: HOST_PROCESS,
        from: 'withSpareDescriptors(() => readFileSync(file, "latin1"))',
        to: 'readFileSync(file, "latin1")',
      },
      { file: "src/engine/bubblewrap/spawn.ts", from: '(isAlive(pid) ? "unknown" : "X")', to: '"X"' },
    ],
    test: {
      file: DESCRIPTORS,
      title: "a command that runs while no descriptor is left is not taken for ended",
    },
  },
  {
    name: "a tree is not killed while the service may open no more files",
    changes: [{ file: HOST_PROCESS, from: 'readText(file) ?? "")', to: '"")' }],
    test: {
      file: "test/contract/engine/bubblewrap.test.ts",
      title: "a tree is found and ends although the service may open no more files",
    },
  },
  {
    name: "the start time of a process stays unknown if the service could open no more files",
    changes: [
      {
        file: HOST_PROCESS,
        from: 'withSpareDescriptors(() => readFileSync(file, "latin1"))',
        to: 'readFileSync(file, "latin1")',
      },
    ],
    test: {
      file: "test/unit/engine/outside/host-process.test.ts",
      title: "a process is there although no more files can be opened",
    },
  },
  {
    name: "a start on bubblewrap does not end while code in the sandbox keeps the pipes of its shell open",
    changes: [
      {
        file: "src/engine/bubblewrap/spawn.ts",
        from: 'await within(new Promise((resolve) => socket.once("close", resolve)), REST_MS);',
        to: 'await new Promise((resolve) => socket.once("close", resolve));\n  void within;\n  void REST_MS;',
      },
    ],
    test: {
      file: "test/integration/engine/bubblewrap/starts.test.ts",
      title: "a start fails whose shell %s, although its pipes stay open",
      row: "says something else",
    },
  },
  {
    name: "a start on bubblewrap takes in whatever code in the sandbox writes in place of its shell",
    changes: [
      {
        file: "src/engine/bubblewrap/spawn.ts",
        from: '    if (end < 0 && output.length > MAX_REPORT_CHARS) resolve("");\n',
        to: "",
      },
    ],
    test: {
      file: "test/integration/engine/bubblewrap/starts.test.ts",
      title: "a start fails whose shell %s, although its pipes stay open",
      row: "says something without an end",
    },
  },
  {
    name: "a pause on bubblewrap waits for a start that does not end, and keeps the sandbox from being deleted",
    changes: [
      {
        file: "src/engine/bubblewrap/sandbox.ts",
        from: "await untilAborted(Promise.allSettled(this.#starting.keys()), signal);",
        to: "await untilAborted(Promise.allSettled(this.#starting.keys()), undefined);",
      },
    ],
    test: {
      file: "test/integration/engine/bubblewrap/starts.test.ts",
      title: "a pause waits for a start that does not end only until its signal is aborted",
    },
  },
  {
    name: "a shell on the host that never reports its start is expected for ever",
    changes: [
      {
        file: "src/engine/bubblewrap/launcher.ts",
        from: "      fail(error as Error);\n      throw error;",
        to: "      throw error;",
      },
    ],
    test: {
      file: "test/integration/engine/bubblewrap/launcher.test.ts",
      title: "a shell that never reports its start is forgotten when its caller leaves",
    },
  },
  {
    name: "a terminal that stops with its program is not continued",
    changes: [
      {
        file: "src/engine/outside/control.ts",
        from: "    if (signal === SIGCONT) await this.#continueTerminal(group);\n",
        to: "",
      },
    ],
    test: {
      file: "test/contract/engine/bubblewrap.test.ts",
      title: "a program at a terminal that is stopped and continued goes on",
    },
  },
  {
    name: "a stopped terminal stays when its process is closed",
    changes: [
      {
        file: "src/engine/bubblewrap/spawn.ts",
        from: "    if (this.#resizeTerminal !== undefined && !this.#exited.settled) endSoon(this.#attendant);\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/engine/bubblewrap/starts.test.ts",
      title: "the program around a terminal ends with its process, even if it is stopped",
    },
  },
  {
    name: "bubblewrap refuses a mount for lack of memory as one that changed",
    changes: [
      {
        file: "src/engine/bubblewrap/mounts.ts",
        from: "throw noRoom(error) ?? refused;",
        to: "throw refused;",
      },
    ],
    test: {
      file: "test/unit/engine/bubblewrap/mounts.test.ts",
      title: "a lack of room for a mount (%s) may be over soon",
      row: "ENOMEM",
    },
  },
  {
    name: "half of a control group stays",
    changes: [
      {
        file: "src/engine/bubblewrap/control-group.ts",
        from: "    for (const directory of directories) removeEmpty(directory);\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/engine/bubblewrap/control-group.test.ts",
      title: "a group of %s that cannot be made leaves no directory",
      row: "version 1",
    },
  },
  {
    name: "a kernel without room for a control group is taken for a failure of bubblewrap",
    changes: [
      {
        file: "src/engine/bubblewrap/control-group.ts",
        from: "if (!NO_ROOM.has(code)) throw error;",
        to: 'if (code !== "") throw error;',
      },
    ],
    test: {
      file: "test/unit/engine/bubblewrap/control-group.test.ts",
      title: "a kernel without room for a group (%s) may have some soon",
      row: "ENOSPC",
    },
  },
  {
    name: "a control group that cannot be made is an internal error",
    changes: [
      {
        file: "src/engine/bubblewrap/engine.ts",
        from: "    let group: ControlGroup | undefined;\n",
        to: "    let group: ControlGroup | undefined = groups.create(ref, spec.resources);\n",
      },
      {
        file: "src/engine/bubblewrap/engine.ts",
        from: "      group = groups.create(ref, spec.resources);\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/engine/bubblewrap/groups.test.ts",
      title: "a control group that cannot be made because of %s fails its create with a reason",
      row: "EROFS",
    },
  },
  {
    name: "waits for a process of bubblewrap that are given up take memory until it ends",
    changes: [
      {
        file: "src/engine/bubblewrap/spawn.ts",
        from: "this.#exited.wait(over.signal)",
        to: "this.#exited.wait()",
      },
    ],
    test: {
      file: "test/contract/engine/bubblewrap.test.ts",
      title: "takes no memory for callers that gave up",
    },
  },
];
