import { BerthError, throwIfAborted } from "../base/errors.ts";
import { OWN_COMMAND, type ProcessManager } from "../processes/manager.ts";
import type { ExitStatus } from "../processes/record.ts";
import type { ViewCommand } from "./backend.ts";
import type { SessionManager, ViewedSession } from "./manager.ts";
import type { SessionKey } from "./registry.ts";

export type ViewEvent =
  | {
      readonly type: "started";
      readonly processId: string;
      readonly sessionId: string;
      readonly sandboxId: string;
      readonly readOnly: boolean;
      readonly command: Pick<ViewCommand, "protocol" | "width" | "height">;
    }
  | { readonly type: "data"; readonly data: Uint8Array }
  | { readonly type: "exited"; readonly status: ExitStatus }
  | { readonly type: "keepalive" };

/** Small, because late pictures are worthless and unread ones take memory. */
const AHEAD_BYTES = 256 * 1024;
/** A viewer that writes nothing within this time is ended. */
const START_MS = 30_000;
/** The longest timeout a process can have: a view ends with its caller instead. */
const MAX_MS = 24 * 24 * 3600 * 1000;
const NOT_FOUND = 127;
const SAID_CHARACTERS = 1000;

export class SessionViewer {
  readonly #sessions: SessionManager;
  readonly #processes: ProcessManager;

  constructor(parts: { readonly sessions: SessionManager; readonly processes: ProcessManager }) {
    this.#sessions = parts.sessions;
    this.#processes = parts.processes;
  }

  /**
   * Starts a viewer of the worker's session and streams everything that it writes. The viewer waits for its reader, and
   * ends with the signal or with the session.
   * @throws what {@link SessionManager.openView} and {@link ProcessManager.exec} throw; `UNSUPPORTED`,
   *   `SESSION_START_FAILED`, `SESSION_LOST`.
   */
  async *view(key: SessionKey, readOnly: boolean, signal: AbortSignal): AsyncGenerator<ViewEvent> {
    const session = await this.#sessions.openView(key, signal);
    const { sessionId, backend, sandbox } = session;
    using view = session.view;
    const command = backend.view?.(readOnly);
    if (command === undefined) throw notViewable(key.resourceType);
    const late = new AbortController();
    const timer = setTimeout(
      () => late.abort(notStarted(`it wrote nothing within ${START_MS / 1000} s`)),
      START_MS,
    );
    const ends = AbortSignal.any([signal, view.signal, late.signal]);
    let processId = "";
    let started = false;
    let said = "";
    try {
      for await (const event of this.#run(session, command, ends)) {
        if (event.type === "started") ({ processId } = event);
        else if (event.type === "output" && event.stream === "stderr") {
          said = (said + Buffer.from(event.data).toString()).slice(-SAID_CHARACTERS);
        } else if (event.type === "output") {
          if (!started) {
            started = true;
            clearTimeout(timer);
            const { sandboxId } = sandbox;
            yield { type: "started", processId, sessionId, sandboxId, readOnly, command };
          }
          yield { type: "data", data: event.data };
        } else if (event.type === "exited") {
          throwIfAborted(ends);
          if (!backend.alive) throw lost(sessionId, key.resourceType);
          if (!started) throw notStarted(whyNot(command, event.status, said));
          yield event;
        } else if (event.type === "gap") {
          throw new BerthError("INTERNAL", "A part of the view was lost. Open it again.");
        } else if (started) yield event;
      }
      throwIfAborted(ends);
    } finally {
      clearTimeout(timer);
      if (processId !== "") this.#forgetOutput(sandbox.owner, processId);
    }
  }

  #run({ sandbox }: ViewedSession, { argv, env }: ViewCommand, signal: AbortSignal) {
    const request = {
      ...OWN_COMMAND,
      sandbox,
      command: { kind: "argv", args: argv },
      env,
      timeoutMs: MAX_MS,
      keepStdinOpen: true,
      aheadBytes: AHEAD_BYTES,
      isDialogue: true,
    } as const;
    return this.#processes.exec(request, signal);
  }

  /** Drops the output of a viewer: nobody reads pictures later. */
  #forgetOutput(owner: string, processId: string): void {
    const process = this.#processes.get(owner, processId);
    void process.ended.then(() => process.transcript.clear());
  }
}

function notViewable(type: string): BerthError {
  return new BerthError("UNSUPPORTED", `A session of the type ${type} has no screen to show.`, {
    metadata: { resource_type: type },
  });
}

function notStarted(why: string): BerthError {
  return new BerthError("SESSION_START_FAILED", `The viewer did not start: ${why}.`);
}

function whyNot({ argv }: ViewCommand, { exitCode, message }: ExitStatus, said: string): string {
  if (exitCode === NOT_FOUND && said === "") return `the sandbox has no ${argv[0]}`;
  return said.trim() || message || `it exited with code ${exitCode}`;
}

function lost(sessionId: string, type: string): BerthError {
  return new BerthError(
    "SESSION_LOST",
    `The session ${JSON.stringify(sessionId)} lost its ${type} while it was viewed. The next call or view starts it again.`,
    { metadata: { session_id: sessionId } },
  );
}
