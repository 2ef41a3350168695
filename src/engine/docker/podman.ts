import { promisify } from "node:util";
import type Dockerode from "dockerode";
import type { resourceLimits } from "./container-config.ts";

const CPU_PERIOD_MICROS = 100_000;

/** Facts that Podman's Docker-compatible API does not report. */
interface PodmanFacts {
  readonly isRootless: boolean;
  /** The controllers of control groups that its containers get, for instance `memory`. */
  readonly controllers: readonly string[];
}

/**
 * Asks Podman's own API. Its Docker-compatible API claims to support every limit that the kernel has, even without
 * root, where it ignores them.
 */
export async function podmanFacts(docker: Dockerode, abortSignal: AbortSignal): Promise<PodmanFacts> {
  const dial = promisify(docker.modem.dial.bind(docker.modem));
  const { host } = (await dial({
    path: "/v4.0.0/libpod/info",
    method: "GET",
    options: {},
    abortSignal,
    statusCodes: { 200: true, 500: "server error" },
  })) as { host: { security: { rootless: boolean }; cgroupControllers: readonly string[] | null } };
  return { isRootless: host.security.rootless, controllers: host.cgroupControllers ?? [] };
}

/** Changes a container's limits through Podman's own API: before version 5 Podman lacks Docker's call. */
export async function updateInPodman(
  docker: Dockerode,
  ref: string,
  {
    Memory: memory,
    MemorySwap: swap,
    NanoCpus: nanoCpus,
    PidsLimit: pids,
  }: ReturnType<typeof resourceLimits>,
  abortSignal: AbortSignal,
): Promise<void> {
  const quota = Math.round((nanoCpus * CPU_PERIOD_MICROS) / 1e9);
  const body = {
    ...(memory > 0 && { memory: { limit: memory, swap } }),
    ...(nanoCpus > 0 && { cpu: { quota, period: CPU_PERIOD_MICROS } }),
    ...(pids > 0 && { pids: { limit: pids } }),
  };
  const dial = promisify(docker.modem.dial.bind(docker.modem));
  await dial({
    path: `/v4.3.0/libpod/containers/${encodeURIComponent(ref)}/update`,
    method: "POST",
    options: body,
    abortSignal,
    statusCodes: {
      200: true,
      201: true,
      400: "bad parameter",
      404: "no such container",
      500: "server error",
    },
  });
}
