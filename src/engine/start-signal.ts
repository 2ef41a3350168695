import type { SpawnRequest } from "./port.ts";

/** The signal that ends a spawn while the engine has not been asked to start the process. */
export function startSignal({ dropSignal }: SpawnRequest, signal?: AbortSignal): AbortSignal | undefined {
  if (dropSignal === undefined || signal === undefined) return dropSignal ?? signal;
  return AbortSignal.any([dropSignal, signal]);
}
