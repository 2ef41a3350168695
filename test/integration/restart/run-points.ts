import type { Failpoint } from "../../../src/base/failpoints.ts";

/** The failpoints of runs. run-crash-points.test.ts has a scenario for them. */
export const RUN_POINTS = [
  "run.created",
  "run.starting",
  "run.made",
  "run.started",
  "report.judged",
  "report.kept",
  "run.ended",
  "run.cleaned",
] as const satisfies readonly Failpoint[];
