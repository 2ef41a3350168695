import type { Defect } from "./defect.ts";

const BAD_INPUT = "test/unit/server/bad-input.test.ts";
const MEMORY = "test/unit/base/memory.test.ts";
const STREAMS =
  "streaming through an idle process takes little memory, and few collections of the whole heap";
const UNKNOWN_FIELDS = "test/unit/server/unknown-fields.test.ts";

/** Of the wire, and of what hostile input does behind it. */
export const WIRE_DEFECTS: readonly Defect[] = [
  {
    name: "a service that stops cuts off an answer over HTTP/1 that its client has not read yet",
    changes: [
      {
        file: "src/server/listener.ts",
        from: "if (answers.size === 0) socket.destroy();",
        to: "if (socket) this.#http1.closeIdleConnections();",
      },
    ],
    test: {
      file: "test/integration/server/stop.test.ts",
      title: "an answer over HTTP/1 that its client has not read yet arrives to its end",
    },
  },
  {
    name: "a service that stops keeps connections over HTTP/1, so that further calls on them fail",
    changes: [
      {
        file: "src/server/listener.ts",
        from: "for (const answer of answers) closeAfter(answer);",
        to: "",
      },
    ],
    test: {
      file: "test/integration/server/stop.test.ts",
      title: "no new connection, and no new call on an old one, while calls finish",
    },
  },
  {
    name: "a command may have more arguments than fit into a message",
    changes: [
      {
        file: "src/rpc/convert/process.ts",
        from: "const MAX_ARGUMENTS = 50_000;",
        to: "const MAX_ARGUMENTS = 65_536;",
      },
    ],
    test: {
      file: "test/unit/rpc/convert/process-limits.test.ts",
      title: "as many arguments and variables as a command may have fit into a message",
    },
  },
  {
    name: "a watch of sandboxes says nothing for 15 s if nothing happens, so a client does not know that it has reconnected",
    changes: [
      {
        file: "src/rpc/sandbox-service.ts",
        from: "withKeepalive(items, this.#parts.keepaliveMs, 0)",
        to: "withKeepalive(items, this.#parts.keepaliveMs)",
      },
    ],
    test: {
      file: "test/unit/rpc/watch-keepalive.test.ts",
      title: "a watch of %s without events starts with a keepalive",
      row: "sandboxes",
    },
  },
  {
    name: "a watch of runs says nothing for 15 s if nothing happens, so a client does not know that it has reconnected",
    changes: [
      {
        file: "src/rpc/run-service.ts",
        from: "withKeepalive(items, this.#parts.keepaliveMs, 0)",
        to: "withKeepalive(items, this.#parts.keepaliveMs)",
      },
    ],
    test: {
      file: "test/unit/rpc/watch-keepalive.test.ts",
      title: "a watch of %s without events starts with a keepalive",
      row: "runs",
    },
  },
  {
    name: "a connection serves no call once canceled ones have left much unsent",
    changes: [
      {
        file: "src/server/listener.ts",
        from: "const MAX_SESSION_MEMORY = 1_000_000;",
        to: "const MAX_SESSION_MEMORY = 256;",
      },
    ],
    test: {
      file: "test/integration/server/streams.test.ts",
      title: "a connection serves calls, however much the canceled ones had left to send",
    },
  },
  {
    name: "a ping that Node refuses counts as answered",
    changes: [
      {
        file: "src/server/listener.ts",
        from: "isAsked = error === null;",
        to: "isAsked = error !== undefined;",
      },
    ],
    test: {
      file: "test/integration/server/listener.test.ts",
      title: "a client that answers no ping is dropped, however many uploads it has ended and reset",
    },
  },
  {
    name: "a field of JSON that nobody knows is ignored",
    changes: [
      {
        file: "src/server/message-check.ts",
        from: "unknownField(desc, parse(message), ignoreUnknown)",
        to: "unknownField(desc, parse(message), !ignoreUnknown)",
      },
    ],
    test: { file: UNKNOWN_FIELDS, title: "is refused with its name" },
  },
  {
    name: "JSON with a byte order mark is not checked",
    changes: [
      {
        file: "src/server/message-check.ts",
        from: "text.startsWith(BYTE_ORDER_MARK) ? text.slice(BYTE_ORDER_MARK.length) : text",
        to: "text",
      },
    ],
    test: {
      file: UNKNOWN_FIELDS,
      title: "a byte order mark before the JSON does not hide what is unknown",
    },
  },
  {
    name: "whoever has unknown fields of JSON ignored has other values taken for what they do not mean",
    changes: [
      {
        file: "src/server/message-check.ts",
        from: "unknownField(desc, parse(message), ignoreUnknown)",
        to: "ignoreUnknown ? undefined : unknownField(desc, parse(message))",
      },
    ],
    test: {
      file: UNKNOWN_FIELDS,
      title: "a client that has unknown fields ignored gets errors for what the parser would misread",
    },
  },
  {
    name: "a name of JSON that an enum does not have is taken for its default",
    changes: [
      {
        file: "src/server/message-check.ts",
        from: 'if (field.enum === undefined || typeof value !== "string" || ignoreUnknown)',
        to: 'if (field.enum !== undefined || typeof value !== "string" || ignoreUnknown)',
      },
    ],
    test: {
      file: UNKNOWN_FIELDS,
      title: "enum names in lists are checked; numbers and null are left to the parser",
    },
  },
  {
    name: "a field mask in JSON with names that no parser takes has an error that does not say so",
    changes: [{ file: "src/server/message-check.ts", from: "form: /^[^_]*$/,", to: "form: /^/," }],
    test: {
      file: UNKNOWN_FIELDS,
      title: "what is not a field mask is refused with an example of one",
    },
  },
  {
    name: "words in JSON are decoded as if they were base64",
    changes: [
      {
        file: "src/server/message-check.ts",
        from: "[ScalarType.BYTES, inBytes],",
        to: "",
      },
    ],
    test: { file: UNKNOWN_FIELDS, title: "plain words are not bytes, and the error says how to send them" },
  },
  {
    name: "an octal mode in JSON is read as decimal",
    changes: [
      {
        file: "src/server/message-check.ts",
        from: "[ScalarType.UINT32, inMode],",
        to: "",
      },
    ],
    test: { file: UNKNOWN_FIELDS, title: "an octal mode is refused instead of being read as decimal" },
  },
  {
    name: "bytes of JSON that are not UTF-8 are replaced",
    changes: [
      {
        file: "src/server/message-check.ts",
        from: 'if (!isUtf8(message)) throw new BerthError("INVALID_ARGUMENT", NOT_UTF8);',
        to: "void isUtf8;",
      },
    ],
    test: {
      file: UNKNOWN_FIELDS,
      title: "%s refuses JSON that is not UTF-8, and never replaces a byte",
      row: "/berth.v1.SandboxService/GetSandbox",
    },
  },
  {
    name: "8 MiB of a file do not fit into JSON",
    changes: [
      {
        file: "src/rpc/file-service.ts",
        from: "MAX_BASE64_BYTES + MARGIN_BYTES",
        to: "MAX_DATA_BYTES + MARGIN_BYTES",
      },
    ],
    test: {
      file: "test/integration/rpc/file-service.test.ts",
      title: "8 MiB fit into one message of JSON as well, and one byte more does not",
    },
  },
  {
    name: "a deadline of more than 24 days is refused",
    changes: [
      {
        file: "src/server/call.ts",
        from: "if (timeoutMs !== undefined) return",
        to: "if (timeoutMs !== undefined && timeoutMs <= MAX_TIMEOUT_MS) return",
      },
    ],
    test: {
      file: "test/unit/server/grpc.test.ts",
      title: "accepts any deadline of gRPC, also one that is too long for a timer",
    },
  },
  {
    name: "an unknown encoding is refused without those that are known",
    changes: [
      {
        file: "src/server/library-handler.ts",
        from: "if (!isReadable(format)) head.header?.set(format.acceptHeader, ACCEPTED_ENCODING);",
        to: "",
      },
    ],
    test: { file: BAD_INPUT, title: "an unknown encoding is UNIMPLEMENTED, with the known ones" },
  },
  {
    name: "a parameter of gRPC's content type ends in 415",
    changes: [
      {
        file: "src/server/http-message.ts",
        from: 'return (type.split(";", 1)[0] ?? "").trimEnd().toLowerCase();',
        to: "return type;",
      },
    ],
    test: {
      file: BAD_INPUT,
      title: "parameters and case of gRPC's content type have no meaning: %s",
      row: "application/grpc;charset=utf-8",
    },
  },
  {
    name: "trailers are bounded by characters",
    changes: [
      {
        file: "src/server/error-conversion.ts",
        from: "return bytes <= mostBytes && text.length <= MAX_TEXT ? start : start.slice(0, fits) + CUT;",
        to: "return text.length <= MAX_TEXT && fits >= 0 ? start : start + CUT;",
      },
    ],
    test: {
      file: BAD_INPUT,
      title: "trailers stay below the 8 KiB that gRPC's clients take: %s",
      row: "CJK",
    },
  },
  {
    name: "an error of the library is sent at any length",
    changes: [
      {
        file: "src/server/error-conversion.ts",
        from: "this.wireForm(error) : clipLibraryError(error);",
        to: "this.wireForm(error) : error;",
      },
    ],
    test: {
      file: "test/unit/server/health.test.ts",
      title: "an unknown name of any length is NOT_FOUND, and quoted only in part",
    },
  },
  {
    name: "reflection repeats a question of any length",
    changes: [
      {
        file: "src/server/reflection.ts",
        from: "if (question.length > MAX_QUESTION_BYTES) {",
        to: "if (question.length < 0) {",
      },
    ],
    test: {
      file: "test/unit/server/reflection.test.ts",
      title: "a question of any length is answered without repeating it",
    },
  },
  {
    name: "a message may hold any number of values",
    changes: [
      {
        file: "src/server/message-check.ts",
        from: "if (bytes.length > SMALL_BYTES) new",
        to: "if (bytes.length < 0) new",
      },
    ],
    test: { file: "test/integration/rpc/hostile-input.test.ts", title: "in gRPC and in JSON, of any method" },
  },
  {
    name: "an unknown name of megabytes is compared with each known one",
    changes: [
      {
        file: "src/base/nearest.ts",
        from: "    if (Math.abs(plain.length - candidate.length) >= distanceToBest) continue;\n",
        to: "",
      },
    ],
    test: { file: "test/unit/base/nearest.test.ts", title: "a word of megabytes takes no time to compare" },
  },
  {
    name: "an upload that is refused keeps what it held of the memory for requests",
    changes: [
      {
        file: "src/server/request-bytes.ts",
        from: '    call.signal.addEventListener("abort", this.#onAbort, { once: true });\n',
        to: "",
      },
    ],
    test: {
      file: "test/integration/server/protocols.test.ts",
      title: "an upload that is refused halfway leaves none of its bytes in memory",
    },
  },
  {
    name: "a glob is matched by an engine that goes back",
    changes: [
      {
        file: "src/sessions/types/files/search.ts",
        from: "await glob.matches(relativeTo(directory, path), pace)",
        to: "posix.matchesGlob(relativeTo(directory, path), pattern)",
      },
    ],
    test: {
      file: "test/integration/rpc/hostile-input.test.ts",
      title: "work that %s requests does not block the event loop",
      row: "berth.v1.SessionService/ExecuteTool",
    },
  },
  {
    name: "V8 marks the whole heap again and again while bytes stream through an idle service",
    changes: [
      { file: "src/base/memory.ts", from: '  setFlagsFromString("--heap-growing-percent=100");\n', to: "" },
    ],
    test: { file: MEMORY, title: STREAMS },
  },
  {
    name: "what streamed through lies about until V8 collects it",
    changes: [{ file: "src/base/memory.ts", from: "  streamedBytes = 0;\n", to: "  return;\n" }],
    test: { file: MEMORY, title: STREAMS },
  },
  {
    name: "who waits for the rest of a request when its reader leaves waits for ever",
    changes: [
      {
        file: "src/server/request-bytes.ts",
        from: "      this.#account?.close();\n    }\n    this.#wake();\n",
        to: "      this.#account?.close();\n    }\n",
      },
    ],
    test: {
      file: "test/unit/server/request-bytes.test.ts",
      title: "a reader that leaves while it waits has reached the end",
    },
  },
  {
    name: "a request that is closed halfway has no end for its reader",
    changes: [
      {
        file: "src/server/request-bytes.ts",
        from: "    if (!this.#hasEnded) this.#onError(",
        to: "    if (this.#hasEnded) this.#onError(",
      },
    ],
    test: {
      file: "test/unit/server/request-bytes.test.ts",
      title: "a body that is %s halfway has no end",
      row: "closed",
    },
  },
  {
    name: "an upload of the announced size waits for a reset all the same",
    changes: [
      {
        file: "src/rpc/stream.ts",
        from: "if (left === 0) iterator.trustEnd",
        to: "if (left < 0) iterator.trustEnd",
      },
    ],
    test: {
      file: "test/integration/rpc/file-service.test.ts",
      title: "an upload of the announced size is whole at its end, however late its client answers a ping",
    },
  },
  {
    name: "every end of an upload over HTTP/2 is believed at once",
    changes: [
      { file: "src/server/request-bytes.ts", from: "!this.#trustsEnd && ", to: "this.#trustsEnd && " },
    ],
    test: {
      file: "test/unit/server/request-bytes.test.ts",
      title:
        "over HTTP/2 an end is believed once the client answers a ping, or at once if all that was announced is here",
    },
  },
  {
    name: "a source of uploads is not closed when one of its items is refused",
    changes: [
      {
        file: "src/files/until.ts",
        from: "        end();\n        throw error;",
        to: "        throw error;",
      },
    ],
    test: {
      file: "test/unit/files/until.test.ts",
      title: "it notifies a source whose item is refused",
    },
  },
  {
    name: "a request over TLS ends its connection where it comes in several records while an answer waits",
    changes: [
      {
        file: "src/server/listener.ts",
        from: '    if (version === "http1" && socket instanceof tls.TLSSocket) socket.on("data", () => {});\n',
        to: "",
      },
    ],
    test: {
      file: "test/integration/server/listener.test.ts",
      title:
        "a request in several records, while the previous answer still waits to be read, is served after it",
    },
  },
  {
    name: "a request whose reading fails keeps what it held of the memory for requests",
    changes: [
      {
        file: "src/server/request-bytes.ts",
        from: "      this.#close();\n      throw error;",
        to: "      throw error;",
      },
    ],
    test: {
      file: "test/unit/server/request-bytes.test.ts",
      title: "a stream holds at most its largest message, and no more than the budget allows",
    },
  },
  {
    name: "the name of a compression has to be in lower case",
    changes: [
      {
        file: "src/server/library-handler.ts",
        from: "header.set(name, encoding.toLowerCase())",
        to: "header.set(name, encoding)",
      },
    ],
    test: { file: "test/unit/server/connect-headers.test.ts", title: "in a GET as well" },
  },
  {
    name: "bytes of a GET that are not UTF-8 are replaced",
    changes: [
      {
        file: "src/server/library-handler.ts",
        from: ': queryBytes(request, "message"),',
        to: ': Buffer.from(query.get("message") ?? ""),',
      },
    ],
    test: {
      file: "test/integration/server/get.test.ts",
      title: "keeps every byte of a message that is not base64, and refuses JSON that is not UTF-8",
    },
  },
  {
    name: "the message of a GET is empty behind a thousand other names",
    changes: [{ file: "src/server/http-message.ts", from: "    maxKeys: 0,\n", to: "" }],
    test: {
      file: "test/integration/server/get.test.ts",
      title: "keeps every byte of a message that is not base64, and refuses JSON that is not UTF-8",
    },
  },
  {
    name: "gRPC-Web as text is refused without a word, and logged as a call that succeeded",
    changes: [
      {
        file: "src/server/request-handler.ts",
        from: "handler.supportedContentType(type) && !isText",
        to: "handler.supportedContentType(type)",
      },
    ],
    test: {
      file: BAD_INPUT,
      title: "gRPC-Web as text is refused with what to send, and is no call that succeeded: %s",
      row: "application/grpc-web-text",
    },
  },
  {
    name: "a page of an allowed origin may not name a tenant",
    changes: [
      {
        file: "src/server/origin-guard.ts",
        from: '"Authorization", TENANT_HEADER, IGNORE',
        to: '"Authorization", IGNORE',
      },
    ],
    test: {
      file: "test/unit/server/origin-guard.test.ts",
      title: "may call and read only if it is configured",
    },
  },
  {
    name: "another version of the Connect protocol is taken for this one",
    changes: [
      { file: "src/server/admission.ts", from: "if (call.versionError) throw call.versionError;", to: "" },
    ],
    test: { file: "test/unit/server/connect-headers.test.ts", title: "a GET" },
  },
  {
    name: "events without content wait for their reader in any number",
    changes: [
      {
        file: "src/rpc/stream.ts",
        from: "    this.#bytes += bytes + EVENT_BYTES;\n",
        to: "    this.#bytes += bytes;\n",
      },
    ],
    test: {
      file: "test/unit/rpc/event-queue.test.ts",
      title: "events without content count, too: a flood of them waits for its reader",
    },
  },
  {
    name: "clients that read slowly delay a stop of the service past its limit",
    changes: [{ file: "src/app.ts", from: ", flushMs: leftMs(STOP.messages) - callsMs }", to: " }" }],
    test: {
      file: "test/integration/service/shutdown.test.ts",
      title: "a client that reads slowly gets only its share of the time",
    },
  },
  {
    name: "clients that read slowly delay a stop of the port past its limit",
    changes: [
      { file: "src/server/server.ts", from: "await within(flush(), flushMs);", to: "await flush();" },
    ],
    test: {
      file: "test/integration/server/stop.test.ts",
      title: "a client that reads slowly delays it only up to its limit",
    },
  },
  {
    name: "a refusal closes a connection that is not kept while its request arrives",
    changes: [
      {
        file: "src/server/http-message.ts",
        from: "else if (!response.shouldKeepAlive) await dropRest(request, LINGER_MS);",
        to: "",
      },
    ],
    test: {
      file: "test/unit/server/bad-input.test.ts",
      title: "a client that does not keep its connection reads the refusal after all of its request: %s",
      row: "an unknown method",
    },
  },
  {
    name: "the refusal of an upload closes a connection that is not kept while its request arrives",
    changes: [{ file: "src/server/connect-response.ts", from: '"stream" in this.response && ', to: "" }],
    test: {
      file: "test/unit/server/bad-input.test.ts",
      title: "a client that does not keep its connection reads the refusal after all of its request: %s",
      row: "an upload that is too large",
    },
  },
  {
    name: "a message no longer counts once it has been received",
    changes: [
      {
        file: "src/server/direct-handler.ts",
        from: "    const message = await wire.read(request, call.account);\n",
        to: "    const message = await wire.read(request, call.account);\n    call.account.close();\n",
      },
    ],
    test: {
      file: "test/integration/server/protocols.test.ts",
      title: "a %s message counts until its call is over",
      row: "plain",
      suite: "Connect over HTTP/2",
    },
  },
  {
    name: "what arrives of a request and is not read counts nowhere",
    changes: [{ file: "src/server/server.ts", from: "      calls.countUnread(receiving);\n", to: "" }],
    test: {
      file: "test/integration/server/streams.test.ts",
      title: "%s ends when what arrived of it has no room in memory",
      row: "an upload that its handler does not read",
    },
  },
  {
    name: "what is not read of a request counts a second time once it is read",
    changes: [
      {
        file: "src/server/call.ts",
        from: "    for (const account of counted) account.close();\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/server/receive-budget.test.ts",
      title: "what nobody has read of a request does not count twice once somebody reads it",
    },
  },
  {
    name: "each small frame of a request that is not read takes memory of its own, or that of all that came with it",
    changes: [{ file: "src/server/listener.ts", from: "      joinSmallPieces(stream);\n", to: "" }],
    test: {
      file: "test/integration/server/streams.test.ts",
      title: "what is not read of a request takes little more memory than its bytes: %s",
      row: "in frames of one byte",
    },
  },
  {
    name: "pieces of a request that are not read count by their bytes alone",
    changes: [
      {
        file: "src/server/http-message.ts",
        from: "const PIECE_BYTES = 256;",
        to: "const PIECE_BYTES = 0;",
      },
    ],
    test: {
      file: "test/integration/server/streams.test.ts",
      title: "pieces of a request that are not read count by the memory that they take",
    },
  },
  {
    name: "a deadline that passes for a pipelined call closes the connection, and with it the other calls",
    changes: [
      {
        file: "src/server/http-message.ts",
        from: "if (response.socket === null) {",
        to: "if (response.socket === undefined) {",
      },
    ],
    test: {
      file: "test/integration/server/listener.test.ts",
      title: "keeps its other calls if the deadline of one passes that waits to be answered",
    },
  },
  {
    name: "a message that the library serves no longer counts once it has been received",
    changes: [
      {
        file: "src/server/request-bytes.ts",
        from: "if (streamsRequests || signal.aborted || this.#failure !== undefined)",
        to: "if (true)",
      },
    ],
    test: {
      file: "test/integration/server/protocols.test.ts",
      title: "a %s message counts until its call is over",
      row: "plain",
      suite: "gRPC-Web over HTTP/2",
    },
  },
  {
    name: "a compressed message counts by its compressed size",
    changes: [
      {
        file: "src/server/request-bytes.ts",
        from: "if (!streamsRequests && !signal.aborted) this.#charge(bytes);",
        to: "this.#charge(0 * bytes);",
      },
    ],
    test: {
      file: "test/integration/server/protocols.test.ts",
      title: "a %s message counts until its call is over",
      row: "compressed",
    },
  },
  {
    name: "one owner's requests take all the memory for requests",
    changes: [
      {
        file: "src/base/memory-budget.ts",
        from: "!this.#bytes.hasRoomFor(owner, counted)",
        to: "this.#bytes.free < counted",
      },
    ],
    test: {
      file: "test/unit/server/receive-budget.test.ts",
      title: "one owner's requests leave room for those of others, and for its own small ones",
    },
  },
  {
    name: "an owner whose calls take too much memory cannot end them",
    changes: [
      {
        file: "src/server/limits.ts",
        from: "const UNCOUNTED_BYTES = 4 * KIB;",
        to: "const UNCOUNTED_BYTES = 0;",
      },
    ],
    test: {
      file: "test/unit/server/receive-budget.test.ts",
      title: "one owner's requests leave room for those of others, and for its own small ones",
    },
  },
  {
    name: "the message of a request whose caller has left counts nowhere",
    changes: [
      {
        file: "src/state/request-log.ts",
        from: "hold(() => work(abort.signal, { subject, begin })),",
        to: "work(abort.signal, { subject, begin }),",
      },
    ],
    test: {
      file: "test/unit/state/request-log.test.ts",
      title: "the message of a request counts until its work ends, also if its caller has left",
    },
  },
  {
    name: "an alert on calls that fail by a fault of the service misses the first one",
    changes: [
      {
        file: "src/server/metrics.ts",
        from: "        for (const method of methods()) this.inc({ method, code: statusName(Code.Internal) }, 0);\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/server/http-endpoints.test.ts",
      title: "counts and times calls by method and code",
    },
  },
  {
    name: "the message of a request with an id counts twice while its call waits",
    changes: [
      {
        file: "src/server/limits.ts",
        from: "        holders++;\n",
        to: "        holders++;\n        share.take(this.heldBytes);\n",
      },
    ],
    test: {
      file: "test/unit/server/receive-budget.test.ts",
      title:
        "the message of a request with an id counts once, while its call waits and when only its work has it",
    },
  },
];
