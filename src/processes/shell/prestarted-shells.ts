import type { Logger } from "../../base/logger.ts";
import type { Engine } from "../../engine/port.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import { PrestartedShell } from "./prestarted-shell.ts";

/** Sandboxes whose jobs read no stdin for this long keep no shell for it. */
const IDLE_MS = 60_000;

/** A sandbox may have been made for this one job, and go with it. */
const REOPEN_DELAY_MS = 30;

/**
 * Keeps one {@link PrestartedShell} ready in a sandbox that has been asked for
 * one: most never are.
 */
export class PrestartedShells {
  readonly #engine: Engine;
  readonly #sandbox: LeasedSandbox;
  readonly #logger: Logger;
  readonly #closing = new AbortController();
  #ready: PrestartedShell | undefined;
  #opening = false;
  #idleTimer: NodeJS.Timeout | undefined;
  #reopenTimer: NodeJS.Timeout | undefined;

  constructor(engine: Engine, sandbox: LeasedSandbox, logger: Logger) {
    this.#engine = engine;
    this.#sandbox = sandbox;
    this.#logger = logger;
  }

  /** Opens one ahead of the first wish. */
  prepare(): void {
    this.#open();
  }

  /** The shell that is ready, if one is. Either way another is opened for the next. */
  take(): PrestartedShell | undefined {
    const shell = this.#ready?.alive ? this.#ready : undefined;
    this.#ready = undefined;
    clearTimeout(this.#reopenTimer);
    if (shell === undefined) this.#open();
    else this.#reopenTimer = setTimeout(() => this.#open(), REOPEN_DELAY_MS).unref();
    clearTimeout(this.#idleTimer);
    this.#idleTimer = setTimeout(() => this.#retire(), IDLE_MS).unref();
    return shell;
  }

  /** Lets go of it. For a sandbox that has ended. */
  close(): void {
    this.#closing.abort();
    clearTimeout(this.#idleTimer);
    clearTimeout(this.#reopenTimer);
    this.#retire();
  }

  #open(): void {
    if (this.#opening || this.#closing.signal.aborted) return;
    this.#opening = true;
    PrestartedShell.open(this.#engine, this.#sandbox, this.#closing.signal)
      .then((shell) => {
        if (this.#closing.signal.aborted) shell.retire();
        else this.#ready = shell;
      })
      .catch((error: unknown) => {
        if (this.#closing.signal.aborted) return;
        this.#logger.debug(
          { sandboxId: this.#sandbox.sandboxId, err: error },
          "a waiting shell could not be opened",
        );
      })
      .finally(() => {
        this.#opening = false;
      });
  }

  #retire(): void {
    this.#ready?.retire();
    this.#ready = undefined;
  }
}
