import type { Defect } from "./defect.ts";

const ATTACK = "test/integration/processes/shell/lane-attack.test.ts";
const FOUND_ENDS = "test/integration/restart/found-ends.test.ts";
const HOSTILE = "test/integration/processes/hostile-processes.test.ts";
const LARGE = "test/integration/processes/large-environment.test.ts";
const LATE = "test/integration/processes/shell/late-starts.test.ts";
const LIMIT = "test/integration/processes/process-limit.test.ts";

/** Of commands: their places, their lanes, what is kept of them. */
export const PROCESS_DEFECTS: readonly Defect[] = [
  {
    name: "a command that a lane starts after its caller has left runs on, and nobody can end it",
    changes: [
      {
        file: "src/processes/shell/shell-job.ts",
        from: "    if (leader !== undefined && limit?.aborted) onLate?.(this);\n",
        to: "",
      },
    ],
    test: {
      file: LATE,
      title: "a command that a lane starts after its start was given up is ended",
    },
  },
  {
    name: "a command that its own shell starts after its caller has left runs on, and nobody can end it",
    changes: [
      {
        file: "src/processes/shell/plain-job.ts",
        from: "      if (!limit?.aborted) this.close();",
        to: "      this.close();",
      },
    ],
    test: {
      file: LATE,
      title: "a command that its own shell starts after its start was given up is ended, from %s",
      row: "outside",
    },
  },
  {
    name: "a command that starts after its caller has left runs on if the engine cannot end it from outside",
    changes: [
      {
        file: "src/processes/shell/lanes.ts",
        from: "      else await this.ask(sandbox, user, killFromInside, AbortSignal.timeout(LATE_KILL_MS));\n",
        to: "",
      },
    ],
    test: {
      file: LATE,
      title: "a command that its own shell starts after its start was given up is ended, from %s",
      row: "inside",
    },
  },
  {
    name: "a command runs although the engine gave up its start halfway",
    changes: [
      {
        file: "src/processes/shell/script.ts",
        from: "'\\\\n'\nread -r BERTH_NONCE || exit",
        to: "'\\\\n'\nread -r BERTH_NONCE",
      },
    ],
    test: {
      file: "test/unit/processes/shell/plain-job.test.ts",
      title: "a start with %s that the engine gives up halfway runs nothing",
      row: "pipes",
    },
  },
  {
    name: "after a crash, a command that waited for its shell is taken for one that ran before it",
    changes: [{ file: "src/processes/recover.ts", from: "new Map(inOrder.map(", to: "new Map(found.map(" }],
    test: {
      file: "test/unit/processes/recover.test.ts",
      title:
        "a process that was stored before an earlier one in its shell, because it waited, is not taken for that",
    },
  },
  {
    name: "output of a process no longer goes to disk once the service could open no more files",
    changes: [
      {
        file: "src/processes/spill.ts",
        from: 'await openPatiently(file, "wx+")',
        to: 'await open(file, "wx+", 0o600)',
      },
    ],
    test: {
      file: "test/unit/processes/transcript.test.ts",
      title:
        "output that cannot move to disk for lack of a descriptor moves there later, and so does what follows",
    },
  },
  {
    name: "a prompt of the request does not reach a command at a terminal if the image's shell is bash",
    changes: [{ file: "src/processes/shell/script.ts", from: "|PS[124]|", to: "|PS4|" }],
    test: {
      file: "test/unit/processes/shell/script.test.ts",
      title: "a shell that is bash passes on the variable %s",
      row: "PS1",
    },
  },
  {
    name: "a variable PIPESTATUS of the request does not reach a command in a lane of bash",
    changes: [{ file: "src/processes/shell/script.ts", from: "|PIPESTATUS|", to: "|" }],
    test: {
      file: "test/unit/processes/shell/script.test.ts",
      title: "a shell that is bash passes on the variable %s",
      row: "PIPESTATUS",
    },
  },
  {
    name: "a command that ended while no service was there has timed out if it is found late",
    changes: [
      {
        file: "src/processes/process.ts",
        from: "    void job.runs.then((runs) => {\n      if (!runs) return;\n      process.#limitTime();\n",
        to: "    process.#limitTime();\n    void job.runs.then((runs) => {\n      if (!runs) return;\n",
      },
    ],
    test: {
      file: "test/unit/processes/recover.test.ts",
      title: "a process that is found after its timeout ends as its pipes say, or at once if it still runs",
    },
  },
  {
    name: "what running calls of RunCommand collect has no limit together",
    changes: [
      {
        file: "src/processes/manager.ts",
        from: "stdout: new HeadAndTail(maxOutputBytes, take)",
        to: "stdout: new HeadAndTail(maxOutputBytes)",
      },
    ],
    test: {
      file: "test/unit/processes/manager.test.ts",
      title: "takes memory until its call is over, and returns less if there is no more",
    },
  },
  {
    name: "memory that a call of RunCommand took is never given back",
    changes: [
      { file: "src/base/memory-budget.ts", from: '    signal?.addEventListener("abort", close);\n', to: "" },
    ],
    test: {
      file: "test/unit/base/memory-budget.test.ts",
      title: "the end of a call gives back what it took, and it takes no more",
    },
  },
  {
    name: "ended processes that expire together are removed in one turn of the event loop",
    changes: [
      {
        file: "src/processes/registry.ts",
        from: "const REMOVED_AT_ONCE = 32;",
        to: "const REMOVED_AT_ONCE = Number.POSITIVE_INFINITY;",
      },
    ],
    test: {
      file: "test/unit/processes/recover.test.ts",
      title: "that expire together are removed a few at a time, with their files, and none is read for that",
    },
  },
  {
    name: "ended processes that have expired are found until they are removed",
    changes: [
      {
        file: "src/processes/registry.ts",
        from: "return hasExpired ? undefined : entry;",
        to: "return hasExpired ? entry : entry;",
      },
    ],
    test: {
      file: "test/unit/processes/recover.test.ts",
      title: "that expire together are removed a few at a time, with their files, and none is read for that",
    },
  },
  {
    name: "an ended process is read from the database to remove the files of its output",
    changes: [
      {
        file: "src/processes/ended-process.ts",
        from: "    this.#removeFiles();\n    this.leave();\n",
        to: "    this.#change((transcript) => transcript.clear());\n",
      },
    ],
    test: {
      file: "test/unit/processes/recover.test.ts",
      title: "that expire together are removed a few at a time, with their files, and none is read for that",
    },
  },
  {
    name: "an owner's first output beyond its quota reads all of its ended processes in one turn of the event loop",
    changes: [
      {
        file: "src/processes/transcript-budget.ts",
        from: "const turn = isUnread ? turns.enter() : undefined;",
        to: "const turn = isUnread ? undefined : undefined;",
      },
    ],
    test: {
      file: "test/unit/processes/transcript-budget.test.ts",
      title: "are read for that in turns of the event loop, because there may be thousands",
    },
  },
  {
    name: "output on disk is reported as missing while the service may open no more files",
    changes: [
      {
        file: "src/processes/spill.ts",
        from: 'if (!/^E[MN]FILE$/.test(codeOf(error) ?? "")) throw error;',
        to: "throw error;",
      },
    ],
    test: {
      file: "test/unit/processes/transcript.test.ts",
      title:
        "output on disk that cannot be read for lack of a descriptor is read later, and is not reported as missing",
    },
  },
  {
    name: "each reader of output on disk holds a descriptor",
    changes: [
      {
        file: "src/processes/spill.ts",
        from: "const opened = new Turns(8);",
        to: "const opened = new Turns(800);",
      },
    ],
    test: {
      file: "test/unit/processes/transcript.test.ts",
      title: "any number of readers of output on disk has a few files open",
    },
  },
  {
    name: "each output of a process wakes thousands of attached readers in one turn of the event loop",
    changes: [
      {
        file: "src/processes/transcript.ts",
        from: "if (waiting !== undefined) void turns.wakeEach(waiting);",
        to: "for (const wake of waiting ?? []) wake();",
      },
    ],
    test: {
      file: "test/unit/processes/transcript.test.ts",
      title:
        "readers that wait for output are woken in turns of the event loop, because there may be thousands",
    },
  },
  {
    name: "what callers do once they are woken does not count as a part of the turn",
    changes: [
      { file: "src/base/turn-share.ts", from: "      await new Promise<void>(afterMicrotasks);\n", to: "" },
    ],
    test: {
      file: "test/unit/base/turn-share.test.ts",
      title: "what callers do once they are woken together does not block the event loop",
    },
  },
  {
    name: "a timer of an idle service waits for the next event",
    changes: [
      {
        file: "src/base/clock.ts",
        from: "turn = setImmediate(callback);",
        to: "turn = setImmediate(callback).unref();",
      },
    ],
    test: { file: "test/unit/base/clock.test.ts", title: "timers do not wait for something else to happen" },
  },
  {
    name: "a program gets more arguments and variables than the kernel passes on",
    changes: [
      {
        file: "src/processes/shell/lanes.ts",
        from: "if (!short) assertPassable(request);",
        to: "void assertPassable;",
      },
    ],
    test: { file: LARGE, title: "a program gets all that is allowed, and one byte more is refused" },
  },
  {
    name: "variables that only env sets count once, although the kernel passes them twice",
    changes: [
      {
        file: "src/processes/shell/script.ts",
        from: "...special, ...special];",
        to: "...special];",
      },
    ],
    test: { file: LARGE, title: "a program gets all that is allowed, and one byte more is refused" },
  },
  {
    name: "bubblewrap starts a terminal with more than one argument holds",
    changes: [
      {
        file: "src/engine/bubblewrap/job-script.ts",
        from: "Buffer.byteLength(inner) > MAX_TERMINAL_TEXT",
        to: "Buffer.byteLength(inner) > 16 * MAX_TERMINAL_TEXT",
      },
    ],
    test: {
      file: LARGE,
      title: "a command with a terminal is refused if the engine cannot start it",
      suite: "on bubblewrap",
    },
  },
  {
    name: "a sandbox may have so many variables that no command fits",
    changes: [
      {
        file: "src/rpc/validate/fields.ts",
        from: "if (bytes > MAX_ENVIRONMENT_BYTES)",
        to: "if (bytes > 4 * MAX_ENVIRONMENT_BYTES)",
      },
    ],
    test: { file: "test/unit/rpc/validate/environment.test.ts", title: "accepts 768 KiB and no more" },
  },
  {
    name: "output after a kill is taken without a limit",
    changes: [
      {
        file: "src/processes/process.ts",
        from: "const AFTER_KILL_BYTES = 16 * 1024 * 1024;",
        to: "const AFTER_KILL_BYTES = 1e12;",
      },
    ],
    test: {
      file: "test/unit/processes/ends.test.ts",
      title: "bounds what a process that left the tree writes to the output of the killed one",
    },
  },
  {
    name: "a late timeout is why a process ended",
    changes: [{ file: "src/processes/process.ts", from: " || this.#hasEnded) return;", to: ") return;" }],
    test: {
      file: "test/unit/processes/ends.test.ts",
      title: "is why a process was killed with it, although its timeout passes before the report",
    },
  },
  {
    name: "the place of a process is taken only when it runs",
    changes: [
      {
        file: "src/processes/manager.ts",
        from: "      place = this.#registry.reserve(sandbox.owner, sandbox.sandboxId, maxProcessesPerSandbox);",
        to: "      this.#registry.reserve(sandbox.owner, sandbox.sandboxId, maxProcessesPerSandbox).release();",
      },
    ],
    test: {
      file: LIMIT,
      title: "of concurrent commands as many run as the limit allows, time and again",
    },
  },
  {
    name: "runs that are being started take no place",
    changes: [
      {
        file: "src/runs/running-runs.ts",
        from: "    this.#places.take(owner);\n    let held = true;",
        to: "    let held = false;",
      },
    ],
    test: { file: "test/unit/runs/manager.test.ts", title: "as many succeed as there are places" },
  },
  {
    name: "one owner may start as many runs as the server takes",
    changes: [
      {
        file: "src/base/shared-places.ts",
        from: "this.of(owner) + count - 1 < MAX_OF_FREE * (this.free - count + 1)",
        to: "this.free >= count",
      },
    ],
    test: { file: "test/unit/runs/manager.test.ts", title: "those of one owner leave places to others" },
  },
  {
    name: "a lane is used again as soon as its job says that it left nothing",
    changes: [
      {
        file: "src/processes/shell/lane.ts",
        from: '    this.#state = "renewing";\n    this.#renew().catch(() => this.#end());',
        to: '    this.#state = "idle";\n    this.#owner.freed(this);',
      },
    ],
    test: {
      file: ATTACK,
      title: "after a command that %s the next ones are clean",
      row: "has the lane's shell run something",
      suite: "a shell being within its user's reach",
    },
  },
  {
    name: "what transcripts hold together is not bounded",
    changes: [
      {
        file: "src/processes/transcript-budget.ts",
        from: "of this.#makeRoom(owner)) {",
        to: "of owner ? [] : this.#makeRoom(owner)) {",
      },
    ],
    test: {
      file: "test/unit/processes/transcript-budget.test.ts",
      title: "of running processes the largest loses output, but keeps its head and its newest output",
    },
  },
  {
    name: "two writes of a transcript to disk go to the same place",
    changes: [
      {
        file: "src/processes/transcript.ts",
        from: "(this.#spilling === undefined ? work() : this.#spilling.then(work))",
        to: "Promise.resolve(this.#spilling && 0).then(work)",
      },
    ],
    test: {
      file: "test/unit/processes/transcript.test.ts",
      title: "output that moves to disk for several reasons at once is read byte for byte",
    },
  },
  {
    name: "output of an earlier run counts twice once it is read",
    changes: [{ file: "src/processes/ended-process.ts", from: "      this.#unread?.leave();\n", to: "" }],
    test: {
      file: "test/unit/processes/transcript-budget.test.ts",
      title: "count, and count once when they are read",
    },
  },
  {
    name: "a start removes the files of processes that it does not read",
    changes: [
      {
        file: "src/processes/recover.ts",
        from: "    for (const file of files) disk.keep(file);\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/processes/recover.test.ts",
      title: "are removed after a day, with their files, whether they were read or not",
    },
  },
  {
    name: "the retry of a request whose answer was dropped carries it out again",
    changes: [
      {
        file: "src/state/request-log.ts",
        from: "    if (stored?.dropped) throw answerDropped(key);\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/state/request-log.test.ts",
      title: "are dropped, oldest first, and their requests are not carried out twice",
    },
  },
  {
    name: "how a command is found again is not kept",
    changes: [
      {
        file: "src/processes/journal.ts",
        from: "      ...(trace && { trace }),\n",
        to: "      ...(trace && {}),\n",
      },
    ],
    test: { file: FOUND_ENDS, title: "a command that ends later is followed to its end" },
  },
  {
    name: "output of a command is dropped when its shell ends while no service runs",
    changes: [
      {
        file: "src/processes/shell/script.ts",
        from: '"command : </proc/self/fd/0"',
        to: '":"',
      },
    ],
    test: {
      file: FOUND_ENDS,
      title: "a command that ended meanwhile has its exit code and its output",
    },
  },
  {
    name: "an earlier kill for want of memory is blamed on what is found after a restart",
    changes: [
      {
        file: "src/processes/recover.ts",
        from: "  await Promise.all([...sandboxes.values()].map((sandbox) => control.recover(sandbox)));\n",
        to: "  void sandboxes;\n",
      },
    ],
    test: {
      file: FOUND_ENDS,
      title: "an out-of-memory kill before the restart is not blamed for a kill by a signal after it",
    },
  },
  {
    name: "a command is ended after a restart because an earlier one in its shell has lost its caller",
    changes: [
      {
        file: "src/processes/recover.ts",
        from: "const isOver = lastOf.get(leaderKey(known)) !== stored.processId;",
        to: "const isOver = lastOf.size === 0;",
      },
    ],
    test: {
      file: "test/unit/processes/recover.test.ts",
      title: "a process is not taken for an earlier one in its shell, whose end was not stored",
    },
  },
  {
    name: "earlier kills for want of memory are blamed if a busy machine cannot count them at a restart",
    changes: [
      {
        file: "src/processes/control.ts",
        from: "new OomKills(Number.POSITIVE_INFINITY)",
        to: "new OomKills()",
      },
    ],
    test: {
      file: "test/unit/processes/control.test.ts",
      title: "OOM kills that cannot be counted at a restart explain no end after it",
    },
  },
  {
    name: "a kill for want of memory before a command is blamed for its end",
    changes: [
      {
        file: "src/processes/process.ts",
        from: "wasOomKilled(this.sandbox, this.#oomKillsBefore)",
        to: "wasOomKilled(this.sandbox, 0)",
      },
    ],
    test: {
      file: "test/integration/sandboxes/earlier-oom.test.ts",
      title: "an out-of-memory kill before a command is not blamed for its end",
    },
  },
  {
    name: "a kill for want of memory explains ends for ever",
    changes: [
      { file: "src/processes/oom-kills.ts", from: "nowMs - this.#foundAtMs > EXPLAINS_MS", to: "nowMs < 0" },
    ],
    test: {
      file: "test/unit/processes/control.test.ts",
      title: "OOM kills that explain no end soon explain none later",
    },
  },
  {
    name: "of commands that are killed for want of memory at once, one says so",
    changes: [
      {
        file: "src/processes/oom-kills.ts",
        from: "if (isNew) this.#seen = explained + 1;",
        to: "this.#seen = count;",
      },
    ],
    test: {
      file: "test/unit/processes/manager.test.ts",
      title: "explains ends that follow each other by one OOM kill each",
    },
  },
  {
    name: "the code of a shell that was killed is not asked for",
    changes: [
      {
        file: "src/processes/shell/reattached-job.ts",
        from: "spawned && (await endFromEngine(spawned, output, signal, { within }))",
        to: "undefined as JobEnd | undefined",
      },
    ],
    test: { file: FOUND_ENDS, title: "a command that was ended by a signal, before or after, reports which" },
  },
  {
    name: "the end of the output of a command is dropped while nobody reads it",
    changes: [
      {
        file: "src/processes/shell/shell-job.ts",
        from: "    if (!output.isPaused()) pauses++;\n",
        to: "    pauses++;\n",
      },
    ],
    test: {
      file: "test/integration/processes/unread-output.test.ts",
      title: "a command that ends while its reader does not read loses no output",
    },
  },
  {
    name: "a start that was stopped halfway into a container stays stopped when what stopped it is gone",
    changes: [
      {
        file: "src/engine/outside/control.ts",
        from: "      await this.continueStarts(0);\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/engine/docker/half-way-starts.test.ts",
      title: "a start that is stopped halfway continues once nothing stops it",
    },
  },
  {
    name: "of what enters a container only what is in its control group is seen",
    changes: [
      {
        file: "src/engine/docker/outside-views.ts",
        from: "      entering: namespaceScope(State.Pid, this.#namespaces),",
        to: "      entering: { pids: async () => [], holds: () => false },",
      },
    ],
    test: {
      file: "test/integration/engine/docker/half-way-starts.test.ts",
      title: "a start that is stopped halfway continues once nothing stops it",
    },
  },
  {
    name: "a command that finds every place for a process taken says that the engine failed",
    changes: [
      {
        file: "src/processes/shell/start-watch.ts",
        from: "  return obstacle === undefined ? error : errorOf(obstacle, error);",
        to: "  return obstacle === undefined ? error : error;",
      },
    ],
    test: {
      file: HOSTILE,
      title: "calls end in time next to a command that %s, and their sessions still work",
      row: "has every process that there may be",
    },
  },
  {
    name: "what is stopped takes SIGTERM when its grace is over",
    changes: [
      {
        file: "src/engine/outside/control.ts",
        from: "    await this.#send(members.filter(isStopped), SIGCONT);\n",
        to: "",
      },
    ],
    test: { file: HOSTILE, title: "a command that is stopped takes SIGTERM at once" },
  },
  {
    name: "a write that was given up is kept until the process reads",
    changes: [
      {
        file: "src/processes/stdin-writer.ts",
        from: "      const changed = Promise.withResolvers<void>();\n",
        to: "      const shared = room as typeof room & { changed?: PromiseWithResolvers<void> };\n      shared.changed ??= Promise.withResolvers<void>();\n      const { changed } = shared;\n",
      },
    ],
    test: {
      file: "test/integration/processes/exec/stdin-given-up.test.ts",
      title: "of 40 abandoned writes only a piece in transit is kept",
    },
  },
  {
    name: "a piece on its way keeps all of its write",
    changes: [
      {
        file: "src/processes/stdin-writer.ts",
        from: "owned(fresh.subarray(at, at + PIECE_BYTES))",
        to: "fresh.subarray(at, at + PIECE_BYTES)",
      },
    ],
    test: {
      file: "test/integration/processes/exec/stdin-given-up.test.ts",
      title: "of 40 abandoned writes only a piece in transit is kept",
    },
  },
  {
    name: "a process that was forgotten is stored again when its caller has read it to the end",
    changes: [{ file: "src/processes/journal.ts", from: "if (this.isReadable(process.id)) ", to: "" }],
    test: {
      file: "test/unit/processes/manager.test.ts",
      title: "does not store again a process that it has forgotten while its caller still read",
    },
  },
  {
    name: "stdin that a command has not read is not counted once its caller has left",
    changes: [
      {
        file: "src/processes/process.ts",
        from: "hold(() => writer.write(0, stdin, !this.#isOpen, signal))",
        to: "void hold;\n    writer.write(0, stdin, !this.#isOpen, signal)",
      },
    ],
    test: {
      file: "test/unit/processes/input.test.ts",
      title: "that came with the request counts until the job has it, also when the caller has left",
    },
  },
  {
    name: "one new byte on its way keeps all of its message",
    changes: [
      {
        file: "src/processes/stdin-writer.ts",
        from: "owned(fresh.subarray(at, at + PIECE_BYTES))",
        to: "fresh.length > PIECE_BYTES ? owned(fresh.subarray(at, at + PIECE_BYTES)) : fresh",
      },
    ],
    test: {
      file: "test/integration/processes/exec/stdin-given-up.test.ts",
      title: "a message of which only the last byte is new is not kept with that byte",
    },
  },
  {
    name: "a piece that the job refuses after its caller has left counts as written",
    changes: [
      {
        file: "src/processes/stdin-writer.ts",
        from: "data.length > 0 && offset + data.length > this.#passed",
        to: "fresh.length > 0",
      },
    ],
    test: {
      file: "test/unit/processes/input.test.ts",
      title: "that its caller no longer waited for when the job refused it is refused again",
    },
  },
  {
    name: "after its first, a sandbox never gets a spare lane again",
    changes: [
      {
        file: "src/processes/shell/lane-pool.ts",
        from: "    if (!hasCome) this.#dropTurn = drop;\n",
        to: "    void hasCome;\n    this.#dropTurn = drop;\n",
      },
    ],
    test: {
      file: "test/unit/processes/shell/lane-pool.test.ts",
      title: "a spare lane is opened after a moment, so that a command can get its lane first",
    },
  },
  {
    name: "stdin that nobody took is reported as bytes that the caller left out",
    changes: [
      {
        file: "src/processes/stdin-writer.ts",
        from: '      if (this.#room.state === "failed") throw this.#room.error;\n      throw',
        to: "      throw",
      },
    ],
    test: {
      file: "test/unit/processes/input.test.ts",
      title: "reports why the job accepts no input, also at each retry",
    },
  },
  {
    name: "a job whose end comes late has the exit code 0",
    changes: [{ file: "src/processes/shell/script.ts", from: "\nexit $_s`;", to: "`;" }],
    test: {
      file: "test/unit/processes/shell/script.test.ts",
      title: "every kind of shell ends with the exit code of its job",
    },
  },
  {
    name: "who follows a command misses output after the service was killed",
    changes: [
      {
        file: "src/processes/process.ts",
        from: "const at = this.recoveredAt[recoveries];",
        to: "const at = this.recoveredAt[recoveries + 99];",
      },
    ],
    test: {
      file: "test/integration/clients/killed-service.test.ts",
      title:
        "who follows a command gets all of its later output although the killed service had not stored the earlier",
    },
  },
  {
    name: "who follows a command lost with its service only learns that its offsets are too large",
    changes: [
      {
        file: "src/processes/recover.ts",
        from: "known.status === undefined ?",
        to: "known.status === undefined && known.leader === undefined ?",
      },
    ],
    test: {
      file: "test/integration/clients/killed-service.test.ts",
      title:
        "who follows a command that ends with its service learns that, although the service had not stored its output",
    },
  },
  ...[
    {
      name: "the TypeScript client keeps the offsets that a killed service lost",
      change: {
        file: "clients/typescript/src/process.ts",
        from: "if (this.recoveries !== undefined && this.recoveries !== recoveries) {",
        to: "if (this.recoveries === -1) {",
      },
    },
    {
      name: "the Python client keeps the offsets that a killed service lost",
      change: {
        file: "clients/python/src/berth/_sync/process.py",
        from: "if self.recoveries not in (None, event.started.recoveries):",
        to: "if self.recoveries == -1:",
      },
    },
    {
      name: "berth logs -f keeps the offsets that a killed service lost",
      change: {
        file: "src/cli/read-transcript.ts",
        from: "else if (now !== recoveries) Object",
        to: "else if (now === -1) Object",
      },
    },
    {
      name: "berth logs --tail leaves out what takes the offsets of lost output",
      change: {
        file: "src/cli/commands/logs.ts",
        from: "    written < extract.from[stream] ? extract.from[stream] : 0n;",
        to: "    written < 0n ? 0n : extract.from[stream];",
      },
    },
  ].map(({ name, change }) => ({
    name,
    changes: [change],
    test: {
      file: "test/integration/clients/killed-service.test.ts",
      title:
        "who follows it gets the later output also if the connection breaks again before it comes, and with --tail",
    },
  })),
  {
    name: "a script runs in the fork of a shell whose memory its tools can read",
    changes: [
      {
        file: "src/processes/shell/script.ts",
        from: "if (evaluates && ownScript",
        to: "if (ownScript",
      },
    ],
    test: {
      file: "test/unit/processes/shell/script.test.ts",
      title: "an undumpable lane runs Berth's own scripts in a fork, which changes nothing of the lane",
    },
  },
  {
    name: "an Exec with a grace that is repeated while it starts runs twice",
    changes: [
      {
        file: "src/processes/manager.ts",
        from: 'request.onDisconnect === "KILL" && request.disconnectGraceMs === 0;',
        to: 'request.onDisconnect === "KILL";',
      },
    ],
    test: {
      file: "test/unit/processes/manager.test.ts",
      title: "with a grace starts one process, even if its caller is lost during the start and comes back",
    },
  },
  {
    name: "an Exec with a grace whose caller is lost during the start runs on for ever",
    changes: [
      {
        file: "src/processes/manager.ts",
        from: "if (shared.aborted || request.disconnectGraceMs > 0) own.abandon();",
        to: "if (shared.aborted) own.abandon();",
      },
    ],
    test: {
      file: "test/unit/processes/manager.test.ts",
      title: "with a grace starts a process that ends after it, if its caller is lost during the start",
    },
  },
  {
    name: "the tail of an output in tiny pieces is copied for each of them",
    changes: [
      {
        file: "src/processes/head-and-tail.ts",
        from: "    if (kept.length === 0) return;\n",
        to: "    if (kept.length === 0) return;\n    this.#tail = Buffer.from(this.#tail);\n",
      },
    ],
    test: {
      file: "test/unit/processes/head-and-tail.test.ts",
      title: "a flood of tiny pieces takes no more time than its bytes",
    },
  },
  {
    name: "of output to both streams in turn, each block is stored with its place",
    changes: [
      {
        file: "src/processes/stored-blocks.ts",
        from: "      sequence === expected.sequence &&\n",
        to: "      sequence < 0 &&\n",
      },
    ],
    test: {
      file: "test/unit/processes/stored-blocks.test.ts",
      title: "the blocks of a program that writes to both streams in turn take little room and time",
    },
  },
  {
    name: "the heads of output to both streams in turn take any number of blocks",
    changes: [
      {
        file: "src/processes/transcript.ts",
        from: "      if (this.#head.size === MAX_HEAD_BLOCKS) Object.assign(this.#headEnd, this.#headWritten);\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/processes/transcript.test.ts",
      title: "a program that writes to both streams in turn fills the heads with some ten thousand writes",
    },
  },
  {
    name: "the end of a command that a service finds while it recovers is not stored",
    changes: [
      {
        file: "src/processes/manager.ts",
        from: "this.#journal.recovered(followed);",
        to: "this.#journal.recovered(followed.filter(({ status }) => status === undefined));",
      },
    ],
    test: {
      file: "test/unit/processes/recover.test.ts",
      title: "the end of a process that ended meanwhile is stored, with its output",
    },
  },
  {
    name: "a process whose reader stops may be ahead of it by any number of tiny blocks",
    changes: [
      {
        file: "src/processes/transcript.ts",
        from: " || diskBehind || this.#isFullOfUnread;",
        to: " || diskBehind;",
      },
    ],
    test: {
      file: "test/unit/processes/transcript.test.ts",
      title: "makes the process wait as well once unread blocks fill the window, however few bytes they have",
    },
  },
  {
    name: "output that comes while a service that stops is storing is left out",
    changes: [
      {
        file: "src/processes/journal.ts",
        from: "this.#stopped ? Number.MAX_SAFE_INTEGER : INLINE_BYTES",
        to: "INLINE_BYTES",
      },
    ],
    test: {
      file: "test/unit/processes/recover.test.ts",
      title: "nothing is missing of what happens while a service that stops is storing",
    },
  },
  {
    name: "a command that ends while a service that stops is storing is not stored as ended",
    changes: [
      {
        file: "src/processes/journal.ts",
        from: "    while (this.#saves.size > 0) await Promise.all(this.#saves);\n    this.#stopped = true;\n",
        to: "    this.#stopped = true;\n    while (this.#saves.size > 0) await Promise.all(this.#saves);\n",
      },
    ],
    test: {
      file: "test/unit/processes/recover.test.ts",
      title: "nothing is missing of what happens while a service that stops is storing",
    },
  },
  {
    name: "on a full disk, transcripts take any amount of memory up to their quota",
    changes: [
      {
        file: "src/processes/transcript-budget.ts",
        from: "    if (isTaken) return;\n",
        to: "    if (isTaken || transcript) return;\n",
      },
    ],
    test: {
      file: "test/unit/processes/transcript-budget.test.ts",
      title:
        "what a full disk does not take is dropped beyond the memory limit, oldest first, and processes wait",
    },
  },
  {
    name: "a list of processes reads all ended ones in one turn of the event loop",
    changes: [
      {
        file: "src/processes/registry.ts",
        from: "      await turns.enter();\n",
        to: "      await Promise.resolve(turns);\n",
      },
    ],
    test: {
      file: "test/unit/processes/recover.test.ts",
      title: "are read for a list in turns of the event loop, because some have much output",
    },
  },
  {
    name: "the output of a program that writes to both streams in turn has more blocks than are handled in a moment",
    changes: [
      {
        file: "src/processes/transcript-reader.ts",
        from: "const BLOCK_COST_BYTES = 2048;",
        to: "const BLOCK_COST_BYTES = 512;",
      },
    ],
    test: {
      file: "test/unit/processes/transcript.test.ts",
      title: "a program that writes to both streams in turn has a block in the window for each two KiB of it",
    },
  },
  {
    name: "a signal to a group of thousands of processes blocks the event loop",
    changes: [
      {
        file: "src/engine/outside/control.ts",
        from: "const isSent = await this.#send(group, signal);",
        to: "const isSent = group.filter((one) => signalProcess(this.#parts.scope, one, signal)).length > 0;",
      },
    ],
    test: {
      file: "test/unit/engine/outside/control.test.ts",
      title: "a process group of thousands gets a signal with turns of the event loop in between",
    },
  },
  {
    name: "a prestarted shell that nobody needs any more keeps its pipes for as long as it is stopped",
    changes: [
      {
        file: "src/processes/shell/prestarted-shells.ts",
        from: "    this.#spawned.close();\n",
        to: "    this.#spawned.closeStdin();\n",
      },
    ],
    test: {
      file: "test/integration/processes/shell/unneeded-shells.test.ts",
      title:
        "the pipes of a prestarted shell that nobody needs any more count as orphaned if it does not end",
    },
  },
  {
    name: "a lane that nobody needs any more keeps its pipes for as long as it is stopped",
    changes: [
      {
        file: "src/processes/shell/lane-pool.ts",
        from: "oldest.lane.discard();",
        to: "oldest.lane.spawned.closeStdin();",
      },
    ],
    test: {
      file: "test/integration/processes/shell/unneeded-shells.test.ts",
      title: "the pipes of a lane that nobody needs any more count as orphaned if it does not end",
    },
  },
  {
    name: "a lane that dies while it is checked takes one of the sandbox's lanes for good",
    changes: [
      {
        file: "src/processes/shell/lane.ts",
        from: '      if (lane.state === "dead") throw shellGone("", undefined);\n',
        to: "",
      },
    ],
    test: {
      file: "test/unit/processes/shell/lane-pool.test.ts",
      title: "a lane that dies while it is checked from outside leaves its place to the next",
    },
  },
  {
    name: "a signal that a command handles ends the shell around it",
    changes: [
      {
        file: "src/processes/shell/script.ts",
        from: `\`trap : \${ENDING_SIGNALS.join(" ")}\``,
        to: `"trap : HUP INT QUIT USR1 USR2 PIPE ALRM TERM"`,
      },
    ],
    test: {
      file: "test/integration/processes/exec/ends.test.ts",
      title: "a command that handles a signal continues, whichever signal and shell",
    },
  },
  {
    name: "a terminal's shell that ends before its command fails as a closed stdin",
    changes: [
      {
        file: "src/processes/shell/plain-job.ts",
        from: 'spawned.writeStdin(Buffer.from(goAhead, "latin1")).catch(() => {});',
        to: 'await spawned.writeStdin(Buffer.from(goAhead, "latin1"));',
      },
    ],
    test: {
      file: "test/unit/processes/shell/plain-job.test.ts",
      title: "a shell with a terminal that ends before its job fails as a shell that has ended",
    },
  },
  {
    name: "variables that a shell would change need a PATH with env in it",
    changes: [{ file: "src/processes/shell/script.ts", from: "[ -x /usr/bin/env ]", to: "false" }],
    test: {
      file: "test/integration/processes/exec-cases.test.ts",
      title: "variables that a shell would change reach a command whose PATH has no programs",
      suite: "commands under dash",
    },
  },
  {
    name: "variables with the names that Berth's scripts use do not reach commands with stdin or of another user",
    changes: [
      {
        file: "src/processes/shell/script.ts",
        from: "BERTH_(NONCE|START|NTH|GO|STDIN|STDOUT|STDERR)|",
        to: "",
      },
    ],
    test: {
      file: "test/integration/processes/exec-cases.test.ts",
      title: "variables that a shell would change reach a command whose PATH has no programs",
    },
  },
  {
    name: "every round of a kill searches all descriptors of the sandbox",
    changes: [
      {
        file: "src/engine/outside/process-tree.ts",
        from: "      if (this.#strangers.has(keyOf(one))) continue;\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/engine/outside/control.test.ts",
      title: "the other processes of a sandbox are searched for the pipes of a tree once for each kill",
    },
  },
  {
    name: "processes: a restart ends sandboxes whose shells start slowly as uncontrollable",
    changes: [
      {
        file: "src/processes/control.ts",
        from: "job.unsure ? this.#recovered.run(() => kill(RECOVERED_KILL_MS)) : kill(INSIDE_ALL_MS)",
        to: "kill(INSIDE_ALL_MS)",
      },
    ],
    test: {
      file: "test/unit/processes/control.test.ts",
      title: "a sandbox is not given up because shells are slow to start after a restart of the service",
    },
  },
  {
    name: "a lane changes a variable of the image that has the name of one of its own",
    changes: [
      {
        file: "src/processes/shell/script.ts",
        from: "B() { _g=-; read -r _g <$_I; }",
        to: "B() { _g=-; read -r _g <$_I; g=$_g; }",
      },
    ],
    test: {
      file: "test/unit/processes/shell/script.test.ts",
      title: "variables of the image with one letter reach jobs as they are, from %s",
      row: "bash",
    },
  },
  {
    name: "output that a slow reader has not read is dropped when its process is no longer listed",
    changes: [
      {
        file: "src/processes/transcript.ts",
        from: "if (this.#isCleared && this.ahead === 0) this.#dropHead();",
        to: "if (this.#isCleared) this.#dropHead();",
      },
    ],
    test: {
      file: "test/unit/processes/transcript.test.ts",
      title: "a transcript that is cleared keeps its head until the lossless reader has read everything",
    },
  },
];
