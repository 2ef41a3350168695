import type { Failpoint } from "../../../src/base/failpoints.ts";

/** The places where runs are cut short: run-crash-points.test.ts has a scenario for them. */
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
