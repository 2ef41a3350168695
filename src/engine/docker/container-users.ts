import { untilAborted } from "../../base/async.ts";

/** A range of a container's ids, and its start on the host. */
interface IdRange {
  readonly inside: number;
  readonly outside: number;
  readonly count: number;
}

/** A user's uid, inside the container and on the host. */
export interface UserId {
  readonly inside: number;
  readonly onHost: number;
}

/** Prints how the container's ids map to the host's, one range per line. Uses only shell builtins. */
export const PRINT_ID_RANGES = `while read -r inside outside count; do printf 'berth-ids %s %s %s\\n' $inside $outside $count; done </proc/self/uid_map`;

/** Prints those ranges, and the uid that the shell runs as. */
export const PRINT_IDS = `${PRINT_ID_RANGES}
while read -r name uid x; do [ $name != Uid: ] || printf 'berth-uid %s\\n' $uid; done </proc/self/status`;

/** Limit of names cached per container. Beyond it the cache is cleared. */
const MAX_NAMES = 256;

/** Maps the users of one container to uids of the host. */
export class ContainerUsers {
  readonly #ask: (user: string) => Promise<string>;
  readonly #asking = new Map<string, Promise<void>>();
  /** Uids inside the container, by the user's name in an exec. */
  readonly #names = new Map<string, number>();
  #ranges: readonly IdRange[] | undefined;

  /** @param ask runs {@link PRINT_IDS} in the container as a user, and returns what it printed. */
  constructor(ask: (user: string) => Promise<string>) {
    this.#ask = ask;
  }

  /** Stores what {@link PRINT_ID_RANGES} printed, and the uid of one user. */
  learn(user: string, uid: number, printed: string): void {
    if (this.#names.size >= MAX_NAMES) this.#names.clear();
    this.#names.set(user, uid);
    const ranges = rangesIn(printed);
    if (ranges.length > 0) this.#ranges = ranges;
  }

  get knowsRanges(): boolean {
    return this.#ranges !== undefined;
  }

  /** Forgets a user, whose uid may have changed. */
  forget(user: string): void {
    this.#names.delete(user);
  }

  /**
   * The uid of a user, named as in an exec, in the container and on the host. Asks the container if it is not known
   * yet. Undefined if the uid has no mapping to the host.
   * @throws the errors of `ask`.
   */
  async uidOf(user: string, signal?: AbortSignal): Promise<UserId | undefined> {
    if (this.#uidInside(user) === undefined || this.#ranges === undefined) {
      await untilAborted(this.#learn(user), signal);
    }
    return this.known(user);
  }

  /** Like {@link uidOf}, but undefined if the container would have to be asked. */
  known(user: string): UserId | undefined {
    const uid = this.#uidInside(user);
    if (uid === undefined) return undefined;
    const range = this.#ranges?.find(({ inside, count }) => uid >= inside && uid < inside + count);
    return range && { inside: uid, onHost: range.outside + uid - range.inside };
  }

  #uidInside(user: string): number | undefined {
    const number = /^\d*(?=:|$)/.exec(user)?.[0];
    return number === undefined ? this.#names.get(user) : Number(number);
  }

  /** Concurrent callers for the same user share one request. */
  #learn(user: string): Promise<void> {
    const asking =
      this.#asking.get(user) ??
      this.#ask(user)
        .then((printed) => {
          const uid = /^berth-uid (\d+)$/m.exec(printed)?.[1];
          if (uid !== undefined) this.learn(user, Number(uid), printed);
        })
        .finally(() => this.#asking.delete(user));
    this.#asking.set(user, asking);
    return asking;
  }
}

function rangesIn(printed: string): IdRange[] {
  return [...printed.matchAll(/^berth-ids (\d+) (\d+) (\d+)$/gm)].map(([, inside, outside, count]) => ({
    inside: Number(inside),
    outside: Number(outside),
    count: Number(count),
  }));
}
