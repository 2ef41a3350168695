import { untilAborted } from "../../base/async.ts";
import type { EngineVolumes, OpenVolume } from "../../engine/port.ts";

/** How long an idle place stays: calls come in groups, and each place is a pod. */
const LINGER_MS = 5_000;

/** A pod in which the service works on a volume. */
class Place {
  readonly name: string;
  readonly opening: Promise<OpenVolume>;
  users = 0;
  /** Whether no further work may run in it. */
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

  /** Closes it later, unless {@link keep} is called. */
  linger(close: () => void): void {
    this.#timer = setTimeout(close, LINGER_MS).unref();
  }

  keep(): void {
    clearTimeout(this.#timer);
  }

  /** Closes it even if it is in use. Returns when it is gone. */
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

/** The places in which the service works on volumes. Per volume, at most one accepts new work. */
export class Places {
  readonly #volumes: EngineVolumes;
  readonly #places = new Set<Place>();

  constructor(volumes: EngineVolumes) {
    this.#volumes = volumes;
  }

  /** Runs work in the place of a volume. Opens a place if there is none. */
  async use<T>(name: string, work: (volume: OpenVolume) => Promise<T>, signal: AbortSignal): Promise<T> {
    const { volume, release, spend } = await this.hold(name, signal);
    try {
      return await work(volume);
    } catch (error) {
      // The place may be gone.
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
      // Nobody else waits for this place, which is slow to open.
      if (place.users === 1) spend();
      release();
      throw error;
    }
  }

  /** Closes the places of a volume even if they are in use. Returns when they are gone. */
  async end(name: string): Promise<void> {
    await Promise.all(
      [...this.#places].filter((place) => place.name === name).map((place) => this.#close(place)),
    );
  }

  /** Closes the idle places of a volume. Returns when they are gone. */
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

/** A place that is in use. */
interface HeldPlace {
  readonly volume: OpenVolume;
  /** Idempotent. */
  release(): void;
  /** Lets no further work run in it. */
  spend(): void;
}
