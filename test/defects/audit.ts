import type { Defect } from "./defect.ts";

const AUDIT = "test/integration/audit/audit.test.ts";
const FILE = "test/unit/base/rotated-file.test.ts";

/** Of the audit log. */
export const AUDIT_DEFECTS: readonly Defect[] = [
  {
    name: "the audit log names no ids of what was made",
    changes: [
      {
        file: "src/server/audit-log.ts",
        from: "return !changes || (subjects?.add(output, message) ?? true);",
        to: "return changes || (subjects?.add(output, message) ?? true);",
      },
    ],
    test: {
      file: AUDIT,
      title: "a change is recorded with who did it, from where, to what, and how it ended; contents are not",
    },
  },
  {
    name: "the audit log holds everything that callers send",
    changes: [
      {
        file: "src/server/subjects.ts",
        from: "if (/_ids?$/.test(field.name))",
        to: 'if (field.fieldKind === "scalar")',
      },
    ],
    test: {
      file: AUDIT,
      title: "a change is recorded with who did it, from where, to what, and how it ended; contents are not",
    },
  },
  {
    name: "refused reads are not recorded",
    changes: [
      {
        file: "src/server/audit-log.ts",
        from: "if (!refused && !call.changes",
        to: "if (!call.changes",
      },
    ],
    test: {
      file: AUDIT,
      title: "calls refused for their token or scope are recorded; reads are not",
    },
  },
  {
    name: "a page that is refused is not recorded",
    changes: [
      {
        file: "src/server/request-handler.ts",
        from: "    audit?.pageRefused(credentials, answer.status, principal);\n",
        to: "",
      },
    ],
    test: {
      file: AUDIT,
      title: "calls refused for their token or scope are recorded; reads are not",
    },
  },
  {
    name: "a page that is refused is recorded without its reader",
    changes: [
      {
        file: "src/server/audit-log.ts",
        from: "    this.#write({\n      ...whoOf(principal),\n      ...{ peer,",
        to: "    void principal;\n    this.#write({\n      ...{ peer,",
      },
    ],
    test: {
      file: AUDIT,
      title: "calls refused for their token or scope are recorded; reads are not",
    },
  },
  {
    name: "a call for another tenant is recorded without its caller",
    changes: [
      {
        file: "src/server/admission.ts",
        from: "      if (thrown instanceof RefusedCaller) call.principal = thrown.principal;\n",
        to: "",
      },
    ],
    test: {
      file: AUDIT,
      title: "a caller whose token may not act in the tenant that it names is recorded",
    },
  },
  {
    name: "a call with an expired token is recorded without its caller",
    changes: [
      {
        file: "src/tenants/authenticator.ts",
        from: "throw new RefusedCaller(principal, expired());",
        to: "throw expired();",
      },
    ],
    test: {
      file: "test/unit/tenants/authenticator.test.ts",
      title: "who makes a call that is refused is known: its token %s",
      row: "has expired",
    },
  },
  {
    name: "a tool whose stream begins with keepalives is recorded without its session",
    changes: [
      {
        file: "src/server/audit-log.ts",
        from: "if (item.done || tap(item.value)) next",
        to: "if (item.done || tap(item.value) || true) next",
      },
    ],
    test: {
      file: "test/unit/server/audit-log.test.ts",
      title: "a tool whose stream begins with keepalives is recorded with its session",
    },
  },
  {
    name: "the audit log keeps all that cannot be written",
    changes: [
      {
        file: "src/base/rotated-file.ts",
        from: "if (this.#closing.signal.aborted || isFull) {",
        to: "if (this.#closing.signal.aborted && isFull) {",
      },
    ],
    test: {
      file: FILE,
      title: "waiting lines are limited, lost ones are counted, and a line in their place says so",
    },
  },
  {
    name: "the audit log follows a file that was moved away",
    changes: [
      {
        file: "src/base/rotated-file.ts",
        from: "if (there?.ino !== own.ino || there.dev !== own.dev) await this.#reopen();",
        to: "if (there === own) await this.#reopen();",
      },
    ],
    test: { file: FILE, title: "a file that another program moved away is created again" },
  },
  {
    name: "the audit log is written through a link",
    changes: [
      {
        file: "src/base/rotated-file.ts",
        from: "const CAREFULLY = constants.O_NOFOLLOW | constants.O_NONBLOCK;",
        to: "const CAREFULLY = constants.O_NONBLOCK;",
      },
    ],
    test: { file: FILE, title: "%s is refused, with what to do", row: "a link" },
  },
  {
    name: "a batch of tools names no sessions in the audit log",
    changes: [{ file: "src/server/subjects.ts", from: "const MAX_DEPTH = 4;", to: "const MAX_DEPTH = 3;" }],
    test: {
      file: "test/unit/server/subjects.test.ts",
      title: "a batch of tools names the sessions that it used, as one tool does",
    },
  },
  {
    name: "ids in the audit log act on the terminal on which it is read",
    changes: [
      {
        file: "src/server/audit-log.ts",
        from: "this.#sink.append(safeJson(",
        to: "this.#sink.append(JSON.stringify(",
      },
    ],
    test: {
      file: "test/unit/server/audit-log.test.ts",
      title: "an id that a caller chose does not act on the terminal on which the log is read",
    },
  },
  {
    name: "a client that resets its connection after its request is taken for one of a Unix socket",
    changes: [
      {
        file: "src/server/listener.ts",
        from: "|| socket.remoteAddress !== undefined;",
        to: "|| true;",
      },
    ],
    test: {
      file: "test/unit/server/call-log.test.ts",
      title: "a client that resets its connection at once is not taken for one of a Unix socket: %s",
      row: "over HTTP/1.1",
    },
  },
  {
    name: "with an audit log, an upload of the announced size waits for a reset all the same",
    changes: [
      {
        file: "src/server/audit-log.ts",
        from: "        trustEnd: () => iterator.trustEnd?.(),\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/server/audit-log.test.ts",
      title: "an upload of the announced size is whole at its end, as without an audit log",
    },
  },
];
