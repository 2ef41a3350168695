import type { FirstShell, SpawnRequest } from "../port.ts";
import type { ContainerPipes, ProcessPipes } from "./container-pipes.ts";
import type { UserId } from "./container-users.ts";
import type { ExecStart } from "./exec.ts";
import { abandon, type OpenedPipes, openPipes } from "./spawn-piped.ts";
import type { Zygote, ZygoteAnswers } from "./zygote.ts";

/** The line that lets a shell that has opened its pipes execute its program, with or without stdin. */
export const GO = { withStdin: "stdin\n", withoutStdin: "\n" };

/** A program that a zygote was asked to start. */
export interface Requested {
  readonly id: string;
  readonly answers: ZygoteAnswers;
  readonly pipes: ProcessPipes;
  readonly opened: OpenedPipes;
  /** The go-ahead and the part of the program's input that have already been sent. Undefined: nothing. */
  readonly sent?: Buffer;
}

const NOTHING = new Uint8Array();

interface As {
  readonly user: string;
  /** The uid inside the container. */
  readonly uid: number;
}

/** Asks a zygote to start a program. On failure its pipes are abandoned. */
export function request(
  zygote: Zygote,
  pipes: ProcessPipes,
  { user, uid }: As,
  { argv, env = {} }: Pick<SpawnRequest, "argv" | "env">,
): Requested {
  let opened: OpenedPipes | undefined;
  try {
    opened = openPipes(pipes, true);
    const id = zygote.request({ user: user || "0", uid, pipes: pipes.inside, argv, env });
    return { id, answers: zygote.answers(id), pipes, opened };
  } catch (error) {
    abandon(pipes, opened);
    throw error;
  }
}

/**
 * A shell that is requested before its container starts. It is ready as soon as the container is, and has read the
 * first input of every such shell.
 */
export class EarlyShell {
  readonly requested: Requested;
  readonly #user: string;
  readonly #shell: FirstShell;

  private constructor(requested: Requested, user: string, shell: FirstShell) {
    this.requested = requested;
    this.#user = user;
    this.#shell = shell;
  }

  /** @param pipes belong to the uid. @throws the errors of {@link request} */
  static start(zygote: Zygote, pipes: ProcessPipes, as: As, shell: FirstShell): EarlyShell {
    const requested = request(zygote, pipes, as, shell);
    const { stdin } = requested.opened.ends;
    stdin?.write(GO.withStdin);
    stdin?.write(shell.input);
    return new EarlyShell({ ...requested, sent: shell.input }, as.user, shell);
  }

  /** Whether it fits the process to start. */
  suits({ user, request: { argv, env = {}, stdin, input = NOTHING } }: ExecStart): boolean {
    const { argv: own, input: read } = this.#shell;
    const isSame = argv.length === own.length && argv.every((word, place) => word === own[place]);
    const readsOn = stdin && read.equals(input.subarray(0, read.length));
    return user === this.#user && isSame && readsOn && Object.keys(env).length === 0;
  }

  abandon(): void {
    abandon(this.requested.pipes, this.requested.opened);
  }
}

/** Limit of cached uids of images' users. */
const MAX_UIDS = 256;

/** Requests the first shells of containers. Their pipes must belong to the uid of the user that runs the shell. */
export class EarlyShells {
  readonly #pipes: ContainerPipes;
  /** By image and user, as seen in the last container. Another container may differ; its zygote notices that. */
  readonly #uids = new Map<string, UserId>();

  constructor(pipes: ContainerPipes) {
    this.#pipes = pipes;
  }

  /**
   * Requests the first shell of a container; undefined if that is impossible, and then it starts later as usual. @param
   * name the container's directory of pipes.
   */
  async start(
    name: string,
    { image, user }: ImageUser,
    zygote: Zygote,
    shell: FirstShell,
  ): Promise<EarlyShell | undefined> {
    const uid = this.#uids.get(keyOf({ image, user }));
    if (uid === undefined) return undefined;
    try {
      const pipes = await this.#pipes.take(name, uid.onHost);
      return EarlyShell.start(zygote, pipes, { user, uid: uid.inside }, shell);
    } catch {
      return undefined;
    }
  }

  /** Stores the uid of a user in a container of an image. Undefined: not known. */
  learn(of: ImageUser, uid: UserId | undefined): void {
    if (uid === undefined) return;
    if (this.#uids.size >= MAX_UIDS) this.#uids.clear();
    this.#uids.set(keyOf(of), uid);
  }
}

/** A user of an image, as an exec names it. */
interface ImageUser {
  readonly image: string;
  readonly user: string;
}

function keyOf({ image, user }: ImageUser): string {
  return `${image} ${user}`;
}
