import { setTimeout as sleep } from "node:timers/promises";
import type { WebSocket } from "ws";
import type { OutputStream, TerminalSize } from "../port.ts";
import type { Api } from "./api.ts";
import { CONTAINER } from "./pod.ts";

/**
 * The first byte of a frame in the protocol `v5.channel.k8s.io`
 * (https://kubernetes.io/docs/reference/generated/kubernetes-api/, `exec`).
 */
const CHANNEL = { stdin: 0, stdout: 1, stderr: 2, status: 3, resize: 4, close: 255 } as const;
/**
 * Frame size for input. With frames of 32 KiB, the size in which kubelets copy stdin, throughput through the API server
 * is a third lower.
 */
const MAX_FRAME_BYTES = 256 * 1024;
/** How much may be buffered in the service before a writer has to wait. */
const MAX_WAITING_BYTES = 1 << 20;
/** And in how many frames: each takes hundreds of bytes, however short it is. */
const MAX_WAITING_FRAMES = 64;
/**
 * Kubernetes passes on a terminal's size and its input by different paths. Input that follows a new size waits this
 * long.
 */
const RESIZE_MS = 50;

/** How an exec ended, as Kubernetes reports it. */
export interface ExecStatus {
  readonly status?: string;
  readonly reason?: string;
  readonly message?: string;
  readonly details?: { readonly causes?: readonly { readonly reason?: string; readonly message?: string }[] };
}

/** What an exec reports. */
interface ExecEvents {
  data(stream: OutputStream, chunk: Buffer): void;
  /** Called once. The status is undefined if the connection broke before it arrived. */
  close(status: ExecStatus | undefined): void;
}

/** The streams of a command in a pod, over one WebSocket. They cannot be opened again. */
export class ExecSocket {
  readonly #socket: WebSocket;
  readonly #waiting = new Set<() => void>();
  /** Frames that are buffered in the service. */
  #waitingFrames = 0;
  /** When input may follow the last change of the terminal's size. */
  #inputFrom = 0;
  /** Writes in progress, and the last of them. */
  #writes = 0;
  #lastWrite: Promise<void> = Promise.resolve();
  #closesStdin = false;
  #stdinClosed = false;

  private constructor(socket: WebSocket, events: ExecEvents) {
    this.#socket = socket;
    let status: ExecStatus | undefined;
    socket.on("message", (message: Buffer) => {
      const chunk = message.subarray(1);
      switch (message[0]) {
        case CHANNEL.stdout:
        case CHANNEL.stderr:
          if (chunk.length > 0) events.data(message[0] === CHANNEL.stdout ? "stdout" : "stderr", chunk);
          break;
        case CHANNEL.status:
          status = parseStatus(chunk);
      }
    });
    socket.once("close", () => {
      this.#stdinClosed = true;
      this.#wake();
      events.close(status);
    });
    socket.resume();
  }

  /** Starts a command in a pod's container, as its user. @throws as {@link Api.call} */
  static async open(
    api: Api,
    pod: string,
    command: readonly string[],
    options: { readonly stdin: boolean; readonly tty: boolean },
    events: ExecEvents,
    signal?: AbortSignal,
  ): Promise<ExecSocket> {
    const query = new URLSearchParams({ container: CONTAINER, stdout: "true" });
    query.set("stdin", String(options.stdin));
    query.set("stderr", String(!options.tty));
    query.set("tty", String(options.tty));
    for (const word of command) query.append("command", word);
    const path = `${api.path(`pods/${pod}/exec`)}?${query}`;
    return new ExecSocket(await api.connect(path, "starting a process", signal), events);
  }

  get writable(): boolean {
    return !this.#stdinClosed && this.#socket.readyState === this.#socket.OPEN;
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Writes in the order of the calls. Resolves when more may be written, or when nothing can be written any more. */
  write(data: Uint8Array): Promise<void> {
    // Write at once if no other write is in progress.
    const written = this.#writes === 0 ? this.#write(data) : this.#lastWrite.then(() => this.#write(data));
    this.#writes++;
    this.#lastWrite = written.finally(() => {
      this.#writes--;
      if (this.#writes === 0 && this.#closesStdin) this.#sendEnd();
    });
    return this.#lastWrite;
  }

  /** Ends input once everything written has been sent. Idempotent. */
  closeStdin(): void {
    this.#closesStdin = true;
    if (this.#writes === 0) this.#sendEnd();
  }

  /**
   * Ends input that nobody reads any more: writers give up, and the script in the pod, which waits for EOF, continues.
   */
  abandonStdin(): void {
    this.#sendEnd();
    this.#wake();
  }

  resize({ columns, rows }: TerminalSize): void {
    this.#send(CHANNEL.resize, Buffer.from(JSON.stringify({ Width: columns, Height: rows })));
    this.#inputFrom = performance.now() + RESIZE_MS;
  }

  /** Closes the connection. The command keeps running. */
  terminate(): void {
    this.#socket.terminate();
  }

  async #write(data: Uint8Array): Promise<void> {
    const waitMs = this.#inputFrom - performance.now();
    if (waitMs > 0) await sleep(waitMs);
    for (let at = 0; at < data.length && this.writable; at += MAX_FRAME_BYTES) {
      this.#send(CHANNEL.stdin, data.subarray(at, at + MAX_FRAME_BYTES));
      while (this.#isBehind && this.writable) {
        await new Promise<void>((resolve) => this.#waiting.add(resolve));
      }
    }
  }

  get #isBehind(): boolean {
    return this.#waitingFrames > MAX_WAITING_FRAMES || this.#socket.bufferedAmount > MAX_WAITING_BYTES;
  }

  #sendEnd(): void {
    if (!this.writable) return;
    this.#stdinClosed = true;
    this.#send(CHANNEL.close, Buffer.of(CHANNEL.stdin));
  }

  #send(channel: number, data: Uint8Array): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    const frame = Buffer.allocUnsafe(data.length + 1);
    frame[0] = channel;
    frame.set(data, 1);
    this.#waitingFrames++;
    this.#socket.send(frame, () => {
      this.#waitingFrames--;
      this.#wake();
    });
  }

  #wake(): void {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }
}

function parseStatus(text: Buffer): ExecStatus {
  try {
    return JSON.parse(text.toString()) as ExecStatus;
  } catch {
    return {};
  }
}

/**
 * The exit code in a status; undefined if it has none. `Success` does not count as exit code 0, because a dying kubelet
 * ends its streams with it.
 */
export function exitCodeIn(status: ExecStatus | undefined): number | undefined {
  if (status?.reason !== "NonZeroExitCode") return undefined;
  const code = status.details?.causes?.find(({ reason }) => reason === "ExitCode")?.message;
  return code === undefined || !/^\d+$/.test(code) ? undefined : Number(code);
}
