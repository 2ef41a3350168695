import { forEachConcurrently } from "../base/async.ts";
import { TOOL_CODE } from "./backend.ts";
import {
  NO_OBSERVER,
  newTraceId,
  type ToolReport,
  type ToolRequest,
  type ToolRunner,
} from "./tool-runner.ts";

/** How the calls of a batch are run. */
export interface BatchOptions {
  /** Whether they run at once; those on one session still run one after the other, in their order. */
  readonly parallel: boolean;
  /** Whether no further call is begun once one has failed. */
  readonly stopOnError: boolean;
  /** The trace of calls that name none; undefined: a new one. */
  readonly traceId: string | undefined;
}

/** What became of one call. */
export type BatchResult =
  | { readonly kind: "report"; readonly report: ToolReport }
  /** It was kept from running, or lost its session. */
  | { readonly kind: "failure"; readonly failure: unknown }
  | { readonly kind: "skipped" };

/** Calls of a batch that run at once. */
const AT_ONCE = 16;

/** Runs the calls of a batch; a result for each, in their order. */
export async function runBatch(
  runner: ToolRunner,
  requests: readonly ToolRequest[],
  options: BatchOptions,
  signal: AbortSignal,
): Promise<BatchResult[]> {
  const traceId = options.traceId ?? newTraceId();
  const results = requests.map((): BatchResult => ({ kind: "skipped" }));
  let stopped = false;
  const work = async ([index, request]: [number, ToolRequest]): Promise<void> => {
    if (stopped) return;
    const result = await runOne(runner, { ...request, traceId: request.traceId ?? traceId }, signal);
    results[index] = result;
    stopped ||= options.stopOnError && hasFailed(result);
  };
  await forEachConcurrently([...requests.entries()], work, options.parallel ? AT_ONCE : 1);
  return results;
}

async function runOne(runner: ToolRunner, request: ToolRequest, signal: AbortSignal): Promise<BatchResult> {
  try {
    return { kind: "report", report: await runner.run(request, NO_OBSERVER, signal) };
  } catch (failure) {
    if (signal.aborted) throw failure;
    return { kind: "failure", failure };
  }
}

function hasFailed(result: BatchResult): boolean {
  if (result.kind !== "report") return result.kind === "failure";
  return result.report.code !== TOOL_CODE.success || result.report.programFailed;
}
