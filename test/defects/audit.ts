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
        from: "if (changes) subjects?.add(output, message);",
        to: "if (!changes) subjects?.add(output, message);",
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
        from: "if (answer.status === 401 || answer.status === 403) {",
        to: "if (answer.status === 500) {",
      },
    ],
    test: {
      file: AUDIT,
      title: "calls refused for their token or scope are recorded; reads are not",
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
];
