import { untilAborted } from "../../base/until.ts";

/** A range of a container's ids, and where it begins on the host. */
interface IdRange {
  readonly inside: number;
  readonly outside: number;
  readonly count: number;
}

/** Tells which ids of the container are which of the host's, one range a line. Needs no process. */
export const TELL_ID_RANGES = `while read -r inside outside count; do printf 'berth-ids %s %s %s\\n' $inside $outside $count; done </proc/self/uid_map`;

/** Tells that, and the uid that the shell runs as. */
export const TELL_IDS = `${TELL_ID_RANGES}
while read -r name uid x; do [ $name != Uid: ] || printf 'berth-uid %s\\n' $uid; done </proc/self/status`;

/** More names than this are not remembered of one container: they are asked for again. */
const MAX_NAMES = 256;

/** Which users of the host the users of one container are. */
export class ContainerUsers {
  readonly #ask: (user: string) => Promise<string>;
  readonly #asking = new Map<string, Promise<void>>();
  /** Uids inside, by the name that an exec is given. */
  readonly #names = new Map<string, number>();
  #ranges: readonly IdRange[] | undefined;

  /** @param ask runs {@link TELL_IDS} in the container as a user, and returns what it printed. */
  constructor(ask: (user: string) => Promise<string>) {
    this.#ask = ask;
  }

  /** Takes over what {@link TELL_ID_RANGES} printed, and the uid of one user. */
  learn(user: string, uid: number, told: string): void {
    if (this.#names.size >= MAX_NAMES) this.#names.clear();
    this.#names.set(user, uid);
    this.#ranges = rangesIn(told);
  }

  /** What was learnt of a user may no longer be so. */
  forget(user: string): void {
    this.#names.delete(user);
  }

  /**
   * The uid on the host of a user as an exec names it; the container is asked
   * where that is not known. Undefined where the host has no such user.
   * @throws what asking does.
   */
  async uidOnHost(user: string, signal?: AbortSignal): Promise<number | undefined> {
    if (this.#uidInside(user) === undefined || this.#ranges === undefined) {
      await untilAborted(this.#learn(user), signal);
    }
    const uid = this.#uidInside(user);
    const range = this.#ranges?.find(
      ({ inside, count }) => uid !== undefined && uid >= inside && uid < inside + count,
    );
    return range && uid !== undefined ? range.outside + uid - range.inside : undefined;
  }

  #uidInside(user: string): number | undefined {
    const number = /^\d*(?=:|$)/.exec(user)?.[0];
    return number === undefined ? this.#names.get(user) : Number(number);
  }

  /** Those that ask for the same user wait for the same answer. */
  #learn(user: string): Promise<void> {
    const asking =
      this.#asking.get(user) ??
      this.#ask(user)
        .then((told) => {
          const uid = /^berth-uid (\d+)$/m.exec(told)?.[1];
          if (uid !== undefined) this.learn(user, Number(uid), told);
        })
        .finally(() => this.#asking.delete(user));
    this.#asking.set(user, asking);
    return asking;
  }
}

function rangesIn(told: string): IdRange[] {
  return [...told.matchAll(/^berth-ids (\d+) (\d+) (\d+)$/gm)].map(([, inside, outside, count]) => ({
    inside: Number(inside),
    outside: Number(outside),
    count: Number(count),
  }));
}
