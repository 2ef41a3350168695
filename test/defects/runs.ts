import type { Defect } from "./defect.ts";

const TYPESCRIPT = "clients/typescript/src/agent.ts";
const PYTHON = "clients/python/src/berth/agent.py";
const AGENTS = "test/integration/clients/agents.test.ts";

/** What runs did to callers. */
export const RUN_DEFECTS: readonly Defect[] = [
  {
    name: "the steps of a run that is started again are deleted in one turn of the event loop",
    changes: [
      {
        file: "src/runs/manager.ts",
        from: "while (this.#parts.store.clearSomeSteps(runId)) {",
        to: "while (!runId) {",
      },
    ],
    test: {
      file: "test/unit/runs/manager.test.ts",
      title: "a %s of a run with many steps deletes them in turns of the event loop",
      row: "start",
    },
  },
  {
    name: "the steps of a run that is reset are deleted in one turn of the event loop",
    changes: [
      {
        file: "src/runs/manager.ts",
        from: "if (!this.#parts.store.clearSomeSteps(runId)) {",
        to: "if (runId) {",
      },
    ],
    test: {
      file: "test/unit/runs/manager.test.ts",
      title: "a %s of a run with many steps deletes them in turns of the event loop",
      row: "reset",
    },
  },
  {
    name: "each watcher of a run reads and decrypts every event for itself",
    changes: [
      {
        file: "src/runs/catalog.ts",
        from: "    if (watchers.read?.after === after) return watchers.read.events;\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/runs/manager.test.ts",
      title: "an event is read once for all that wait for it, and they are woken in turns of the event loop",
    },
  },
  {
    name: "an event of a run wakes thousands of watchers in one turn of the event loop",
    changes: [
      {
        file: "src/runs/catalog.ts",
        from: "  void turns.wakeEach(waiting);\n",
        to: "  for (const wake of waiting) wake();\n",
      },
    ],
    test: {
      file: "test/unit/runs/manager.test.ts",
      title: "an event is read once for all that wait for it, and they are woken in turns of the event loop",
    },
  },
  {
    name: "the steps and messages of a removed run are deleted in one turn of the event loop",
    changes: [
      {
        file: "src/runs/store.ts",
        from: "const PURGED_BYTES = 2 * 1024 * 1024;",
        to: "const PURGED_BYTES = Number.POSITIVE_INFINITY;",
      },
    ],
    test: {
      file: "test/unit/runs/store.test.ts",
      title: "what removed runs leave is deleted a part at a time, and nobody finds it meanwhile",
    },
  },
  {
    name: "a run with long steps and messages blocks the service, and its answer has 200 MB",
    changes: [{ file: "src/runs/store.ts", from: "      if (bytes >= maxBytes) break;\n", to: "" }],
    test: {
      file: "test/unit/runs/store.test.ts",
      title: "of long steps and messages the newest are read, and skipping those reads the others",
    },
  },
  {
    name: "a first step without messages overlooks repetitions in a long conversation",
    changes: [
      {
        file: "src/runs/manager.ts",
        from: "[...store.messagesLike(runId, newest.content).slice(0, -1), newest]",
        to: "store.messages(runId)",
      },
    ],
    test: {
      file: "test/unit/runs/manager.test.ts",
      title: "a first step without messages finds repetitions in the whole conversation, however long",
    },
  },
  {
    name: "a run keeps its sandbox because the disk is full",
    changes: [
      {
        file: "src/runs/journal.ts",
        from: 'if (!hasReason(error, "NO_SPACE")) throw error;',
        to: 'if (hasReason(error, "NO_SPACE")) throw error;',
      },
    ],
    test: {
      file: "test/unit/runs/manager.test.ts",
      title: "a run ends, and its sandbox with it; that is stored later",
      suite: "on a full disk",
    },
  },
  {
    name: "watchers of a run do not get its end, because the disk was full",
    changes: [{ file: "src/runs/journal.ts", from: "    this.#onStored(runId);\n", to: "" }],
    test: {
      file: "test/unit/runs/manager.test.ts",
      title: "who watches a run gets its end once that is stored",
      suite: "on a full disk",
    },
  },
  {
    name: "a service with a run does not start on a full disk",
    changes: [
      {
        file: "src/runs/manager.ts",
        from: 'if (!hasReason(error, "NO_SPACE")) throw error;',
        to: 'if (hasReason(error, "NO_SPACE")) throw error;',
      },
    ],
    test: {
      file: "test/unit/runs/manager.test.ts",
      title: "a run continues after a restart",
      suite: "on a full disk",
    },
  },
  {
    name: "a run deletes a sandbox that it did not make, unasked",
    changes: [
      {
        file: "src/rpc/convert/run.ts",
        from: 'return kind === "given" ? "KEEP" : "DELETE_SANDBOX";',
        to: 'return kind === "none" ? "DELETE_SANDBOX" : "DELETE_SANDBOX";',
      },
    ],
    test: {
      file: "test/integration/runs/run.test.ts",
      title: "an existing sandbox stays unless the run deletes it; no two runs share one",
    },
  },
  {
    name: "a result longer than a run keeps fails the run",
    changes: [
      { file: TYPESCRIPT, from: "result: clip(result, MAX_RESULT_BYTES),", to: "result," },
      { file: PYTHON, from: "_clip(result.result, _MOST_RESULT_BYTES)", to: "result.result" },
    ],
    test: {
      file: AGENTS,
      title: "may say more than a run stores: text that is too long is cut, between two characters",
    },
  },
  {
    name: "an agent raises what the end of its run made fail",
    changes: [
      { file: TYPESCRIPT, from: "      if (verdict === undefined) break;\n", to: "" },
      {
        file: TYPESCRIPT,
        from: 'next = verdict.verdict.case === "nextStep"',
        to: 'next = verdict?.verdict.case === "nextStep"',
      },
      {
        file: PYTHON,
        from: "            if verdict is None:",
        to: "            if verdict is None and error is None:",
      },
    ],
    test: { file: AGENTS, title: "returns how its run ended, even if the step failed because of that" },
  },
  {
    name: "a run whose answer was lost is made again",
    changes: [
      {
        file: TYPESCRIPT,
        from: "createRunRequest(this.#options, this.#createId)",
        to: 'createRunRequest(this.#options, "")',
      },
      {
        file: PYTHON,
        from: "it is requested.\n        self._request.request_id = str(uuid.uuid4())",
        to: 'it is requested.\n        self._request.request_id = ""',
      },
      {
        file: PYTHON,
        from: "        self._request.request_id = str(uuid.uuid4())\n        return run",
        to: "        return run",
      },
      {
        file: "clients/python/src/berth/_async/runs.py",
        from: "transport.retried(method, request, retry_for)",
        to: "transport.read(method, request, retry_for)",
      },
    ],
    test: {
      file: AGENTS,
      title: "creates its run once, although the answers are lost on the way",
    },
  },
  {
    name: "of a run that is removed, the whole history is read for its watchers in one turn of the event loop",
    changes: [
      {
        file: "src/runs/journal.ts",
        from: "this.#store.newestEvents(runId);",
        to: "this.#store.events(runId, 0, Number.MAX_SAFE_INTEGER);",
      },
    ],
    test: {
      file: "test/unit/runs/manager.test.ts",
      title: "of a long history, watchers of a run that is removed get the end",
    },
  },
  {
    name: "a report decrypts all messages of the assistant that are as long as its own",
    changes: [
      {
        file: "src/runs/store.ts",
        from: 'role === "ASSISTANT" ? seal.text(digestOf(content)) : null',
        to: "null",
      },
    ],
    test: {
      file: "test/unit/runs/manager.test.ts",
      title: "a report opens no other message of its length, however long they are",
    },
  },
  {
    name: "a watcher of a run gets a hundred events at once, however long they are",
    changes: [
      {
        file: "src/runs/store.ts",
        from: "      if (bytes >= maxBytes) break;\n    }\n    return first;",
        to: "    }\n    return first;",
      },
    ],
    test: { file: "test/unit/runs/store.test.ts", title: "of long events a few are read at once" },
  },
  {
    name: "a cleanup of a run that cannot read the database ends the service",
    changes: [
      {
        file: "src/runs/sandbox.ts",
        from: "    try {\n      const run = journal.get(owner, runId);\n      if (run === undefined",
        to: "    const run = journal.get(owner, runId);\n    try {\n      if (run === undefined",
      },
    ],
    test: {
      file: "test/unit/runs/manager.test.ts",
      title: "a cleanup that cannot read the database is repeated",
    },
  },
  {
    name: "a repeated cancel ends a later pass of the run",
    changes: [
      {
        file: "src/runs/manager.ts",
        from: "    if (subject === run.startId) {\n",
        to: "    if (subject !== undefined) {\n",
      },
    ],
    test: {
      file: "test/unit/runs/manager.test.ts",
      title: "a cancel",
    },
  },
  {
    name: "a repeated reset removes a later pass of the run",
    changes: [
      {
        file: "src/runs/manager.ts",
        from: "    if (progress.subject !== undefined) return this.catalog.get(owner, runId);\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/runs/manager.test.ts",
      title: "a reset",
    },
  },
  {
    name: "a repeated report counts for a later pass of the run",
    changes: [
      {
        file: "src/runs/manager.ts",
        from: "startId: progress.subject ?? asked.startId",
        to: "startId: asked.startId",
      },
    ],
    test: {
      file: "test/unit/runs/manager.test.ts",
      title: "a report that names no start",
    },
  },
  {
    name: "a repeated start starts a run again after others have",
    changes: [
      {
        file: "src/runs/manager.ts",
        from: "    if (progress.subject !== undefined) {\n      assertStart",
        to: "    if (progress.subject === idle.startId) {\n      assertStart",
      },
    ],
    test: {
      file: "test/unit/runs/manager.test.ts",
      title: "a start",
    },
  },
];
