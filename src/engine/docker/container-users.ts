import { untilAborted } from "../../base/async.ts";

/** A range of a container's ids, and where it starts on the host. */
interface IdRange {
  readonly inside: number;
  readonly outside: number;
  readonly count: number;
}

/** A user's uid. */
export interface UserId {
  readonly inside: number;
  readonly onHost: number;
}

/** Prints how the container's ids map to the host's, one range a line. Needs no process. */
export const PRINT_ID_RANGES = `while read -r inside outside count; do printf 'berth-ids %s %s %s\\n' $inside $outside $count; done </proc/self/uid_map`;

/** Prints that, and the uid that the shell runs as. */
export const PRINT_IDS = `${PRINT_ID_RANGES}
while read -r name uid x; do [ $name != Uid: ] || printf 'berth-uid %s\\n' $uid; done </proc/self/status`;

/** Names remembered of one container; past that they are asked for again. */
const MAX_NAMES = 256;

/** Maps the users of one container to those of the host. */
export class ContainerUsers {
  readonly #ask: (user: string) => Promise<string>;
  readonly #asking = new Map<string, Promise<void>>();
  /** Uids inside, by the name that an exec is given. */
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

  /** Whether the ranges of ids are known. */
  get knowsRanges(): boolean {
    return this.#ranges !== undefined;
  }

  /** What was learned of a user may be stale. */
  forget(user: string): void {
    this.#names.delete(user);
  }

  /**
   * The uid, in the container and on the host, of a user as an exec names it; asks the container where
   * that is unknown. Undefined where the host has no such user.
   * @throws what asking throws.
   */
  async uidOf(user: string, signal?: AbortSignal): Promise<UserId | undefined> {
    if (this.#uidInside(user) === undefined || this.#ranges === undefined) {
      await untilAborted(this.#learn(user), signal);
    }
    return this.known(user);
  }

  /** The same where the container need not be asked; else undefined. */
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

  /** Callers that ask for the same user share one answer. */
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
