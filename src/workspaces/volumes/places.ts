import { untilAborted } from "../../base/async.ts";
import type { EngineVolumes, OpenVolume } from "../../engine/port.ts";

/** How long a place stays for the next work on its volume: calls come in groups, and each place is a pod. */
const LINGER_MS = 5_000;

/** A place in which the service works on a volume. */
class Place {
  readonly name: string;
  readonly opening: Promise<OpenVolume>;
  users = 0;
  /** Whether nothing else may run in it. */
  spent = false;
  readonly #abort = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #closing: Promise<void> | undefined;

  constructor(name: string, volumes: EngineVolumes) {
    this.name = name;
    this.opening = volumes.open(name, this.#abort.signal);
    this.opening.catch(() => {
      this.spent = true;
    });
  }

  /** Ends it later, unless it is kept. */
  linger(close: () => void): void {
    this.#timer = setTimeout(close, LINGER_MS).unref();
  }

  keep(): void {
    clearTimeout(this.#timer);
  }

  /** Ends it, whoever works in it; returns when it is gone. */
  close(): Promise<void> {
    this.keep();
    this.spent = true;
    this.#abort.abort();
    this.#closing ??= this.opening.then(
      (volume) => volume.close(),
      () => {},
    );
    return this.#closing;
  }
}

/** The places in which the service works on volumes: at most one for each volume takes new work. */
export class Places {
  readonly #volumes: EngineVolumes;
  readonly #places = new Set<Place>();

  constructor(volumes: EngineVolumes) {
    this.#volumes = volumes;
  }

  /**
   * Runs work in the place of a volume, which is opened where there is none.
   * @param options.spend whether nothing else may run there afterwards, since the work may have changed it.
   */
  async use<T>(
    name: string,
    work: (volume: OpenVolume) => Promise<T>,
    options: { readonly signal: AbortSignal; readonly spend?: boolean },
  ): Promise<T> {
    const { volume, release, spend } = await this.hold(name, options.signal);
    if (options.spend) spend();
    try {
      return await work(volume);
    } catch (error) {
      // It may be gone.
      spend();
      throw error;
    } finally {
      release();
    }
  }

  /** Holds the place of a volume until the caller releases it. */
  async hold(name: string, signal: AbortSignal): Promise<HeldPlace> {
    const place = this.#usable(name) ?? this.#add(name);
    place.users++;
    place.keep();
    let held = true;
    const release = (): void => {
      if (!held) return;
      held = false;
      place.users--;
      if (place.users > 0) return;
      if (place.spent) void this.#close(place);
      else place.linger(() => void this.#close(place));
    };
    const spend = (): void => {
      place.spent = true;
    };
    try {
      return { volume: await untilAborted(place.opening, signal), release, spend };
    } catch (error) {
      // Nobody else waits for one that is slow to open.
      if (place.users === 1) spend();
      release();
      throw error;
    }
  }

  /** Ends the places of a volume, whoever works in them; returns when they are gone. */
  async end(name: string): Promise<void> {
    await Promise.all(
      [...this.#places].filter((place) => place.name === name).map((place) => this.#close(place)),
    );
  }

  /** Ends those places of a volume that nobody works in; returns when they are gone. */
  async endIdle(name: string): Promise<void> {
    const idle = [...this.#places].filter((place) => place.name === name && place.users === 0);
    await Promise.all(idle.map((place) => this.#close(place)));
  }

  #usable(name: string): Place | undefined {
    for (const place of this.#places) if (place.name === name && !place.spent) return place;
    return undefined;
  }

  #add(name: string): Place {
    const place = new Place(name, this.#volumes);
    this.#places.add(place);
    return place;
  }

  async #close(place: Place): Promise<void> {
    await place.close();
    this.#places.delete(place);
  }
}

/** A place that somebody works in. */
export interface HeldPlace {
  readonly volume: OpenVolume;
  /** Idempotent. */
  release(): void;
  /** Nothing else runs in it from now on. */
  spend(): void;
}
