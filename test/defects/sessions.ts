import type { Defect } from "./defect.ts";

const PYTHON = "test/integration/sessions/python.test.ts";
const PRINTERS = "threads that print while later calls run do not crash the interpreter";

const MANAGER = "src/sessions/manager.ts";
const PLACES = "test/unit/sessions/places.test.ts";
const SESSIONS = "test/integration/sessions/sessions.test.ts";
const LOST = "test/integration/processes/lost-callers.test.ts";

/** Those that sessions and requests with an id had. */
export const SESSION_DEFECTS: readonly Defect[] = [
  {
    name: "a page of ListSessions has any size",
    changes: [
      { file: "src/sessions/registry.ts", from: "(positionOf, ({ bytes }) => bytes)", to: "(positionOf)" },
    ],
    test: {
      file: "test/unit/sessions/manager.test.ts",
      title: "a page of sessions with large configs is short",
    },
  },
  {
    name: "the results that batches hold have no limit together",
    changes: [
      {
        file: "src/sessions/tool-runner.ts",
        from: "bytes <= roomBytes && take(bytes)",
        to: "bytes <= roomBytes",
      },
    ],
    test: {
      file: "test/unit/sessions/calls.test.ts",
      title: "holds results as long as there is memory for them",
    },
  },
  {
    name: "a destroyed session waits for a call that does not react",
    changes: [
      {
        file: "src/sessions/end.ts",
        from: "const ABORT_WAIT_MS = 2_000;",
        to: "const ABORT_WAIT_MS = 5_000;",
      },
    ],
    test: { file: "test/unit/sessions/manager.test.ts", title: "continues if a call ignores its abort" },
  },
  {
    name: "a glob sorts its files by the halves of characters",
    changes: [
      {
        file: "src/sessions/types/files/search.ts",
        from: "found.sort(Buffer.compare).map(String)",
        to: "found.map(String).sort()",
      },
    ],
    test: {
      file: "test/integration/sessions/files.test.ts",
      title: "files are found in byte order, whatever characters their names have",
    },
  },
  {
    name: "a traceback shows another line than the one that failed",
    changes: [
      {
        file: "src/sessions/types/python/driver.ts",
        from: "StringIO(code, None).readlines()",
        to: "code.splitlines(True)",
      },
    ],
    test: {
      file: PYTHON,
      title: "a traceback shows the lines as Python counts them, whatever characters are in the code",
    },
  },
  {
    name: "a page whose picture takes too many bytes has none",
    changes: [
      {
        file: "src/sessions/types/browser/screenshot.ts",
        from: "if (!isTooLarge || part === undefined ||",
        to: "if (isTooLarge || part === undefined ||",
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/screenshot.test.ts",
      title: "of a page whose picture takes too many bytes, as much is captured as fits",
    },
  },
  {
    name: "a picture of a link that wraps shows only its first line",
    changes: [
      {
        file: "src/sessions/types/browser/screenshot.ts",
        from: "signal), signal)).whole",
        to: "signal), signal)).first",
      },
    ],
    test: {
      file: "test/integration/sessions/browser.test.ts",
      title: "a screenshot shows the viewport, the page, or an element, and has its size",
    },
  },
  {
    name: "a dialog that opens while its page is left is never answered",
    changes: [
      {
        file: "src/sessions/types/browser/chromium.ts",
        from: '"--disable-features=RenderDocument,',
        to: '"--disable-features=',
      },
    ],
    test: {
      file: "test/integration/sessions/browser.test.ts",
      title: "a page that opens one dialog after another can be left",
    },
  },
  {
    name: "a prompt with a long default text is never answered",
    changes: [
      {
        file: "src/sessions/types/browser/devtools.ts",
        from: "if (message === undefined) handler.tooLarge();",
        to: "if (message === undefined) return;",
      },
    ],
    test: {
      file: "test/integration/sessions/browser.test.ts",
      title: "a prompt with a default text of any size is answered, and its tab stays",
    },
  },
  {
    name: "what else a page downloads stays in the sandbox",
    changes: [
      {
        file: "src/sessions/types/browser/download.ts",
        from: "await files.remove(removal",
        to: "if (first === undefined) await files.remove(removal",
      },
    ],
    test: {
      file: "test/integration/sessions/browser-hostile.test.ts",
      title:
        "a page that downloads more than it was asked for leaves one file, and its long name holds nobody up",
    },
  },
  {
    name: "a download that begins while its call ends stays",
    changes: [
      {
        file: "src/sessions/types/browser/download.ts",
        from: 'await devtools.send(behave("deny"), late).catch(() => {});',
        to: 'void devtools.send(behave("deny"), late).catch(() => {});',
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/download.test.ts",
      title: "a download that begins after the call has ended is canceled and removed",
    },
  },
  {
    name: "a canceled call keeps its session's turn while its sandbox ends",
    changes: [
      {
        file: "src/sessions/execute.ts",
        from: "orSandboxEnd(error, lease.sandbox, all,",
        to: "orSandboxEnd(error, lease.sandbox, lease.signal,",
      },
    ],
    test: {
      file: "test/unit/sessions/calls.test.ts",
      title: "continue after one whose caller left while its sandbox seemed to end",
    },
  },
  {
    name: "grep waits for the writer of a pipe",
    changes: [{ file: "src/sessions/types/files/search.ts", from: '"--devices=skip", ', to: "" }],
    test: {
      file: "test/integration/sessions/files.test.ts",
      title: "grep of a pipe finds nothing, and does not wait for a writer",
    },
  },
  {
    name: "reload waits for a page that the server does not send",
    changes: [
      {
        file: "src/sessions/types/browser/navigation.ts",
        from: 'progress() === "stays" && (await isAtRest',
        to: "false && (await isAtRest",
      },
    ],
    test: {
      file: "test/integration/sessions/browser.test.ts",
      title: "is not loaded again if the server then sends nothing",
    },
  },
  {
    name: "reload fails on a page that navigates itself at the same time",
    changes: [
      {
        file: "src/sessions/types/browser/navigation.ts",
        from: '(await isAtRest(tab, signal)) && progress() === "stays"',
        to: "true",
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/navigation.test.ts",
      title: "a page that stops to load just before it shows another document was reloaded",
    },
  },
  {
    name: "back does not wait for the page",
    changes: [
      {
        file: "src/sessions/types/browser/navigation.ts",
        from: 'progress() === "none" && (await isAt',
        to: "(await isAt",
      },
    ],
    test: {
      file: "test/integration/sessions/browser.test.ts",
      title: "is complete when it is gone back to, however late the server answers",
    },
  },
  {
    name: "the directories above a download are made by the browser, for itself alone",
    changes: [
      {
        file: "src/sessions/types/browser/download.ts",
        from: "await files.makeDirectory(make, signal);",
        to: "void make;",
      },
    ],
    test: {
      file: "test/integration/sessions/browser.test.ts",
      title: "a download is stored in the sandbox, from a URL or from a click, and nothing else is",
    },
  },
  {
    name: "what a frame in another tab downloads is taken for what a click downloads",
    changes: [
      {
        file: "src/sessions/types/browser/download.ts",
        from: " && event.guid !== foreign",
        to: "",
      },
    ],
    test: {
      file: "test/integration/sessions/browser.test.ts",
      title: "what frames in other tabs download is not taken for what a click downloads",
    },
  },
  {
    name: "what a frame of another process in another tab downloads is taken for what a click downloads",
    changes: [
      {
        file: "src/sessions/types/browser/download.ts",
        from: "tab.roots.map(",
        to: "[tab.root].map(",
      },
    ],
    test: {
      file: "test/integration/sessions/browser.test.ts",
      title: "what frames in other tabs download is not taken for what a click downloads",
    },
  },
  {
    name: "an action on the page about an earlier error fails",
    changes: [
      {
        file: "src/sessions/types/browser/navigation.ts",
        from: "page?.loaderId === before || page?.loaderId === tab.failedLoaderId",
        to: "false",
      },
    ],
    test: {
      file: "test/integration/sessions/browser.test.ts",
      title: "an action on the page about an earlier error is no failure",
    },
  },
  {
    name: "a window manager that starts late is asked only once, which it does not notice",
    changes: [
      {
        file: "src/sessions/types/vm/driver/windows.py",
        from: "        if self._runs:\n",
        to: "        if True:\n",
      },
    ],
    test: {
      file: "test/integration/sessions/vm-failures.test.ts",
      title:
        "a window manager that starts late is noticed at once, and one that never starts is waited for once",
    },
  },
  {
    name: "a glob that starts with ./ finds nothing",
    changes: [
      {
        file: "src/sessions/types/files/search.ts",
        from: '.replace(/^\\.(?:\\/|$)/, "");',
        to: ";",
      },
    ],
    test: {
      file: "test/integration/sessions/files.test.ts",
      title:
        "a pattern that starts with ./ or the directory means the same, and one that leaves it is refused",
    },
  },
  {
    name: "code for python may not begin with a byte order mark",
    changes: [
      {
        file: "src/sessions/types/python/driver.ts",
        from: "    if code[:1] == '\\\\ufeff': code = code[1:]\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/sessions/python.test.ts",
      title: "code may begin with a byte order mark, like a file",
    },
  },
  {
    name: "grep takes a pattern with a line break for two patterns",
    changes: [
      {
        file: "src/sessions/types/files/search.ts",
        from: 'if (pattern.includes("\\n")) {',
        to: "if (pattern === undefined) {",
      },
    ],
    test: {
      file: "test/integration/sessions/files.test.ts",
      title: "grep refuses a pattern with a line break: it would look for either line",
    },
  },
  {
    name: "each turn of python replaces sys.stdout under the threads that print",
    changes: [
      {
        file: "src/sessions/types/python/driver.ts",
        from: "    _own_streams()\n    try: answer",
        to: "    sys.stdout, sys.stderr = _Stream(1), _Stream(2)\n    try: answer",
      },
    ],
    test: { file: PYTHON, title: PRINTERS },
  },
  {
    name: "a handler of a signal runs while python's driver works, and what it raises ends the interpreter",
    changes: [
      {
        file: "src/sessions/types/python/driver.ts",
        from: "        except BaseException: pass\n    _guard",
        to: "        finally: pass\n    _guard",
      },
    ],
    test: {
      file: PYTHON,
      title: "a timer whose handler raises at any moment does not change the interpreter",
    },
  },
  {
    name: "a tool is canceled with its caller, and a retry with the same request id runs it again",
    changes: [
      {
        file: "src/state/request-log.ts",
        from: "--entry.waiters > 0 || !entry.endsWithCallers",
        to: "--entry.waiters > 0",
      },
    ],
    test: {
      file: LOST,
      title: "a tool called with a request id runs once, and a retry gets its answer",
    },
  },
  {
    name: "a command with a request id is killed when its caller is lost",
    changes: [
      {
        file: "src/rpc/process-service.ts",
        from: 'onDisconnect: request.requestId === "" ? "KILL" : "DETACH"',
        to: 'onDisconnect: "KILL"',
      },
    ],
    test: {
      file: LOST,
      title: "a command started with a request id runs once, and a retry gets its result",
    },
  },
  {
    name: "a session that is created again lives on, and its sandbox expires under it",
    changes: [
      {
        file: MANAGER,
        from: "        this.#refresh(existing);",
        to: "        existing.touch();\n        this.#onUse(existing);",
      },
    ],
    test: { file: SESSIONS, title: "explicit: creating again keeps the sandbox alive too" },
  },
  {
    name: "a session whose sandbox was deleted is listed as active",
    changes: [
      {
        file: MANAGER,
        from: "!record.expired && this.#lossOf(record) === undefined",
        to: "!record.expired",
      },
    ],
    test: {
      file: SESSIONS,
      title: "a session whose sandbox is deleted is in no list, is not refreshed, and is replaced",
    },
  },
  {
    name: "a reinitialized session keeps its custom name whatever its new config says",
    changes: [{ file: MANAGER, from: "customNameOf(config ?? {}) || (init", to: "(init" }],
    test: {
      file: SESSIONS,
      title: "reinitialize: a custom name in the config is the new one, and without one the old stays",
    },
  },
  {
    name: "a shell that is killed counts as out of memory because a program of it was",
    changes: [
      {
        file: "src/sessions/types/interpreter-process.ts",
        from: "      if (mayBeOutOfMemory(Number(outcome.end.status))) await this.#newOomKills();\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/sessions/out-of-memory.test.ts",
      title: "one that is killed otherwise is not",
    },
  },
  {
    name: "commands that a bash session left running lock it out",
    changes: [
      {
        file: "src/sessions/types/interpreter-process.ts",
        from: "if (this.#held.length > MAX_HELD_CHANNELS) this.#dropNewest();",
        to: 'if (this.#held.length > MAX_HELD_CHANNELS) throw new BerthError("TOO_MANY_OPERATIONS", "");',
      },
    ],
    test: {
      file: "test/integration/sessions/bash.test.ts",
      title: "however many jobs are left running, the next call runs, and can end them",
    },
  },
  {
    name: "a temporary session finds the place of the one before still taken",
    changes: [
      {
        file: "src/sandboxes/capacity.ts",
        from: "if (this.#waiters.length >= this.#leaving) throw",
        to: "if (this.#leaving >= 0) throw",
      },
    ],
    test: {
      file: "test/integration/sandboxes/capacity.test.ts",
      title: "successive temporary sessions reuse the place of the one before",
    },
  },
  {
    name: "an interrupted task of python stays in the event loop",
    changes: [
      {
        file: "src/sessions/types/python/driver.ts",
        from: "        while not (task.done() or _loop.is_closed()):\n",
        to: "        while False:\n",
      },
    ],
    test: {
      file: PYTHON,
      title: "what fails, ends or hangs while it is awaited is reported as without await",
    },
  },
  {
    name: "an interrupted task of python that catches its cancellation goes on in the next call",
    changes: [
      {
        file: "src/sessions/types/python/driver.ts",
        from: "            except BaseException: pass\n        try: task.result()",
        to: "            except BaseException: break\n        try: task.result()",
      },
    ],
    test: {
      file: PYTHON,
      title: "what fails, ends or hangs while it is awaited is reported as without await",
    },
  },
  {
    name: "of python code that awaits, only the part that awaits runs in the event loop",
    changes: [
      {
        file: "src/sessions/types/python/driver.ts",
        from: "value = _awaited(codes)",
        to: "value = [_awaited([part]) if _awaits(part) else _evaluated(part) for part in codes][-1]",
      },
    ],
    test: {
      file: PYTHON,
      title: "all of the code runs in the event loop if a part of it awaits",
    },
  },
  {
    name: "a glob that ends in a slash finds nothing",
    changes: [
      {
        file: "src/sessions/types/files/search.ts",
        from: ' || relative.endsWith("/") ?',
        to: " ?",
      },
    ],
    test: {
      file: "test/integration/sessions/files.test.ts",
      title:
        "a pattern that starts with ./ or the directory means the same, and one that leaves it is refused",
    },
  },
  {
    name: "each tiny chunk of a desktop's answer takes memory until all of it is there",
    changes: [
      {
        file: "src/sessions/types/vm/frames.ts",
        from: "    chunk.copy(this.#room, this.#size);",
        to: "    Object.assign(this, { [size]: chunk });\n    chunk.copy(this.#room, this.#size);",
      },
    ],
    test: {
      file: "test/unit/sessions/vm-frames.test.ts",
      title: "in tiny chunks take no more memory than their bytes",
    },
  },
  {
    name: "whatever a program that stands in for a desktop's driver answers is taken",
    changes: [
      {
        file: "src/sessions/types/vm/desktop.ts",
        from: 'return operation === "clipboard" ? CLIPBOARD_ANSWER_BYTES : 0;',
        to: "return 64 << 20;",
      },
    ],
    test: {
      file: "test/integration/sessions/vm-failures.test.ts",
      title: "an answer to %s that is larger than one can be is not taken",
      row: "clipboard",
    },
  },
  {
    name: "a picture of a desktop may be larger than its screen",
    changes: [
      {
        file: "src/sessions/types/vm/desktop.ts",
        from: "return this.#size.width * this.#size.height * PIXEL_BYTES;",
        to: "return 64 << 20;",
      },
    ],
    test: {
      file: "test/integration/sessions/vm-failures.test.ts",
      title: "an answer to %s that is larger than one can be is not taken",
      row: "screenshot",
    },
  },
  {
    name: "an unfinished answer of a desktop takes twice its size",
    changes: [
      {
        file: "src/sessions/types/vm/frames.ts",
        from: "withRoom(this.#room, this.#size, size, limit)",
        to: "withRoom(this.#room, this.#size, size)",
      },
    ],
    test: {
      file: "test/unit/sessions/vm-frames.test.ts",
      title: "that are large take no more memory than they have",
    },
  },
  {
    name: "Python's output takes descriptors of files that code keeps open",
    changes: [
      {
        file: "src/sessions/types/python/driver.ts",
        from: "for _fd in range(213, 213 + 2 * TARGETS): dup2(_null, _fd, False)",
        to: "",
      },
    ],
    test: { file: PYTHON, title: "hundreds of open files keep their descriptors in later calls" },
  },
  {
    name: "a figure that cannot be drawn stays open",
    changes: [
      {
        file: "src/sessions/types/python/driver.ts",
        from: "    finally: pyplot.close('all')\n",
        to: "    except ZeroDivisionError: pass\n    pyplot.close('all')\n",
      },
    ],
    test: { file: PYTHON, title: "open figures are returned as PNG, and closed" },
  },
  {
    name: "the first download of any page is taken for the one that was asked for",
    changes: [
      {
        file: "src/sessions/types/browser/download.ts",
        from: "isWanted(event.frameId) && ",
        to: "",
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/download.test.ts",
      title: "the page in another tab does not replace what is downloaded from a URL by its own",
    },
  },
  {
    name: "a text of a page that is not ASCII is too large for an answer",
    changes: [
      {
        file: "src/sessions/types/browser/page-scripts.ts",
        from: "bytes < 4_000_000",
        to: "bytes < 40_000_000",
      },
    ],
    test: {
      file: "test/integration/sessions/browser.test.ts",
      title: "content and text are truncated if long, with more of them attached",
    },
  },
  {
    name: "a page's prompt is answered with a part of its default",
    changes: [
      {
        file: "src/sessions/types/browser/dialogs.ts",
        from: "defaultPrompt: z.string().optional()",
        to: "defaultPrompt: shortText.optional()",
      },
    ],
    test: {
      file: "test/integration/sessions/browser.test.ts",
      title: "dialogs are answered at once, and the result reports them",
    },
  },
  {
    name: "unfinished reports of interpreters take memory without a limit",
    changes: [
      {
        file: "src/sessions/types/interpreter-process.ts",
        from: "hold(this.#sandbox.owner, this.#drop, bytes)",
        to: "hold(this.#sandbox.owner, this.#drop, Math.min(bytes, 1))",
      },
    ],
    test: {
      file: "test/unit/sessions/types/interpreter-process.test.ts",
      title: "interpreters whose reports are unfinished share memory, and beyond it one is lost",
    },
  },
  {
    name: "an interpreter that rests keeps its last report in memory",
    changes: [
      {
        file: "src/sessions/types/interpreter-process.ts",
        from: "this.#onEnd = ignore;\n        execution.flush",
        to: "this.#onEnd = () => {};\n        execution.flush",
      },
    ],
    test: {
      file: "test/unit/sessions/types/interpreter-process.test.ts",
      title: "an interpreter that rests keeps nothing of its report in memory",
    },
  },
  {
    name: "Python's forged report has texts of any length",
    changes: [
      {
        file: "src/sessions/types/python/type.ts",
        from: "z.string().max(2 * (MAX_TEXT + CUT.length))",
        to: "z.string()",
      },
    ],
    test: {
      file: "test/unit/sessions/types/python/language.test.ts",
      title: "a forged answer must have the form of one, and is not parsed if it contains millions of values",
    },
  },
  {
    name: "unfinished answers of desktops take memory without a limit",
    changes: [
      {
        file: "src/sessions/types/vm/desktop.ts",
        from: "memory.hold(this.#owner, drop, bytes)",
        to: "memory.hold(this.#owner, drop, Math.min(bytes, 1))",
      },
    ],
    test: {
      file: "test/unit/sessions/vm-desktop.test.ts",
      title:
        "a desktop that keeps back the end of an answer is ended when there is no room for other answers",
    },
  },
  {
    name: "a backend of the warm pool that fails to adapt fails the session",
    changes: [
      {
        file: "src/sessions/create.ts",
        from: "if (await type.adopt?.(prestarted, host, config, signal).catch(() => false)) return prestarted;",
        to: "if (await type.adopt?.(prestarted, host, config, signal)) return prestarted;",
      },
    ],
    test: {
      file: "test/unit/sessions/adopt.test.ts",
      title: "a backend of the warm pool that %s is replaced",
      row: "takes too long to adapt",
    },
  },
  {
    name: "what an adopted desktop keeps back counts for the warm pool",
    changes: [
      {
        file: "src/sessions/types/vm/desktop.ts",
        from: "    this.#owner = sandbox.owner;\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/sessions/vm-desktop.test.ts",
      title: "what an adopted desktop keeps back counts for its session's owner",
    },
  },
  {
    name: "a browser's dropped message stays in memory",
    changes: [
      {
        file: "src/sessions/types/browser/message-stream.ts",
        from: "    if (this.#bytes > HEAD_BYTES) this.#cut(NOTHING);\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/devtools.test.ts",
      title: "an unfinished message that is dropped fails its request, and takes no memory",
    },
  },
  {
    name: "a browser's unfinished message takes as much memory as the largest answer",
    changes: [
      {
        file: "src/sessions/types/browser/devtools.ts",
        from: "(this.#wantLarge > 0 ? MAX_MESSAGE_BYTES : MAX_PARSED_BYTES)",
        to: "MAX_MESSAGE_BYTES",
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/devtools.test.ts",
      title: "a message without an end takes little memory, unless a large answer is wanted",
    },
  },
  {
    name: "a desktop keeps the picture of each screenshot until it ends",
    changes: [
      {
        file: "src/sessions/types/vm/desktop.ts",
        from: "    this.#send({ id, op: operation, ...params });",
        to: "    void Promise.race([settled, this.#program.ended]).catch(() => {});\n    this.#send({ id, op: operation, ...params });",
      },
    ],
    test: {
      file: "test/unit/sessions/vm-desktop.test.ts",
      title: "a desktop keeps nothing of the answers that it gave, and its end fails requests",
    },
  },
  {
    name: "a session keeps each execution that left a process running",
    changes: [
      {
        file: "src/sessions/types/interpreter-process.ts",
        from: "this.#emptying = Promise.race([execution.end, this.#ended()])",
        to: "this.#emptying = Promise.race([execution.end, this.#job.end])",
      },
    ],
    test: {
      file: "test/unit/sessions/types/interpreter-process.test.ts",
      title: "executions that leave processes running keep nothing of themselves",
    },
  },
  {
    name: "each sign of life of a silent stream takes memory until it ends",
    changes: [
      {
        file: "src/rpc/stream.ts",
        from: "    let timer: NodeJS.Timeout | undefined;\n",
        to: "    let timer: NodeJS.Timeout | undefined;\n    this.promise.then(() => ms);\n",
      },
    ],
    test: {
      file: "test/unit/server/keepalive.test.ts",
      title: "the silence of a stream takes no memory, however long it lasts",
    },
  },
  {
    name: "a desktop whose driver ends at once is said not to have answered in time",
    changes: [
      { file: "src/sessions/types/vm/desktop.ts", from: "    if (isLate) {", to: "    if (!isLate) {" },
    ],
    test: {
      file: "test/integration/sessions/vm-failures.test.ts",
      title: "a driver %s does not start, and says why",
      row: "that ends",
    },
  },
  {
    name: "a desktop does not notice that a program changes the keyboard's layout, and types other characters",
    changes: [
      {
        file: "src/sessions/types/vm/driver/x11.py",
        from: "        functions.XkbKeycodeToKeysym(self.handle, 8, 0, 0)\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/sessions/vm-programs.test.ts",
      title: "xterm: text arrives as it was typed after a program has changed the keyboard's layout",
    },
  },
  {
    name: "a layout that changes while text is typed ends the desktop",
    changes: [
      {
        file: "src/sessions/types/vm/driver/keyboard.py",
        from: "                    if self.find(keysym) is None:",
        to: "                    if False:",
      },
    ],
    test: {
      file: "test/integration/sessions/vm-programs.test.ts",
      title: "xterm: text arrives as it was typed after a program has changed the keyboard's layout",
    },
  },
  {
    name: "a window manager that has ended too often is never started again",
    changes: [
      {
        file: "src/sessions/types/vm/driver/processes.py",
        from: " and time.monotonic() < self._restarted + WM_PAUSE_SECONDS",
        to: "",
      },
    ],
    test: {
      file: "test/unit/sessions/types/vm/processes.test.ts",
      title: "a window manager that has ended too often is started again after a pause, and after each end",
    },
  },
  {
    name: "a key that is pressed means what it means in the second of two layouts",
    changes: [
      {
        file: "src/sessions/types/vm/driver/keyboard.py",
        from: "before = display.pointer()[2] >> x11.GROUP_SHIFT & 3",
        to: "before = 0",
      },
    ],
    test: {
      file: "test/integration/sessions/vm-programs.test.ts",
      title: "xterm: keys are those that were named, whichever of two layouts is active",
    },
  },
  {
    name: "the keys that change the layout do not change the second one",
    changes: [
      {
        file: "src/sessions/types/vm/driver/keyboard.py",
        from: "before + moved)",
        to: "before)",
      },
    ],
    test: {
      file: "test/integration/sessions/vm-programs.test.ts",
      title: "xterm: keys are those that were named, whichever of two layouts is active",
    },
  },
  {
    name: "a window manager that ends while its sandbox has no process left ends the desktop",
    changes: [
      {
        file: "src/sessions/types/vm/driver/processes.py",
        from: "        except OSError:\n            pass\n",
        to: "        except AttributeError:\n            pass\n",
      },
    ],
    test: {
      file: "test/integration/sessions/vm-failures.test.ts",
      title: "a desktop that cannot start a process again goes on without it, and starts it later",
    },
  },
  {
    name: "a window manager that could not start again is not started later",
    changes: [
      {
        file: "src/sessions/types/vm/driver/main.py",
        from: "        self.processes.restart_window_manager()\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/sessions/vm-failures.test.ts",
      title: "a desktop that cannot start a process again goes on without it, and starts it later",
    },
  },
  {
    name: "screenshots fail while the reader of the tree cannot start again",
    changes: [
      {
        file: "src/sessions/types/vm/driver/tree.py",
        from: "            for fd in fds:\n                os.close(fd)\n            return\n",
        to: "            raise\n",
      },
    ],
    test: {
      file: "test/integration/sessions/vm-failures.test.ts",
      title: "a desktop that cannot start a process again goes on without it, and starts it later",
    },
  },
  {
    name: "a large command that the shell cannot store is dropped without a word",
    changes: [
      {
        file: "src/sessions/types/bash/type.ts",
        from: "${IN} </dev/null >${channel.stdout} 2>${channel.stderr} ${OUT}>&- ${ERR}>&- ${IN}<<'${delimiter}'\\n`",
        to: "${IN} ${IN}<<'${delimiter}' </dev/null >${channel.stdout} 2>${channel.stderr} ${OUT}>&- ${ERR}>&-\\n`",
      },
    ],
    test: {
      file: "test/integration/sessions/bash-hostile.test.ts",
      title: "a command that the shell has no disk space for is not run, and stderr says why",
    },
  },
  {
    name: "a variable of a session has as many characters as Linux allows bytes",
    changes: [
      {
        file: "src/sessions/types/common.ts",
        from: "return Buffer.byteLength(name) + Buffer.byteLength(value) + 2;",
        to: "return name.length + value.length + 2;",
      },
    ],
    test: {
      file: "test/integration/sessions/bad-input.test.ts",
      title: "env: %s is refused",
      row: "a variable that is long in bytes alone",
    },
  },
  {
    name: "the variables of a session may be larger together than Linux allows",
    changes: [
      {
        file: "src/sessions/types/common.ts",
        from: "sum + bytesOf(variable), 0) <= MAX_ENV_BYTES",
        to: "sum + bytesOf(variable), 0) <= MAX_ENV_BYTES * 100",
      },
    ],
    test: {
      file: "test/integration/sessions/bad-input.test.ts",
      title: "env: %s is refused",
      row: "too much together",
    },
  },
  {
    name: "a call with bad params lets its session expire",
    changes: [
      {
        file: "src/sessions/tool-runner.ts",
        from: "      await this.#sessions.refresh(owner, workerId, [type.name], signal);\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/sessions/lifetime.test.ts",
      title: "starts again with a call that has bad params",
    },
  },
  {
    name: "the screen of a desktop has 96 dots per inch, whatever was asked for",
    changes: [
      {
        file: "src/sessions/types/vm/driver/screen.py",
        from: "round(side * 25.4 / self._dpi)",
        to: "round(side * 25.4 / 96)",
      },
    ],
    test: {
      file: "test/integration/sessions/vm.test.ts",
      title: "programs see the session's dots per inch",
    },
  },
  {
    name: "text that needs Shift releases a Shift that key_down holds",
    changes: [
      {
        file: "src/sessions/types/vm/driver/keyboard.py",
        from: "shifted = shifted and self.shift not in self.held",
        to: "shifted = bool(shifted)",
      },
    ],
    test: {
      file: "test/integration/sessions/vm-failures.test.ts",
      title: "keys that key_down holds stay held while text is typed, whatever it needs",
    },
  },
  {
    name: "typed text releases the same key that key_down holds",
    changes: [
      {
        file: "src/sessions/types/vm/driver/keyboard.py",
        from: "(False, True) if code in self.held else (True, False)",
        to: "(True, False)",
      },
    ],
    test: {
      file: "test/integration/sessions/vm-failures.test.ts",
      title: "keys that key_down holds stay held while text is typed, whatever it needs",
    },
  },
  {
    name: "typed text takes the spare key that key_down holds",
    changes: [
      {
        file: "src/sessions/types/vm/driver/keyboard.py",
        from: "kept = self.held.union(needed.values())",
        to: "kept = set(needed.values())",
      },
    ],
    test: {
      file: "test/integration/sessions/vm-failures.test.ts",
      title: "keys that key_down holds stay held while text is typed, whatever it needs",
    },
  },
  {
    name: "a desktop's driver ends when a program gives it the clipboard",
    changes: [
      {
        file: "src/sessions/types/vm/driver/clipboard.py",
        from: '(self._text or b"")',
        to: "self._text",
      },
    ],
    test: {
      file: "test/integration/sessions/vm-failures.test.ts",
      title: "a clipboard that a program takes, and gives to the driver again, is empty",
    },
  },
  {
    name: "a glob looks at a long name in one go",
    changes: [
      {
        file: "src/sessions/types/files/glob.ts",
        from: "if (known === undefined) await pace.next();",
        to: "",
      },
    ],
    test: {
      file: "test/unit/sessions/types/files/glob.test.ts",
      title: "lets others use the event loop while it looks at one long name",
    },
  },
  {
    name: "a set of a glob costs as much as a letter",
    changes: [
      {
        file: "src/sessions/types/files/glob.ts",
        from: "this.#take(set.takes, true, set.cost)",
        to: "this.#take(set.takes, true)",
      },
    ],
    test: {
      file: "test/unit/sessions/types/files/glob.test.ts",
      title: "is refused if it takes too much work for the number of files: %s",
      row: "sets",
    },
  },
  {
    name: "a glob may hold a thousand long sets",
    changes: [
      {
        file: "src/sessions/types/files/glob.ts",
        from: "const MAX_EXPANDED = 20_000;",
        to: "const MAX_EXPANDED = 1_000_000;",
      },
    ],
    test: {
      file: "test/unit/sessions/types/files/glob.test.ts",
      title: "is refused if its sets are long together, before they are read",
    },
  },
  {
    name: "browser:evaluate looks for a function's code in quadratic time",
    changes: [
      {
        file: "src/sessions/types/browser/evaluate.ts",
        from: "  const [at] = await findAll(all, part, 0, signal);",
        to: "  const at = script.includes(code) ? all.indexOf(part) : undefined;",
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/evaluate.test.ts",
      title: "a script that nearly holds a function's code often takes little time",
    },
  },
  {
    name: "a tool's output that waits for its reader counts without its memory",
    changes: [
      {
        file: "src/rpc/session-service.ts",
        from: "          own.buffer.byteLength,",
        to: "          own.length,",
      },
    ],
    test: {
      file: "test/unit/rpc/tool-stream.test.ts",
      title: "output that waits for its reader counts with the memory that it keeps",
    },
  },
  {
    name: "each short part of an interpreter's payload keeps what was read with it",
    changes: [
      {
        file: "src/sessions/types/execution.ts",
        from: "    part.copy(this.#payload, from, 0, bytes - from);",
        to: "    part.copy(this.#payload, from, 0, bytes - from);\n    Object.assign(this, { [from]: part });",
      },
    ],
    test: {
      file: "test/unit/sessions/types/execution.test.ts",
      title: "a payload in short parts does not keep what was read with them in memory",
    },
  },
  {
    name: "a long id of the browser is kept",
    changes: [{ file: "src/sessions/types/browser/tab.ts", from: "z.string().max(200)", to: "z.string()" }],
    test: {
      file: "test/unit/sessions/types/browser/tabs.test.ts",
      title: "a browser whose ids are long is refused",
    },
  },
  {
    name: "a list that a sandbox answers with is checked to its end, whatever is wrong with it",
    changes: [
      {
        file: "src/sessions/types/common.ts",
        from: "return z.custom<z.input<S>[]>((given) => list.validate(given));",
        to: "return list as unknown as z.ZodType<z.input<S>[]>;",
      },
    ],
    test: {
      file: "test/unit/sessions/types/list-of.test.ts",
      title: "a list is checked up to its first wrong item, however many follow",
    },
  },
  {
    name: "a forged interpreter's answer with lists of another form holds up the service",
    changes: [
      {
        file: "src/sessions/types/python/type.ts",
        from: "pids: listOf(z.number())",
        to: "pids: z.array(z.number())",
      },
    ],
    test: {
      file: "test/unit/sessions/types/python/language.test.ts",
      title: "a forged answer whose lists have another form takes hardly longer than a real one",
    },
  },
  {
    name: "a forged list of an element's boxes is checked to its end",
    changes: [
      {
        file: "src/sessions/types/browser/elements.ts",
        from: ".length(8, { abort: true })",
        to: ".length(8)",
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/frames.test.ts",
      title: "a forged list of an element's boxes takes no longer than a real one with as many values",
    },
  },
  {
    name: "only those of a page's frames count that have the form of one",
    changes: [
      {
        file: "src/sessions/types/browser/tab.ts",
        from: "if (looked++ >= MAX_FRAMES) return;",
        to: "if (found.length >= MAX_FRAMES) return;",
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/frames.test.ts",
      title: "frames of another form are left out, and count towards the limit",
    },
  },
  {
    name: "a long name in a tree is compared again and again",
    changes: [
      {
        file: "src/sessions/types/browser/tree.ts",
        from: "child === undefined || seen.has(childId)",
        to: "child === undefined",
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/tree.test.ts",
      title: "a long name is compared once, however often its node is listed",
    },
  },
  {
    name: "a tree is written at once, however many elements a page has",
    changes: [
      {
        file: "src/sessions/types/browser/tree.ts",
        from: "await this.#pace.next();",
        to: "",
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/tree.test.ts",
      title: "elements without a line neither hold up the service nor displace references",
    },
  },
  {
    name: "elements without a line in a tree get references",
    changes: [
      {
        file: "src/sessions/types/browser/tree.ts",
        from: 'if (axRole === "StaticText")\n',
        to: 'reference();\n    if (axRole === "StaticText")\n',
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/tree.test.ts",
      title: "elements without a line neither hold up the service nor displace references",
    },
  },
  {
    name: "the elements of a page are looked at at once",
    changes: [
      {
        file: "src/sessions/types/browser/tree.ts",
        from: "    await pace.next();\n    const { success",
        to: "    const { success",
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/tree.test.ts",
      title: "the elements of a page are looked at in parts, however many there are",
    },
  },
  {
    name: "references that a tree shows give way to new ones",
    changes: [
      {
        file: "src/sessions/types/browser/elements.ts",
        from: "      this.#refs.delete(key);\n      this.#refs.set(key, known);\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/tree.test.ts",
      title: "references that a tree shows stay, and later ones take no longer",
    },
  },
  {
    name: "old references are forgotten one at a time",
    changes: [
      {
        file: "src/sessions/types/browser/elements.ts",
        from: "this.#refs.size > 2 * KEPT_REFS",
        to: "this.#refs.size > KEPT_REFS",
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/tree.test.ts",
      title: "references that a tree shows stay, and later ones take no longer",
    },
  },
  {
    name: "all frames of a page are read, however large they are",
    changes: [
      { file: "src/sessions/types/browser/tree.ts", from: "if (room.bytes >= 0) await", to: "await" },
    ],
    test: {
      file: "test/unit/sessions/types/browser/tree.test.ts",
      title: "of a page with huge frames, some are left out",
    },
  },
  {
    name: "a list of the browser has room of its own",
    changes: [
      { file: "src/sessions/types/browser/devtools.ts", from: "    room.bytes -= list.length;\n", to: "" },
    ],
    test: {
      file: "test/unit/sessions/types/browser/devtools.test.ts",
      title: "a list is refused if it and earlier ones have no room together",
    },
  },
  {
    name: "a command that is being stopped waits for the reader of its output",
    changes: [
      {
        file: "src/sessions/types/collected-output.ts",
        from: "    return untilAborted(caughtUp, this.#stop).catch(() => {});",
        to: "    return caughtUp;",
      },
    ],
    test: {
      file: "test/integration/sessions/bash.test.ts",
      title: "a timeout interrupts the command, and the shell stays, also if nobody reads the output",
    },
  },
  {
    name: "a command that is being stopped fills the queue of its reader",
    changes: [
      {
        file: "src/sessions/types/collected-output.ts",
        from: "    if (this.#isBehind && this.#stop.aborted) return undefined;\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/sessions/types/collected-output.test.ts",
      title: "while a program is being stopped, what its reader has no room for is kept but not passed on",
    },
  },
  {
    name: "glob and grep leave out what comes after 8 MiB",
    changes: [
      {
        file: "src/sessions/types/files/search.ts",
        from: "      else yield Buffer.from(event.data",
        to: "      else if (event.offset < 8 * 2 ** 20) yield Buffer.from(event.data",
      },
    ],
    test: {
      file: "test/integration/sessions/files.test.ts",
      title: "glob and grep find what there is next to megabytes of other names and lines",
    },
  },
  {
    name: "a session that ends during a call keeps its timer",
    changes: [{ file: "src/sessions/record.ts", from: ' && this.state !== "DESTROYING";', to: ";" }],
    test: {
      file: "test/unit/sessions/lifetime.test.ts",
      title: "ends with the session, also if a call ends later",
    },
  },
  {
    name: "a tool's default cuts the timeout of a request",
    changes: [
      {
        file: "src/sessions/tool-runner.ts",
        from: "minOf(request.timeoutMs, tool.timeoutMs?.(params)) ?? tool.defaultTimeoutMs?.(params);",
        to: "minOf(request.timeoutMs, tool.timeoutMs?.(params), tool.defaultTimeoutMs?.(params));",
      },
    ],
    test: {
      file: "test/unit/sessions/calls.test.ts",
      title: "stop at their timeout, which is %s",
      row: "the request's, over the tool's default",
    },
  },
  {
    name: "a batch gathers results of any size",
    changes: [
      {
        file: "src/sessions/tool-runner.ts",
        from: "bytes <= roomBytes && take(bytes)",
        to: "bytes > 0",
      },
    ],
    test: {
      file: "test/unit/sessions/calls.test.ts",
      title: "has room for 32 MiB of results (in parallel: %s)",
      row: "true",
    },
  },
  {
    name: "a long line that is read up to the middle of a character is not text",
    changes: [
      {
        file: "src/sessions/types/files/read-lines.ts",
        from: "bytes > MAX_BYTES || (more && bytes === MAX_BYTES);",
        to: "bytes > MAX_BYTES;",
      },
    ],
    test: {
      file: "test/unit/sessions/types/files/read-lines.test.ts",
      title: "a long line is cut between characters, in chunks of %s bytes",
      row: "65536",
    },
  },
  {
    name: "an interpreter that does not answer at its start cancels the call",
    changes: [
      {
        file: "src/sessions/types/interpreter-process.ts",
        from: "late.aborted && !signal.aborted ? startsTooLate(program) : error",
        to: "error",
      },
    ],
    test: {
      file: "test/unit/sessions/types/interpreter-process.test.ts",
      title: "an interpreter that does not answer is a failed start, not a canceled call",
    },
  },
  {
    name: "berth session reset prints what a sandbox says as it is",
    changes: [
      {
        file: "src/cli/commands/session.ts",
        from: "          await write(io.stderr, `berth: ${resourceType}: ${visible(failure.message)}\\n`);\n          return",
        to: "          await write(io.stderr, `berth: ${resourceType}: ${failure.message}\\n`);\n          return",
      },
    ],
    test: {
      file: "test/integration/cli/sessions.test.ts",
      title: "what a session's program says when it does not start cannot control the terminal",
    },
  },
  {
    name: "small parts of a tool's output keep all that was read with them, and stop the tool soon",
    changes: [
      {
        file: "src/rpc/session-service.ts",
        from: "data.length < data.buffer.byteLength / MOST_KEPT ?",
        to: "data.length < 0 ?",
      },
    ],
    test: {
      file: "test/unit/rpc/tool-stream.test.ts",
      title: "small parts of what was read keep none of the rest, and do not count with it",
    },
  },
  {
    name: "a sandbox has sessions without end",
    changes: [
      {
        file: "src/sessions/places.ts",
        from: "    if (place !== undefined) this.#assertRoom(place.sandbox, record);\n",
        to: "",
      },
    ],
    test: {
      file: PLACES,
      title:
        "a sandbox has a limited number of sessions, also if they are created at once; another fits when one has ended",
    },
  },
  {
    name: "a session counts once it is ready",
    changes: [
      {
        file: "src/sessions/manager.ts",
        from: "    this.#creator.reserve(record);\n    if (!init.temporary)",
        to: "    this.#creator.reserve(record);\n    this.#places.release(record);\n    if (!init.temporary)",
      },
      {
        file: "src/sessions/create.ts",
        from: '    record.state = "ACTIVE";\n',
        to: '    record.state = "ACTIVE";\n    this.#parts.places.reserve(record);\n',
      },
    ],
    test: {
      file: PLACES,
      title:
        "a tenant has as many sessions as its quota allows, and no sandbox is created for one that it refuses",
    },
  },
  {
    name: "a session that has ended keeps its place",
    changes: [{ file: "src/sessions/end.ts", from: "    places.release(record);\n", to: "" }],
    test: { file: PLACES, title: "a session that %s gives its place back", row: "fails to start" },
  },
  {
    name: "a session gives its place back while it is cleaned up",
    changes: [
      {
        file: "src/sessions/end.ts",
        from: '    record.state = "DESTROYING";\n',
        to: '    record.state = "DESTROYING";\n    this.#parts.places.release(record);\n',
      },
    ],
    test: { file: PLACES, title: "a session keeps its place until it has been cleaned up" },
  },
  {
    name: "sessions of an earlier run of the service do not count",
    changes: [
      {
        file: "src/sessions/manager.ts",
        from: "      if (record.lost === undefined) {\n        this.#places.recover(record);\n",
        to: "      if (record.lost === undefined) {\n",
      },
    ],
    test: {
      file: PLACES,
      title: "sessions of an earlier run of the service count, and those that are ended then do not",
    },
  },
  {
    name: "the sessions of a sandbox are large together",
    changes: [{ file: "src/sessions/places.ts", from: "if (size > MAX_BYTES)", to: "if (false)" }],
    test: {
      file: PLACES,
      title: "the sessions of a sandbox have a limited size together, which ends with each",
    },
  },
  {
    name: "a large session whose sandbox has ended counts like a small one",
    changes: [
      { file: "src/sessions/registry.ts", from: "1 + Math.floor(record.bytes / BYTES_OF_ONE)", to: "1" },
    ],
    test: {
      file: PLACES,
      title:
        "of large sessions whose sandboxes have ended fewer are kept, also those of an earlier run of the service",
    },
  },
  {
    name: "the name of a variable with a secret is as long as a value",
    changes: [
      {
        file: "src/rpc/validate/fields.ts",
        from: "const MAX_SECRET_VARIABLE_BYTES = 256;",
        to: "const MAX_SECRET_VARIABLE_BYTES = 128 * 1024;",
      },
    ],
    test: {
      file: "test/unit/rpc/validate/environment.test.ts",
      title: "a variable that holds a secret has a name of at most 256 bytes",
    },
  },
  {
    name: "a tenant's sessions are not held to its quota",
    changes: [
      {
        file: "src/sandboxes/tenant-quotas.ts",
        from: "    this.#assertRoom(owner, { sessions: 1 });\n",
        to: "",
      },
    ],
    test: {
      file: PLACES,
      title:
        "a tenant has as many sessions as its quota allows, and no sandbox is created for one that it refuses",
    },
  },
  {
    name: "sessions count towards a quota after their sandbox has ended",
    changes: [{ file: "src/app.ts", from: "      sessions.sandboxEnds(sandbox);\n", to: "" }],
    test: {
      file: "test/integration/tenants/quotas.test.ts",
      title: "a tenant's sessions are held to its quota, in all its sandboxes together",
    },
  },
  {
    name: "sessions whose sandboxes have ended are kept without end",
    changes: [
      { file: "src/sessions/registry.ts", from: "const MAX_LOST = 10_000;", to: "const MAX_LOST = 1e9;" },
    ],
    test: {
      file: PLACES,
      title: "of the sessions whose sandboxes have ended, the oldest of the owner with the most give way",
    },
  },
  {
    name: "a session whose end was cut short stays when another has taken its place",
    changes: [
      {
        file: "src/sessions/manager.ts",
        from: "      if (older !== undefined) this.#ender.endLater(older);\n",
        to: "",
      },
    ],
    test: {
      file: PLACES,
      title: "of two stored sessions of a worker and type, the older is ended when the service starts",
    },
  },
  {
    name: "the label of a session's sandbox ends in half a character",
    changes: [
      {
        file: "src/sessions/create.ts",
        from: "shorten(sessionId, MAX_LABEL_BYTES)",
        to: "sessionId.slice(0, MAX_LABEL_BYTES)",
      },
    ],
    test: {
      file: "test/unit/sessions/manager.test.ts",
      title: "labels a sandbox with what fits of its session's id: %s",
      row: "an emoji at the end",
    },
  },
  {
    name: "a session that is reinitialized moves into a later sandbox than its creator named",
    changes: [
      {
        file: MANAGER,
        from: "        sandbox: init?.sandbox,\n",
        to: "        sandbox: init?.sandbox && { sandboxId: init.sandbox.sandboxId },\n",
      },
    ],
    test: {
      file: "test/unit/sessions/manager.test.ts",
      title: "of a session whose creator %s, in a later sandbox of the same name",
      row: "named a generation is refused",
    },
  },
  {
    name: "a session that is reinitialized after a restart forgets the generation that its creator named",
    changes: [
      {
        file: "src/sessions/recover.ts",
        from: "(stored.sandbox ?? { sandboxId: stored.sandboxId })",
        to: "{ sandboxId: stored.sandboxId }",
      },
    ],
    test: {
      file: "test/unit/sessions/manager.test.ts",
      title: "of a session whose creator %s, in a later sandbox of the same name",
      row: "named a generation is refused",
    },
  },
  {
    name: "a session whose sandbox has ended keeps its backend",
    changes: [
      {
        file: MANAGER,
        from: "    this.#ender.track(this.#locks.run(name, () => this.#ender.dropBackend(record)));\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/sessions/lifetime.test.ts",
      title: "ends the backends of its idle sessions at once: only their next calls are waited for",
    },
  },
  {
    name: "what globs remember takes memory without a limit together",
    changes: [
      {
        file: "src/sessions/types/files/glob.ts",
        from: "    this.#hold(this.#forget, this.#cachedBytes);\n",
        to: "    this.#hold(this.#forget, 1);\n",
      },
    ],
    test: {
      file: "test/unit/sessions/types/files/glob.test.ts",
      title: "holds the states that names lead to, which others can drop, until it is disposed of",
    },
  },
  {
    name: "references of browsers take memory without a limit together",
    changes: [
      {
        file: "src/sessions/types/browser/elements.ts",
        from: "    this.#hold(this.clear, this.#bytes);\n",
        to: "    this.#hold(this.clear, 1);\n",
      },
    ],
    test: {
      file: "test/unit/sessions/types/browser/tree.test.ts",
      title: "references share memory, beyond which those of the owner with most are forgotten, oldest first",
    },
  },
  {
    name: "a DestroySessions that is repeated after a crash ends a later session",
    changes: [
      {
        file: MANAGER,
        from: "const sessionId = ended.get(resourceType) ?? record?.sessionId;",
        to: "const sessionId = record?.sessionId;",
      },
    ],
    test: {
      file: "test/unit/sessions/manager.test.ts",
      title: "repeated after a crash ends what it was to end, but no later session",
    },
  },
  {
    name: "a ReinitializeSession that is repeated after a crash replaces a later session",
    changes: [
      {
        file: MANAGER,
        from: "if (oldSessionId !== endedId) return",
        to: "if (endedId === undefined) return",
      },
    ],
    test: {
      file: "test/unit/sessions/manager.test.ts",
      title: "repeated after a crash continues, or reports its new session, and replaces no later one",
    },
  },
  {
    name: "calls whose callers left stay in the queue of their session",
    changes: [{ file: "src/sessions/record.ts", from: "        leaveQueue();\n", to: "" }],
    test: {
      file: "test/unit/sessions/calls.test.ts",
      title: "whose callers left the queue take no memory until their turn would have come",
    },
  },
  {
    name: "calls wait until a session has ended, although their callers have left",
    changes: [
      { file: MANAGER, from: "this.#locks.run(name, action, signal)", to: "this.#locks.run(name, action)" },
    ],
    test: {
      file: "test/unit/sessions/manager.test.ts",
      title: "waits for a running call, but a call that arrives meanwhile ends with its caller",
    },
  },
  {
    name: "any number of calls wait until a session has ended",
    changes: [
      {
        file: MANAGER,
        from: "    if (this.#locks.usersOf(name) > MAX_CALLS) throw tooManyWait(key);\n",
        to: "",
      },
    ],
    test: { file: "test/unit/sessions/manager.test.ts", title: "makes a limited number of calls wait" },
  },
  {
    name: "files:read keeps all that it skips",
    changes: [
      {
        file: "src/sessions/types/files/read-lines.ts",
        from: "if (part.length > 0) kept.push(Buffer.from(part));",
        to: "kept.push(part);",
      },
    ],
    test: {
      file: "test/unit/sessions/types/files/read-lines.test.ts",
      title: "what is skipped before the first line is not kept",
    },
  },
];
