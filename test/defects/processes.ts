import type { Defect } from "./defect.ts";

const ATTACK = "test/process/lane-attack.test.ts";
const LIMIT = "test/e2e/process-limit.test.ts";

/** Of commands: their places, their lanes, what is kept of them. */
export const PROCESS_DEFECTS: readonly Defect[] = [
  {
    name: "the place of a process is taken only when it runs",
    changes: [
      {
        file: "src/process/process-manager.ts",
        from: "      place = this.#registry.reserve(sandbox.owner, sandbox.sandboxId, maxProcessesPerSandbox);",
        to: "      this.#registry.reserve(sandbox.owner, sandbox.sandboxId, maxProcessesPerSandbox).release();",
      },
    ],
    test: {
      file: LIMIT,
      title: "of commands that come at once as many run as the limit says, time and again",
    },
  },
  {
    name: "runs that are being started take no place",
    changes: [
      {
        file: "src/core/run/running-runs.ts",
        from: "    if (this.#runs.size + this.#starting >= this.#most) {",
        to: "    if (this.#runs.size >= this.#most) {",
      },
    ],
    test: { file: "test/core/run/run-manager.test.ts", title: "as many succeed as there are places" },
  },
  {
    name: "a lane is used again as soon as its job says that it left nothing",
    changes: [
      {
        file: "src/process/lane.ts",
        from: '    this.#state = "renewing";\n    this.#renew().catch(() => this.#end());',
        to: '    this.#state = "idle";\n    this.#owner.freed(this);',
      },
    ],
    test: {
      file: ATTACK,
      title: "after a command that %s the next ones are clean",
      row: "has the lane's shell run something",
    },
  },
  {
    name: "what transcripts hold together is not bounded",
    changes: [
      {
        file: "src/process/transcript-budget.ts",
        from: "    const { bytes, ownerBytes } = this.bounds;\n    return Math.max(",
        to: "    const [bytes, ownerBytes] = [Number.MAX_VALUE, Number.MAX_VALUE];\n    return Math.max(",
      },
    ],
    test: {
      file: "test/process/transcript-budget.test.ts",
      title: "of those that run the largest gives way, and keeps its head and its newest output",
    },
  },
  {
    name: "the retry of a request whose answer was dropped carries it out again",
    changes: [
      {
        file: "src/core/state/request-log.ts",
        from: "    if (stored?.dropped) throw answerDropped(key);\n",
        to: "",
      },
    ],
    test: {
      file: "test/core/state/request-log.test.ts",
      title: "are dropped, the oldest first, and their requests are not carried out twice",
    },
  },
  {
    name: "a write that was given up is kept until the process reads",
    changes: [
      {
        file: "src/process/stdin-writer.ts",
        from: "      const changed = Promise.withResolvers<void>();\n",
        to: "      const shared = room as typeof room & { changed?: PromiseWithResolvers<void> };\n      shared.changed ??= Promise.withResolvers<void>();\n      const { changed } = shared;\n",
      },
    ],
    test: {
      file: "test/e2e/exec/stdin-given-up.test.ts",
      title: "of 40 writes that were given up nothing is kept but a piece on its way",
    },
  },
  {
    name: "a piece on its way keeps all of its write",
    changes: [
      {
        file: "src/process/stdin-writer.ts",
        from: "fresh.length > PIECE_BYTES ? Buffer.from(piece) : piece",
        to: "piece",
      },
    ],
    test: {
      file: "test/e2e/exec/stdin-given-up.test.ts",
      title: "of 40 writes that were given up nothing is kept but a piece on its way",
    },
  },
];
