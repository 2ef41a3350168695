import type { Defect } from "./defect.ts";

const HTTP2 = "clients/typescript/src/http2-connection.ts";
const AGENTS = "test/integration/clients/agents.test.ts";
const CLIENT = "test/integration/clients/typescript.test.ts";
const UNIT = "test/unit/clients/typescript.test.ts";
const FAULTS = "test/integration/clients/typescript-faults.test.ts";

/** What the TypeScript client did to programs. */
export const CLIENT_DEFECTS: readonly Defect[] = [
  {
    name: "a call fails because others send much",
    changes: [
      { file: HTTP2, from: "{ maxSessionMemory: MAX_SESSION_MEMORY, ...options }", to: "{ ...options }" },
    ],
    test: { file: CLIENT, title: "calls with much to send do not hinder each other" },
  },
  {
    name: "an answer that is not HTTP/2 ends the program",
    changes: [{ file: HTTP2, from: '      session.on("error", () => {});\n', to: "" }],
    test: { file: FAULTS, title: "what speaks no HTTP/2 is reported as such, and ends no program" },
  },
  {
    name: "a broken connection looks as if the caller had canceled",
    changes: [
      {
        file: "clients/typescript/src/errors.ts",
        from: "if (isBrokenOff(error)) {",
        to: "if (isBrokenOff(error) && isForeign(error.cause)) {",
      },
    ],
    test: { file: FAULTS, title: "a call whose connection breaks is UNAVAILABLE" },
  },
  {
    name: "every call is a listener of the caller's signal",
    changes: [
      {
        file: "clients/typescript/src/connection.ts",
        from: "this.options(signal && AbortSignal.any([signal]), timeoutMs)",
        to: "this.options(signal, timeoutMs)",
      },
    ],
    test: { file: CLIENT, title: "one signal serves many calls at once" },
  },
  {
    name: "a renewed certificate is never read",
    changes: [
      {
        file: "clients/typescript/src/client-certificate.ts",
        from: "if ([cert, key].every",
        to: "if (false && [cert, key].every",
      },
    ],
    test: { file: FAULTS, title: "reads the files of a certificate again for a new connection" },
  },
  {
    name: "what follows a long stdin is written before its end",
    changes: [
      {
        file: "clients/typescript/src/process.ts",
        from: "Promise<void> {\n    this.#writeRest();\n",
        to: "Promise<void> {\n",
      },
      {
        file: "clients/typescript/src/process.ts",
        from: "      this.#writeRest();\n",
        to: "      setTimeout(() => this.#writeRest(), 100);\n",
      },
    ],
    test: { file: CLIENT, title: "a command gets stdin that is longer than a message may be" },
  },
  {
    name: "with a callback, 0 as the most output keeps nothing",
    changes: [
      {
        file: "clients/typescript/src/process.ts",
        from: "const most = maxOutputBytes || DEFAULT_OUTPUT_BYTES;",
        to: "const most = maxOutputBytes;",
      },
    ],
    test: { file: CLIENT, title: "0 as the most output to keep is the default, on every path" },
  },
  {
    name: "a started command that nobody reads goes on after its signal is aborted",
    changes: [
      {
        file: "clients/typescript/src/process.ts",
        from: "          void this.#killOwned();\n          stop.abort();",
        to: "          stop.abort();",
      },
    ],
    test: { file: CLIENT, title: "a signal ends a started command at once, even if nobody reads it" },
  },
  {
    name: "a command whose start was aborted runs on until the service gives its reader up",
    changes: [
      {
        file: "clients/typescript/src/process.ts",
        from: "this.#abandon();\n        else {",
        to: "stop.abort();\n        else {",
      },
    ],
    test: {
      file: CLIENT,
      title: "a signal ends a command of which the client does not know yet that it has started",
    },
  },
  {
    name: "what a create undoes that ran out of time has as little time",
    changes: [
      {
        file: "clients/typescript/src/connection.ts",
        from: "this.again(call, undefined, undefined, NO_LIMIT)",
        to: "this.again(call)",
      },
    ],
    test: {
      file: "test/integration/clients/typescript.test.ts",
      title: "what a call's time is too short to create is not left behind",
    },
  },
  {
    name: "what is created while the TypeScript client is closed stays",
    changes: [
      {
        file: "clients/typescript/src/connection.ts",
        from: "    this.adopt(end);\n    try {\n      return await creating;",
        to: "    try {\n      return await creating;",
      },
    ],
    test: { file: CLIENT, title: "a create that still runs when its client is closed leaves nothing" },
  },
  {
    name: "what is created while the Python client is closed stays",
    changes: [
      {
        file: "clients/python/src/berth/_async/transport.py",
        from: "        self.adopt(making)\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "what a thread creates while its Python client is closed stays",
    changes: [
      {
        file: "clients/python/src/berth/_sync/transport.py",
        from: "        self.adopt(making)\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a run whose create was aborted stays",
    changes: [
      {
        file: "clients/typescript/src/connection.ts",
        from: "if (isGivenUp(error, either)) this.#undo(call, remove);",
        to: "if (!isGivenUp(error, either)) this.#undo(call, remove);",
      },
    ],
    test: { file: CLIENT, title: "a run that is given up while it is created leaves nothing" },
  },
  {
    name: "a stream that reads does not wait for its service",
    changes: [
      {
        file: "clients/typescript/src/connection.ts",
        from: "if (hasResponse || !this.mayContinue(error)) throw error;",
        to: "throw error;",
      },
    ],
    test: {
      file: FAULTS,
      title: "waits for a service that cannot be reached when a download, an archive or a comparison starts",
    },
  },
  {
    name: "a source stays open after its upload, while that waits for it",
    changes: [{ file: "clients/typescript/src/connection.ts", from: "      over.abort();\n", to: "" }],
    test: { file: CLIENT, title: "an upload that ends early cancels the source that it waits for" },
  },
  {
    name: "a source stays open after an upload that never read it",
    changes: [
      {
        file: "clients/typescript/src/streams.ts",
        from: "if (unread) await cancel(source);",
        to: "void unread;",
      },
    ],
    test: { file: CLIENT, title: "an upload that never starts cancels its source" },
  },
  {
    name: "a file that cannot be read ends the program before its upload begins",
    changes: [
      {
        file: "clients/typescript/src/streams.ts",
        from: '  source.on?.("error", () => {});\n',
        to: "  void source;\n",
      },
    ],
    test: {
      file: UNIT,
      title: "a file that cannot be read fails its upload, and does not end the program before",
    },
  },
  {
    name: "the step of an aborted agent goes on until the service has answered",
    changes: [
      {
        file: "clients/typescript/src/agent.ts",
        from: "const stop = (): void => over.abort(signal.reason);",
        to: "const stop = (): void => void this.#cancel(signal.reason).catch(() => over.abort(signal.reason));",
      },
    ],
    test: {
      file: FAULTS,
      title: "an aborted agent stops at once, also while the service cannot be reached",
    },
  },
  {
    name: "an agent forgets its run before the service has deleted it",
    changes: [
      {
        file: "clients/typescript/src/agent.ts",
        from: "    const run = this.#run;\n    if (run !== undefined) await",
        to: "    const run = this.#run;\n    this.#run = undefined;\n    if (run !== undefined) await",
      },
    ],
    test: {
      file: FAULTS,
      title: "an agent waits for the service to delete its run, and can be closed again if that failed",
    },
  },
  {
    name: "an agent that is closed goes on with its step",
    changes: [
      {
        file: "clients/typescript/src/agent.ts",
        from: '    this.#stop.abort(new BerthError("The agent was closed.", { code: "CANCELLED" }));\n    await this.#over;\n',
        to: "",
      },
    ],
    test: {
      file: AGENTS,
      title: "ends its step at once when it is canceled or closed, and works on no later run",
      suite: "the agent class of TypeScript",
    },
  },
  {
    name: "an agent that is closed while its run is created starts it",
    changes: [
      {
        file: "clients/typescript/src/agent.ts",
        from: '    this.#stop.abort(new BerthError("The agent was closed.", { code: "CANCELLED" }));\n    await this.#over;\n',
        to: "",
      },
    ],
    test: {
      file: CLIENT,
      title: "an agent that is closed while its run is created does no step and leaves no run",
    },
  },
  {
    name: "an agent in Python that is canceled goes on with its step",
    changes: [
      {
        file: "clients/python/src/berth/agent.py",
        from: '`run` returns."""\n        self._stopped.set()\n        await self._over.wait()\n',
        to: '`run` returns."""\n',
      },
    ],
    test: {
      file: AGENTS,
      title: "ends its step at once when it is canceled or closed, and works on no later run",
      suite: "the agent class of Python",
    },
  },
  {
    name: "an agent in Python that is closed while its run is created starts it",
    changes: [
      {
        file: "clients/python/src/berth/agent.py",
        from: 'Idempotent."""\n        self._stopped.set()\n        await self._over.wait()\n',
        to: 'Idempotent."""\n',
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a command whose start is on its way runs on after its reader has left",
    changes: [
      {
        file: "clients/typescript/src/process.ts",
        from: '    if (this.#owned && this.processId === "") this.#abandon();\n    this.#left',
        to: "    this.#left",
      },
    ],
    test: {
      file: CLIENT,
      title: "a command whose start is on its way when its reader has %s ends",
      row: "left",
    },
  },
  {
    name: "a command whose start is on its way runs on after its reader in Python has left",
    changes: [
      {
        file: "clients/python/src/berth/_async/process.py",
        from: "self._transport.later(lambda: self._abandon(stream))",
        to: "stream.cancel()",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a call that may take a month is out of time at once",
    changes: [
      {
        file: "clients/typescript/src/connection.ts",
        from: "timeoutMs <= LONGEST_TIMER_MS",
        to: "timeoutMs !== NO_LIMIT",
      },
    ],
    test: { file: UNIT, title: "a call may take longer than the longest timer" },
  },
  {
    name: "a command starts again in Python after a wait for its start was canceled",
    changes: [
      {
        file: "clients/python/src/berth/_async/process.py",
        from: "outlives_reads=self._owned or not self._request.request_id",
        to: "outlives_reads=False",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a watch in Python whose start was canceled keeps its sandbox alive",
    changes: [
      {
        file: "clients/python/src/berth/_async/subscription.py",
        from: "never ends it.\n            await self.end()\n",
        to: "never ends it.\n",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a silent call in Python never notices that its service is gone",
    changes: [
      {
        file: "clients/python/src/berth/_endpoint.py",
        from: '        "grpc.http2.max_pings_without_data": 0,\n',
        to: "",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a call in Python notices after a minute that its service is gone",
    changes: [
      {
        file: "clients/python/src/berth/_endpoint.py",
        from: '        "grpc.http2.ping_timeout_ms": _PING_TIMEOUT_MS,\n',
        to: "",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a client in Python keeps commands that could not start, with their stdin",
    changes: [
      {
        file: "clients/python/src/berth/_async/process.py",
        from: "nor keep its stdin.\n                self._transport.release(self)\n",
        to: "nor keep its stdin.\n",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a call in Python that its client's end overtakes is not canceled",
    changes: [
      {
        file: "clients/python/src/berth/_async/transport.py",
        from: "        if self._made is None:\n            raise _closed()\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "asyncio reports what a canceled create in Python could not undo",
    changes: [
      {
        file: "clients/python/src/berth/_async/transport.py",
        from: "            task.exception()",
        to: "            pass",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "the Python client uploads named pipes and devices of a directory",
    changes: [
      {
        file: "clients/python/src/berth/_async/files.py",
        from: "tar.add(entry, entry.name, filter=_without_special)",
        to: "tar.add(entry, entry.name)",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "links in a sandbox's archive make devices and pipes on the machine of a Python client",
    changes: [
      {
        file: "clients/python/src/berth/_async/files.py",
        from: 'with _TarWithoutSpecial.open(fileobj=source, mode="r:")',
        to: 'with tarfile.open(fileobj=source, mode="r:")',
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a message that an OpenManus agent adds counts as an earlier one that has left its memory",
    changes: [
      {
        file: "clients/python/src/berth/openmanus.py",
        from: "{id(message): message for message in agent.memory.messages}",
        to: "{id(message) for message in agent.memory.messages}",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "an OpenManus manager counts sandboxes forever that the service has deleted",
    changes: [
      {
        file: "clients/python/src/berth/openmanus.py",
        from: "            await self._forget_ended()\n",
        to: "            pass\n",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "an OpenManus terminal is replaced by another sandbox after five minutes",
    changes: [
      {
        file: "clients/python/src/berth/openmanus.py",
        from: ", sandbox_id=sandbox.sandbox_id, ttl=_TERMINAL_TTL_S)",
        to: ", sandbox_id=sandbox.sandbox_id)",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "an OpenManus terminal that has ended is replaced by another sandbox",
    changes: [
      {
        file: "clients/python/src/berth/openmanus.py",
        from: 'if session.status != "REFRESHED":',
        to: "if False:",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "what an OpenManus manager is creating during its cleanup stays",
    changes: [
      {
        file: "clients/python/src/berth/openmanus.py",
        from: "            if self._is_shutting_down:\n                await",
        to: "            if False:\n                await",
      },
      {
        file: "clients/python/src/berth/openmanus.py",
        from: "            if self._creates:\n",
        to: "            if False:\n",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a client in TypeScript keeps each piece of a result with all of its message",
    changes: [
      {
        file: "clients/typescript/src/kept.ts",
        from: "  #memory = new Uint8Array(0);\n",
        to: "  #memory = new Uint8Array(0);\n  readonly #pieces: Uint8Array[] = [];\n",
      },
      {
        file: "clients/typescript/src/kept.ts",
        from: "    this.#memory.set(piece, this.length);\n",
        to: "    this.#pieces.push(piece);\n    this.#memory.set(piece, this.length);\n",
      },
    ],
    test: { file: UNIT, title: "take no more memory if they come byte by byte" },
  },
  {
    name: "each detached command leaves a listener at the signal of its program",
    changes: [
      {
        file: "clients/typescript/src/process.ts",
        from: '.finally(() => either.removeEventListener("abort", stop))',
        to: "",
      },
    ],
    test: { file: UNIT, title: "a detached command leaves nothing at the signal of its program" },
  },
  {
    name: "a detached command starts although its stdin could not be written",
    changes: [
      {
        file: "clients/typescript/src/process.ts",
        from: "this.#writing = written.catch((error: unknown) => {",
        to: "written.catch((error: unknown) => {",
      },
    ],
    test: { file: UNIT, title: "a detached command has not started if its stdin cannot be written" },
  },
  {
    name: "output as text loses its byte order mark",
    changes: [
      {
        file: "clients/typescript/src/convert.ts",
        from: 'new TextDecoder("utf-8", { ignoreBOM: true })',
        to: "new TextDecoder()",
      },
    ],
    test: { file: UNIT, title: "output as text has everything that its bytes have" },
  },
  {
    name: "an upload from a browser replaces a link at the end of its path",
    changes: [
      {
        file: "clients/typescript/src/files.ts",
        from: 'if (found?.kind !== "SYMLINK") return',
        to: "if (links === 0) return",
      },
    ],
    test: {
      file: CLIENT,
      title: "an upload writes through a link at the end of its path, on every platform",
    },
  },
  {
    name: "the TypeScript client ignores the tls-ca of a profile if the address has no https://",
    changes: [
      {
        file: "clients/typescript/src/node.ts",
        from: 'if (access.tlsCa !== undefined && endpoint.baseUrl.startsWith("http://")) {',
        to: 'if (access.tlsCa === "" && endpoint.baseUrl.startsWith("http://")) {',
      },
    ],
    test: {
      file: "test/integration/clients/typescript-faults.test.ts",
      title: "presents a certificate to a service that requires one",
    },
  },
  {
    name: "an upload is cut off by the time of one call",
    changes: [
      {
        file: "clients/typescript/src/connection.ts",
        from: "call(messages(), options), signal, NO_LIMIT)",
        to: "call(messages(), options), signal)",
      },
    ],
    test: { file: UNIT, title: "an upload may take longer than one call may" },
  },
  {
    name: "a create whose signal was aborted before is made, to be undone",
    changes: [
      {
        file: "clients/typescript/src/connection.ts",
        from: "    signal?.throwIfAborted();\n    if (this.#closing)",
        to: "    if (this.#closing)",
      },
    ],
    test: { file: UNIT, title: "because its signal was aborted before" },
  },
  {
    name: "a create that begins while its client is being closed stays",
    changes: [
      {
        file: "clients/typescript/src/connection.ts",
        from: "    if (this.#closing) throw clientClosed();\n",
        to: "",
      },
    ],
    test: { file: UNIT, title: "because its client is being closed" },
  },
  {
    name: "a create that begins while its Python client is being closed stays",
    changes: [
      {
        file: "clients/python/src/berth/_async/transport.py",
        from: "        if self._closed:\n            raise _closed()\n        making",
        to: "        making",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a create that a thread begins while its Python client is being closed stays",
    changes: [
      {
        file: "clients/python/src/berth/_sync/transport.py",
        from: "            if self._closed:\n                raise _closed()\n            made = create()",
        to: "            made = create()",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "what a thread creates has no request id until it is made",
    changes: [
      {
        file: "clients/python/src/berth/_sync/sandbox.py",
        from: 'request_id="" if sandbox_id else uuid.uuid4().hex,',
        to: 'request_id="",',
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a download opens the file that it replaces to others",
    changes: [
      {
        file: "clients/python/src/berth/_async/files.py",
        from: "part.chmod(stat.S_IMODE(place.stat().st_mode))",
        to: "pass",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "AgentFlow's Sandbox reads its token file again",
    changes: [
      {
        file: "clients/python/src/berth/agentflow.py",
        from: "transport = Transport(self._endpoint, _RETRY_S)",
        to: "transport = Transport(endpoint(self.server_url, None, None, None), _RETRY_S)",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a Python client that is closed ends one thing after another",
    changes: [
      {
        file: "clients/python/src/berth/_async/transport.py",
        from: "await asyncio.gather(*(resource.end() for resource in self._open))",
        to: "for resource in list(self._open):\n            await resource.end()",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a download goes on after its client was closed",
    changes: [
      {
        file: "clients/python/src/berth/_async/files.py",
        from: "is_broken(error) and not self._transport.closed else",
        to: "is_broken(error) else",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a token file is not found where the program has changed its directory",
    changes: [
      {
        file: "clients/typescript/src/profile.ts",
        from: "const place = path.resolve(file);",
        to: "const place = file;",
      },
    ],
    test: {
      file: UNIT,
      title: "the files of a token and a certificate are found wherever the program works later",
    },
  },
  {
    name: "a certificate's file is not found where the program has changed its directory",
    changes: [
      {
        file: "clients/typescript/src/client-certificate.ts",
        from: "{ ...source, file: path.resolve(source.file) }",
        to: "source",
      },
    ],
    test: {
      file: UNIT,
      title: "the files of a token and a certificate are found wherever the program works later",
    },
  },
  {
    name: "a token file is not found where the Python program has changed its directory",
    changes: [
      {
        file: "clients/python/src/berth/_profile.py",
        from: "place = os.path.abspath(file)",
        to: "place = file",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a signal has no name in the TypeScript client, which then says that it is none",
    changes: [{ file: "clients/typescript/src/signals.ts", from: "  SIGALRM: 14,\n", to: "" }],
    test: { file: "test/unit/clients/signals.test.ts", title: "%s has its name and number" },
  },
  {
    name: "a signal has no name in the Python client, which then says that it is none",
    changes: [{ file: "clients/python/src/berth/_convert.py", from: '    "SIGALRM": 14,\n', to: "" }],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a TypeScript client that is closed cuts off the end of a command",
    changes: [
      {
        file: "clients/typescript/src/process.ts",
        from: "      await this.#killing;\n      return;\n",
        to: "      return;\n",
      },
    ],
    test: { file: CLIENT, title: "a command that is being ended when its client is closed ends" },
  },
  {
    name: "a Python client that is closed cuts off the end of a command",
    changes: [
      {
        file: "clients/python/src/berth/_async/process.py",
        from: "        async with self._end_lock:\n",
        to: "        if True:\n",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "uploads from pipes in Python take all of asyncio's threads",
    changes: [
      {
        file: "clients/python/src/berth/_async/transport.py",
        from: "    threading.Thread(target=work, daemon=True).start()\n",
        to: "    asyncio.get_running_loop().run_in_executor(None, work)\n",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a pipe without a writer halts a program with asyncio that uploads from it",
    changes: [
      {
        file: "clients/python/src/berth/_async/files.py",
        from: 'await in_thread(lambda: LocalPath(source).open("rb", buffering=0))',
        to: 'LocalPath(source).open("rb", buffering=0)',
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "tls=False turns off the TLS of a Python client's https address",
    changes: [
      {
        file: "clients/python/src/berth/_endpoint.py",
        from: 'if tls is False and scheme == "https":\n',
        to: 'if tls is False and scheme == "httpss":\n',
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "the TypeScript client takes the scheme of an address for its host",
    changes: [{ file: "clients/typescript/src/address.ts", from: ' && url?.pathname === "/")', to: ")" }],
    test: { file: UNIT, title: "%s is not an address", row: "grpc://host:7070" },
  },
  {
    name: "a sandbox of the TypeScript client acts on a later one with its id",
    changes: [
      {
        file: "clients/typescript/src/sandbox.ts",
        from: "return { sandboxId, generation: BigInt(generation) };",
        to: "return { sandboxId, generation: BigInt(generation) * 0n };",
      },
    ],
    test: { file: CLIENT, title: "no call reaches a later sandbox with the same id" },
  },
  {
    name: "the deletion of a sandbox fails in the TypeScript client if another one has its id",
    changes: [
      {
        file: "clients/typescript/src/sandbox.ts",
        from: 'if (!BerthError.is(error, "SANDBOX_REPLACED")) throw error;',
        to: "throw error;",
      },
    ],
    test: { file: CLIENT, title: "no call reaches a later sandbox with the same id" },
  },
  {
    name: "a sandbox of the Python client acts on a later one with its id",
    changes: [
      {
        file: "clients/python/src/berth/_async/sandbox.py",
        from: '"generation": self.info.generation}',
        to: '"generation": 0}',
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "the Python client retries on the connection with the old certificate",
    changes: [
      {
        file: "clients/python/src/berth/_async/transport.py",
        from: "            raise _closed()\n        return self._channel()\n",
        to: "            raise _closed()\n        return self._made.channel\n",
      },
    ],
    test: {
      file: "test/integration/clients/python.test.ts",
      title: "passes its tests with the newest grpcio and protobuf that it accepts",
    },
  },
  {
    name: "a Python client without asyncio never connects again, with old versions of gRPC",
    changes: [
      {
        file: "clients/python/src/berth/_sync/transport.py",
        from: "            self.pause(pause)\n",
        to: "            time.sleep(pause)\n",
      },
    ],
    test: {
      file: "test/release/python-package.test.ts",
      title: "passes its tests with the lowest grpcio and protobuf that it takes",
    },
  },
];
