import type { Defect } from "./defect.ts";

const ATTACKS = "test/integration/server/attacks.alone.test.ts";
const STREAMS = "test/integration/server/streams.test.ts";
const UNREAD = "answers in %s that are not read have a limit together";
const SERVED = "%s: other clients are served, memory stays bounded, and everything recovers";

/** Of attacks on the port. */
export const ATTACK_DEFECTS: readonly Defect[] = [
  {
    name: "what was decompressed lies about until V8 collects it",
    changes: [{ file: "src/server/decompressor.ts", from: "    parts.forEach(release);\n", to: "" }],
    test: { file: ATTACKS, title: SERVED, row: "gzip that becomes a thousand times as much, in every codec" },
  },
  {
    name: "a connection may cancel any number of calls",
    changes: [
      {
        file: "src/server/listener.ts",
        from: "streamResetBurst: limits.maxConcurrentStreams",
        to: "streamResetBurst: 1000 * limits.maxConcurrentStreams",
      },
    ],
    test: { file: ATTACKS, title: SERVED, row: "10,000 calls that are canceled as they come" },
  },
  {
    name: "connections are few",
    changes: [{ file: "src/server/limits.ts", from: "maxConnections: 4096", to: "maxConnections: 400" }],
    test: { file: ATTACKS, title: SERVED, row: "1,000 idle connections" },
  },
  {
    name: "small messages that are not read count only by their bytes",
    changes: [{ file: "src/server/direct-response.ts", from: "PIECE_BYTES = 768", to: "PIECE_BYTES = 0" }],
    test: { file: STREAMS, title: "small messages that are not read are few, and keep nothing besides" },
  },
  {
    name: "each small message that is not read keeps what Node put next to it",
    changes: [
      {
        file: "src/server/direct-response.ts",
        from: "isBehind && isShort(each) ? owned(each) : each",
        to: "each",
      },
    ],
    test: { file: STREAMS, title: "small messages that are not read are few, and keep nothing besides" },
  },
  {
    name: "what streams have unsent is bounded for each of them only",
    changes: [
      {
        file: "src/server/direct-response.ts",
        from: "if (!this.#memory.take(uncounted)) return false;",
        to: "this.#memory.take(uncounted);",
      },
    ],
    test: {
      file: STREAMS,
      title: "what many streams have unsent has a limit, and another that is read continues",
    },
  },
  {
    name: "answers that are not read have no limit together",
    changes: [
      {
        file: "src/server/unsent-answers.ts",
        from: "if (bytes <= MIN_UNSENT_BYTES || call",
        to: "if (bytes > 0 || call",
      },
    ],
    test: { file: STREAMS, title: UNREAD, row: "application/grpc" },
  },
  {
    name: "answers in gRPC-Web that are not read have no limit together",
    changes: [
      {
        file: "src/server/library-handler.ts",
        from: "if (isUnary) countUnsent",
        to: "if (!isUnary) countUnsent",
      },
    ],
    test: { file: STREAMS, title: UNREAD, row: "application/grpc-web+proto" },
  },
  {
    name: "a stream through the library breaks because others are not read",
    changes: [{ file: "src/server/library-handler.ts", from: "if (isUnary) countUnsent", to: "countUnsent" }],
    test: { file: STREAMS, title: UNREAD, row: "application/grpc" },
  },
  {
    name: "a client over the library does not hear that its answer was dropped",
    changes: [
      {
        file: "src/server/library-handler.ts",
        from: "if (response.headersSent || isGone) response.destroy();",
        to: "if (response.headersSent || isGone || error) response.destroy();",
      },
    ],
    test: { file: STREAMS, title: UNREAD, row: "application/grpc-web+proto" },
  },
  {
    name: "a call whose answer was dropped through the library is recorded as one with an invalid request",
    changes: [
      {
        file: "src/server/library-handler.ts",
        from: "throw errors.fromHandler(call, error, call.signal);",
        to: "throw error;",
      },
    ],
    test: { file: STREAMS, title: UNREAD, row: "application/grpc-web+proto" },
  },
  {
    name: "a call whose answer was dropped is one that was refused, to its caller and in the audit log",
    changes: [
      {
        file: "src/server/unsent-answers.ts",
        from: '    "ANSWER_DROPPED",\n',
        to: '    "TOO_MANY_OPERATIONS",\n',
      },
    ],
    test: { file: STREAMS, title: UNREAD, row: "application/grpc-web+proto" },
  },
  {
    name: "what a client that has left did not get keeps its memory from others",
    changes: [
      {
        file: "src/server/direct-response.ts",
        from: '    this.response.on("close", share.close);\n',
        to: "",
      },
    ],
    test: {
      file: "test/unit/server/packets.test.ts",
      title: "what a client that has left did not get takes no memory, over %s",
      row: "HTTP/2",
    },
  },
  {
    name: "a slow watcher of a run holds a megabyte of its events",
    changes: [
      {
        file: "src/runs/store.ts",
        from: "MAX_BATCH_BYTES = 64 * 1024",
        to: "MAX_BATCH_BYTES = MAX_DETAIL_BYTES",
      },
    ],
    test: { file: "test/unit/runs/store.test.ts", title: "of long events a few are read at once" },
  },
  {
    name: "a slow reader of a tool's output holds megabytes of it",
    changes: [
      {
        file: "src/rpc/session-service.ts",
        from: "AHEAD_BYTES = 256 * 1024",
        to: "AHEAD_BYTES = 4 * 1024 * 1024",
      },
    ],
    test: {
      file: "test/unit/rpc/tool-stream.test.ts",
      title: "output that waits for its reader counts with the memory that it keeps",
    },
  },
];
