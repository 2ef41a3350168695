import type { Defect } from "./defect.ts";

const LEFT_BEHIND = "test/integration/processes/left-behind.test.ts";
const ORPHANED_PIPES = "test/integration/engine/orphaned-pipes.test.ts";
const FAILING = "test/integration/engine/docker/pipes.test.ts";

/** Of pipes between the service and what runs in sandboxes. */
export const PIPE_DEFECTS: readonly Defect[] = [
  {
    name: "what a job leaves behind is read as fast as it writes",
    changes: [
      {
        file: "src/engine/orphaned-pipes.ts",
        from: "      stream.pause();\n      this.#waiting.add(stream);\n",
        to: "",
      },
    ],
    test: {
      file: LEFT_BEHIND,
      title: "what %s leaves behind can write without limit at next to no cost",
      row: "a command",
    },
  },
  {
    name: "what a call of a session leaves behind is read as fast as it writes",
    changes: [
      {
        file: "src/sessions/types/output-channel.ts",
        from: "    if (taker === undefined) this.job.trickle();\n    else this.job.resume();\n",
        to: "",
      },
    ],
    test: {
      file: LEFT_BEHIND,
      title: "what a call of a session leaves behind can write without limit at next to no cost",
    },
  },
  {
    name: "what an earlier service's commands write is read as fast as they write",
    changes: [
      {
        file: "src/engine/docker/left-pipes.ts",
        from: "this.#slowDrain.start(socket);",
        to: "socket.resume();",
      },
    ],
    test: {
      file: LEFT_BEHIND,
      title: "what the commands of a killed service write costs the next one little",
    },
  },
  {
    name: "what a job leaves behind is not read any more",
    changes: [{ file: "src/engine/orphaned-pipes.ts", from: "      stream.resume();\n", to: "" }],
    test: {
      file: LEFT_BEHIND,
      title: "what a command leaves behind still writes some hundred KiB a second",
    },
  },
  {
    name: "pipes that something left behind holds are not bounded by number",
    changes: [
      {
        file: "src/engine/orphaned-pipes.ts",
        from: "    oldest.destroy();\n",
        to: "",
      },
    ],
    test: {
      file: ORPHANED_PIPES,
      title: "pipes held by leftovers are bounded in number, and a dropped writer blocks",
    },
  },
  {
    name: "a writer to dropped pipes dies",
    changes: [
      {
        file: "src/engine/bubblewrap/job-script.ts",
        from: " 1<>/proc/self/fd/1 2<>/proc/self/fd/2",
        to: "",
      },
      {
        file: "src/engine/docker/spawn-piped.ts",
        from: 'exec 1<>"$BERTH_STDOUT" 2<>"$BERTH_STDERR"',
        to: 'exec 1>"$BERTH_STDOUT" 2>"$BERTH_STDERR"',
      },
      {
        file: "src/engine/docker/zygote-script.ts",
        from: 'exec 1<>"$BERTH_STDOUT" 2<>"$BERTH_STDERR"',
        to: 'exec 1>"$BERTH_STDOUT" 2>"$BERTH_STDERR"',
      },
    ],
    test: {
      file: ORPHANED_PIPES,
      title: "pipes held by leftovers are bounded in number, and a dropped writer blocks",
    },
  },
  {
    name: "what a command leaves behind dies when its pipes are dropped",
    changes: [
      {
        file: "src/processes/shell/script.ts",
        from: "1<>/proc/self/fd/3 2<>/proc/self/fd/4",
        to: ">/proc/self/fd/3 2>/proc/self/fd/4",
      },
    ],
    test: {
      file: LEFT_BEHIND,
      title: "of what many commands leave behind the pipes of 16 are kept, and none is ended",
    },
  },
  {
    name: "an end that waits behind what nobody wants is not waited for",
    changes: [
      {
        file: "src/processes/shell/shell-job.ts",
        from: "      if (this.#trickles) this.resume();\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/sessions/bash.test.ts",
      title: "exit ends the shell with a status also while a leftover process writes to its output",
    },
  },
  {
    name: "many short writes wait in the service although their calls have ended",
    changes: [
      {
        file: "src/engine/pipe-streams.ts",
        from: "      stdin.write(data, settle);\n",
        to: "      if (stdin.write(data, settle)) settle();\n",
      },
    ],
    test: {
      file: "test/unit/engine/pipe-streams.test.ts",
      title: "a write of one byte waits until the pipe has room for it",
    },
  },
  {
    name: "many short writes to a pod wait in the service although their calls have ended",
    changes: [
      {
        file: "src/engine/kubernetes/exec-socket.ts",
        from: "this.#waitingFrames > MAX_WAITING_FRAMES || ",
        to: "",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/exec-socket.test.ts",
      title: "a writer of short pieces waits long before they make up the bytes that may be buffered",
    },
  },
  {
    name: "the stdin of an ended process is kept as long as something holds it",
    changes: [
      {
        file: "src/engine/pipe-streams.ts",
        from: "setTimeout(() => stdin.destroy(), STDIN_GRACE_MS)",
        to: "setTimeout(() => {}, STDIN_GRACE_MS)",
      },
    ],
    test: {
      file: ORPHANED_PIPES,
      title: "the stdin of an ended process is closed, although something holds it and does not read",
    },
  },
  {
    name: "pipes that failed once are never retried",
    changes: [
      {
        file: "src/engine/docker/circuit-breaker.ts",
        from: "this.#now() >= this.#retryAt",
        to: "this.#now() < 0",
      },
    ],
    test: { file: FAILING, title: "by a container whose directory was away for a while" },
  },
  {
    name: "one failure to make pipes keeps every new sandbox from them",
    changes: [
      {
        file: "src/engine/docker/container-pipes.ts",
        from: "      this.#prepared = undefined;\n",
        to: "",
      },
    ],
    test: { file: FAILING, title: "by new containers once a directory can be made" },
  },
  {
    name: "the metrics do not show which sandboxes are without pipes",
    changes: [
      {
        file: "src/engine/docker/spawner.ts",
        from: "if (name === undefined || breaker.open) count++",
        to: "if (name === undefined) count++",
      },
    ],
    test: { file: FAILING, title: "by a container whose directory was away for a while" },
  },
  {
    name: "a drain that was stopped pauses the stream once more",
    changes: [{ file: "src/engine/orphaned-pipes.ts", from: "      if (stopped) return;\n", to: "" }],
    test: {
      file: "test/unit/engine/orphaned-pipes.test.ts",
      title: "a drain that is stopped by another listener of the same data does not pause the stream again",
    },
  },
  {
    name: "one sandbox has all large pipes",
    changes: [
      {
        file: "src/engine/large-pipes.ts",
        from: "    return ofSandbox < MAX_PER_SANDBOX;",
        to: "    return ofSandbox < MAX_LARGE;",
      },
    ],
    test: {
      file: "test/unit/engine/large-pipes.test.ts",
      title: "only so many of one sandbox become large",
    },
  },
  {
    name: "the descriptor of a pipe that is gone is made large",
    changes: [{ file: "src/engine/large-pipes.ts", from: " || load.end.destroyed || !", to: " || !" }],
    test: {
      file: "test/unit/engine/large-pipes.test.ts",
      title: "one whose end is destroyed is left alone: its descriptor may be another's",
    },
  },
  {
    name: "pipes never become large",
    changes: [
      {
        file: "src/engine/large-pipes.ts",
        from: "    if (this.#bytes >= BUSY_BYTES) this.#largePipes.add(this);\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/engine/large-pipes.test.ts",
      title: "a stdin that carries much takes more than 64 KiB ahead of its reader",
    },
  },
];
