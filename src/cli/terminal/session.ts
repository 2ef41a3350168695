import { ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import type { ExecResponse, ExitStatus } from "../../../gen/ts/berth/v1/process_pb.js";
import type { ServiceClient } from "../client.ts";
import { EXIT, exitCodeOf, Failed, Interrupted } from "../exit.ts";
import { reasonOf } from "../failure.ts";
import { EscapeFilter, Keyboard, oneAtATime } from "./keyboard.ts";
import type { LocalTerminal, TerminalSize } from "./local-terminal.ts";

interface SessionOptions {
  /** Starts the process with a terminal of this size. */
  readonly start: (size: TerminalSize, signal: AbortSignal) => AsyncIterable<ExecResponse>;
  readonly terminal: LocalTerminal;
  readonly signal: AbortSignal;
}

/**
 * Runs a process with its own terminal, and lends it this one. However it ends, the terminal is restored when this
 * settles, and the process is ended.
 */
export async function runSession(
  client: ServiceClient,
  { start, terminal, signal }: SessionOptions,
): Promise<ExitStatus> {
  // Leaving the loop does not end the call, so abort it.
  const leave = new AbortController();
  const ended = AbortSignal.any([signal, leave.signal]);
  const firstSize = terminal.size;
  try {
    for await (const { event } of start(wireSize(firstSize), ended)) {
      if (event.case === "started") {
        connect(client, event.value.processId, terminal, firstSize, leave, ended);
      } else if (event.case === "output") {
        await terminal.write(event.value.data, ended);
      } else if (event.case === "exited") {
        return event.value;
      }
    }
    throw new Error("the service ended the stream without saying how the process ended");
  } catch (error) {
    terminal.restore();
    terminal.breakLine();
    throw ended.aborted ? ended.reason : error;
  } finally {
    leave.abort();
    terminal.restore();
  }
}

/** Forwards the terminal's keys and sizes to the process, until `ended`. */
function connect(
  client: ServiceClient,
  processId: string,
  terminal: LocalTerminal,
  firstSize: TerminalSize,
  leave: AbortController,
  ended: AbortSignal,
): void {
  const filter = new EscapeFilter();
  const keyboard = new Keyboard({
    write: async (offset, data) => {
      const answer = await client.processes.writeStdin(
        { processId, offset, data: data as Uint8Array<ArrayBuffer> },
        { signal: ended },
      );
      return answer.offset;
    },
    onRoom: (room) => {
      if (!ended.aborted) terminal.listening = room;
    },
    // Drops keys typed after the process ended.
    onFailure: (error) => {
      if (reasonOf(error) !== ErrorReason.PROCESS_STATE) leave.abort(error);
    },
  });
  let size = firstSize;
  const resize = oneAtATime(
    async () => {
      const { columns, rows } = terminal.size;
      if (columns === size.columns && rows === size.rows) return;
      size = { columns, rows };
      await client.processes.resizeTerminal({ processId, ...wireSize(size) }, { signal: ended });
    },
    // Ignore failures: the next size is sent anyway, and a broken connection ends the call as well.
    () => {},
  );
  terminal.lend({
    keys(data) {
      const { keys, leave: left } = filter.push(data);
      keyboard.type(keys);
      if (left)
        leave.abort(
          new Failed("the session was left with ~. and its command is being ended", {
            exitCode: EXIT.noCommand,
          }),
        );
    },
    resized: resize,
    hungUp: () => leave.abort(new Interrupted("the terminal has gone", exitCodeOf("SIGHUP"))),
  });
  // The size may have changed since the process was started.
  resize();
}

/** A size within the service's limits. */
function wireSize({ columns, rows }: TerminalSize): TerminalSize {
  return { columns: Math.min(columns, MAX_SIDE), rows: Math.min(rows, MAX_SIDE) };
}

const MAX_SIDE = 10_000;
