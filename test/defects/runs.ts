import type { Defect } from "./defect.ts";

/** What runs did to callers. */
export const RUN_DEFECTS: readonly Defect[] = [
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
      title: "a sandbox that was there stays, unless it is to be deleted; no two runs share one",
    },
  },
];
