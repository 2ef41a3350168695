import type { PullProgress } from "../port.ts";

/** One line of what Docker tells during a pull. */
export interface PullMessage {
  readonly id?: string;
  readonly status?: string;
  readonly progressDetail?: { readonly current?: number; readonly total?: number };
  readonly error?: string;
}

interface Layer {
  currentBytes: number;
  totalBytes: number;
  done: boolean;
}

/** Adds up what Docker tells of each layer. */
export class PullLayers {
  readonly #layers = new Map<string, Layer>();

  apply({ id, status, progressDetail }: PullMessage): void {
    if (id === undefined || status === undefined || status.startsWith("Pulling from")) return;
    const layer = this.#layers.get(id) ?? { currentBytes: 0, totalBytes: 0, done: false };
    this.#layers.set(id, layer);
    switch (status) {
      case "Downloading":
        layer.currentBytes = progressDetail?.current ?? layer.currentBytes;
        layer.totalBytes = progressDetail?.total ?? layer.totalBytes;
        return;
      case "Download complete":
        layer.currentBytes = layer.totalBytes;
        return;
      case "Pull complete":
      case "Already exists":
        layer.done = true;
        return;
    }
  }

  progress(): PullProgress {
    const layers = [...this.#layers.values()];
    const sum = (of: (layer: Layer) => number) => layers.reduce((total, layer) => total + of(layer), 0);
    return {
      currentBytes: sum((layer) => layer.currentBytes),
      totalBytes: sum((layer) => layer.totalBytes),
      layersDone: sum((layer) => Number(layer.done)),
      layersTotal: layers.length,
    };
  }
}
