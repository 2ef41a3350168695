import type { Defect } from "./defect.ts";

const HTTP2 = "clients/typescript/src/http2-connection.ts";
const CLIENT = "test/integration/clients/typescript.test.ts";
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
];
