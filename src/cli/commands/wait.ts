import type { Command } from "commander";
import { type ExitStatus, ExitStatusSchema } from "../../../gen/ts/berth/v1/process_pb.js";
import {
  SandboxEventType,
  type Termination,
  TerminationCause,
  TerminationSchema,
} from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { parseDuration } from "../../config/values.ts";
import type { ServiceClient } from "../client.ts";
import { complaint, remarkLine } from "../colour.ts";
import { commandEnd } from "../command-end.ts";
import { examples } from "../examples.ts";
import { EXIT, Failed } from "../exit.ts";
import { explainedFailure } from "../failure.ts";
import { flagValue, isProcessId } from "../flags.ts";
import { formatWord, messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";
import { readTranscript } from "../read-transcript.ts";
import { beforeRetry, type OnRetry, tellRetry } from "../retry.ts";

interface WaitFlags extends ClientFlags {
  readonly timeout?: string;
}

/** How a process or sandbox ended. */
interface End {
  readonly exitCode: number;
  /** The line to print. */
  readonly text: string;
  readonly remark: string | undefined;
  readonly json: unknown;
}

/** `berth wait`: waits until processes or sandboxes have ended. */
export function waitCommand(host: CommandHost): Command {
  return clientCommand("wait")
    .summary("wait until processes or sandboxes have ended")
    .description(
      "Waits until all have ended, and prints how each ended, in the order given: for a process its exit code, as `berth exec` " +
        "would exit; for a sandbox the reason, such as deleted or idle-timeout.\n\n" +
        "The exit code is the first of these that is not 0. A sandbox counts as 0, as 137 if it ran out of memory, and as 125 if " +
        "it was lost or never became ready. The exit code is 124 if the timeout passed, which ends nothing.",
    )
    .option("--timeout <duration>", "how long to wait at most, such as 30s (default: no limit)")
    .argument("<process|sandbox...>", "ids of processes or sandboxes")
    .addHelpText(
      "after",
      examples(
        "berth wait PROCESS",
        "berth wait --timeout 5m PROCESS PROCESS",
        "berth wait $(berth exec -d SANDBOX -- make test)",
      ),
    )
    .action(
      host.action((ids: string[], flags: WaitFlags) => {
        const timeoutMs = flagValue("--timeout", flags.timeout, parseDuration);
        return withClient(host, flags, EXIT.noCommand, (client) =>
          waitFor(host, client, ids, flags, timeoutMs),
        );
      }),
    );
}

async function waitFor(
  { io, interrupts }: CommandHost,
  client: ServiceClient,
  ids: readonly string[],
  { json, timeout }: WaitFlags,
  timeoutMs: number | undefined,
): Promise<number> {
  const late = timeoutMs === undefined ? undefined : AbortSignal.timeout(timeoutMs);
  const signal = late ? AbortSignal.any([interrupts.signal, late]) : interrupts.signal;
  const onRetry = tellRetry(io, client.address, signal);
  const ends = ids.map(async (id): Promise<End | Failed> => {
    try {
      return await (isProcessId(id) ? processEnd : sandboxEnd)(client, id, onRetry, signal);
    } catch (error) {
      interrupts.signal.throwIfAborted();
      if (late?.aborted) {
        return new Failed(`${id} has not ended within ${timeout}`, { exitCode: EXIT.timedOut });
      }
      const failure = await explainedFailure(error, client.address, EXIT.noCommand);
      if (failure instanceof Failed) return failure;
      throw error;
    }
  });
  // All waits start at once. A failure of a later one is reported when it is awaited below.
  for (const end of ends) end.catch(() => {});
  let exitCode: number = EXIT.ok;
  for (const [index, promise] of ends.entries()) {
    const end = await promise;
    exitCode ||= end.exitCode;
    if (end instanceof Failed) {
      if (json) await writeJson(io.stdout, { id: ids[index], error: end.message }, interrupts.signal);
      await write(io.stderr, complaint(io, end.message, end.hint));
      continue;
    }
    if (json) await writeJson(io.stdout, end.json, interrupts.signal);
    else await write(io.stdout, `${end.text}\n`, interrupts.signal);
    if (end.remark !== undefined) await write(io.stderr, remarkLine(end.remark));
  }
  return exitCode;
}

async function processEnd(
  client: ServiceClient,
  processId: string,
  onRetry: OnRetry,
  signal: AbortSignal,
): Promise<End> {
  const { process } = await client.processes.getProcess({ processId }, { signal });
  if (process === undefined) throw new Error("the service answered without a process");
  const status = process.exitStatus ?? (await lastWord());
  const { exitCode, remark } = commandEnd(status);
  const json = { processId, exitStatus: messageJson(ExitStatusSchema, status) };
  return { exitCode, text: String(exitCode), remark, json };

  async function lastWord(): Promise<ExitStatus> {
    // Output so far need not be sent.
    const from = { stdout: process?.stdoutBytes ?? 0n, stderr: process?.stderrBytes ?? 0n };
    for await (const { event } of readTranscript(client, {
      processId,
      from,
      until: undefined,
      onRetry,
      signal,
    })) {
      if (event.case === "exited") return event.value;
    }
    throw new Error("the transcript ended without saying how the process ended");
  }
}

async function sandboxEnd(
  client: ServiceClient,
  sandboxId: string,
  onRetry: OnRetry,
  signal: AbortSignal,
): Promise<End> {
  const termination = await terminationOf(client, sandboxId, onRetry, signal);
  const { cause, message } = termination;
  const exitCode = exitCodeOf(cause);
  return {
    exitCode,
    text: formatWord(TerminationCause[cause]),
    remark: exitCode === EXIT.ok ? undefined : message,
    json: { sandboxId, termination: messageJson(TerminationSchema, termination) },
  };
}

async function terminationOf(
  client: ServiceClient,
  sandboxId: string,
  onRetry: OnRetry,
  signal: AbortSignal,
): Promise<Termination> {
  const read = async () => {
    const { sandbox } = await client.sandboxes.getSandbox({ sandboxId }, { signal });
    if (sandbox === undefined) throw new Error("the service answered without a sandbox");
    return sandbox;
  };
  const { generation, termination } = await read();
  if (termination) return termination;
  /** How it ended, if its id is still its own. */
  const ownEnd = async () => {
    const now = await read();
    return now.generation === generation ? now.termination : undefined;
  };
  for (let failures = 0; ; ) {
    // Leaving the loop does not end the call, so abort it.
    const leave = new AbortController();
    try {
      const ended = failures > 0 ? await ownEnd() : undefined;
      if (ended) return ended;
      const call = { signal: AbortSignal.any([signal, leave.signal]) };
      // Starts with the oldest kept event, so that events since the read above are included.
      for await (const { item } of client.sandboxes.watchEvents({ sandboxId }, call)) {
        failures = 0;
        if (item.case === "event") {
          const event = item.value;
          const isEnd = event.type === SandboxEventType.TERMINATED && event.generation === generation;
          if (isEnd && event.termination) return event.termination;
          // Its end came before, and is no longer in the history.
          if (event.generation > generation) throw replaced(sandboxId);
        } else if (item.case === "trimmed") {
          const ended = await ownEnd();
          if (ended) return ended;
        }
      }
      throw new Error("the service ended the stream of events");
    } catch (error) {
      await beforeRetry(error, ++failures, { address: client.address, onRetry, signal });
    } finally {
      leave.abort();
    }
  }
}

function replaced(sandboxId: string): Failed {
  const message = `${sandboxId} was replaced by another sandbox, and how it ended is no longer known`;
  return new Failed(message, { exitCode: EXIT.noCommand });
}

function exitCodeOf(cause: TerminationCause): number {
  switch (cause) {
    case TerminationCause.OUT_OF_MEMORY:
      return EXIT.outOfMemory;
    case TerminationCause.CREATE_FAILED:
    case TerminationCause.ENGINE_LOST:
    case TerminationCause.REMOVED_EXTERNALLY:
    case TerminationCause.UNCONTROLLABLE:
      return EXIT.noCommand;
    default:
      return EXIT.ok;
  }
}
