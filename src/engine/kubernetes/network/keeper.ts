import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import type { V1NetworkPolicy, V1NetworkPolicyList, V1Node } from "@kubernetes/client-node";
import { addressCidr, parseCidr } from "../../../base/cidr.ts";
import type { Logger } from "../../../base/logger.ts";
import type { Api } from "../api.ts";
import { isRefusal, refusalOf, translateError } from "../errors.ts";
import { isSame, type NetworkOptions, opens, policiesOf } from "./policies.ts";

const GROUP = "apis/networking.k8s.io/v1";
/** How long a check is reused, so that concurrent creates share one. */
const FRESH_MS = 1_000;
/** How often the cluster's own addresses are looked up. */
const ADDRESSES_MS = 60_000;
const ATTEMPTS = 3;

/** What a {@link PolicyKeeper} needs. */
interface KeeperParts {
  readonly api: Api;
  readonly instance: string;
  readonly options: NetworkOptions;
  /** The labels of each kind of pod with the network NONE. */
  readonly labels: readonly Readonly<Record<string, string>>[];
  readonly logger: Logger;
}

/** The result of a check of the policies. */
interface Look {
  /** Names of other policies that allow traffic to or from pods with the network NONE. */
  readonly openedBy: readonly string[];
}

/** Creates an instance's network policies in the cluster, and restores them if others change them. */
export class PolicyKeeper {
  readonly #parts: KeeperParts;
  #addresses: { readonly at: number; readonly closed: readonly string[] } | undefined;
  #wanted: readonly V1NetworkPolicy[] = [];
  #looking: Promise<Look> | undefined;
  #last: { readonly at: number; readonly look: Look } | undefined;
  /** The policies as this service last left them in the cluster. Undefined before the first check. */
  #made: readonly V1NetworkPolicy[] | undefined;

  constructor(parts: KeeperParts) {
    this.#parts = parts;
  }

  /**
   * Checks the policies of the namespace, and creates or restores the instance's own. Reuses a check of the last
   * second.
   * @throws `INVALID_ARGUMENT` for options that contradict each other, `ENGINE_UNAVAILABLE`, also without the
   * permission.
   */
  async ensure(): Promise<Look> {
    if (this.#last !== undefined && performance.now() - this.#last.at < FRESH_MS) return this.#last.look;
    this.#looking ??= this.#ensure().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  /** Removes the instance's policies. Call it only when none of the instance's pods is left. */
  async remove(): Promise<void> {
    const { api } = this.#parts;
    for (const { metadata } of this.#wanted) {
      const path = api.path(`networkpolicies/${metadata?.name}`, GROUP);
      await api.call("DELETE", path, "removing a network policy").catch((error: unknown) => {
        if (!isRefusal(error, 404)) throw error;
      });
    }
  }

  async #ensure(): Promise<Look> {
    const { api, instance, options, labels } = this.#parts;
    this.#wanted = policiesOf(instance, options, await this.#closed());
    for (let attempt = 1; ; attempt++) {
      const at = performance.now();
      const path = api.path("networkpolicies", GROUP);
      const { items } = await api.call<V1NetworkPolicyList>("GET", path, "listing network policies");
      try {
        for (const wanted of this.#wanted) await this.#put(items, wanted);
      } catch (error) {
        // Somebody else changed it meanwhile: check again.
        if (attempt < ATTEMPTS && [404, 409].includes(refusalOf(error)?.status ?? 0)) continue;
        throw error;
      }
      this.#made = this.#wanted;
      const names = this.#wanted.map(({ metadata }) => metadata?.name);
      const others = items.filter(({ metadata }) => !names.includes(metadata?.name));
      const openedBy = others
        .filter((one) => labels.some((ofPod) => opens(one, ofPod)))
        .map(({ metadata }) => metadata?.name ?? "");
      const look = { openedBy };
      this.#last = { at, look };
      return look;
    }
  }

  async #put(items: readonly V1NetworkPolicy[], wanted: V1NetworkPolicy): Promise<void> {
    const { api, logger } = this.#parts;
    const name = wanted.metadata?.name;
    const found = items.find(({ metadata }) => metadata?.name === name);
    if (found !== undefined && isSame(found, wanted)) return;
    const doing = "setting up a network policy";
    if (found === undefined) {
      await api.call("POST", api.path("networkpolicies", GROUP), doing, { body: wanted });
    } else {
      // Replace it in place: if it was removed first, the sandboxes would be open meanwhile.
      const metadata = { ...wanted.metadata, resourceVersion: found.metadata?.resourceVersion };
      const path = api.path(`networkpolicies/${name}`, GROUP);
      await api.call("PUT", path, doing, { body: { ...wanted, metadata } });
    }
    // Others did nothing if it is as it was made, for other addresses of the cluster.
    const made = this.#made?.find(({ metadata }) => metadata?.name === name);
    if (made !== undefined && (found === undefined || !isSame(found, made)))
      logger.warn(
        { policy: name, was: found === undefined ? "deleted" : "changed" },
        "somebody changed a network policy of Berth's; it is restored",
      );
  }

  /** Addresses of the API server and, if the service may see them, of the nodes and their pods. */
  async #closed(): Promise<readonly string[]> {
    const { api } = this.#parts;
    const now = performance.now();
    if (this.#addresses !== undefined && now - this.#addresses.at < ADDRESSES_MS)
      return this.#addresses.closed;
    const host = new URL(api.server).hostname.replace(/^\[|\]$/g, "");
    const named = isIP(host) ? [host] : await addressesOf(host);
    const service = process.env.KUBERNETES_SERVICE_HOST;
    const servers = [...named, ...(service !== undefined && isIP(service) ? [service] : [])];
    const closed = [...new Set([...servers.map(addressCidr), ...(await this.#nodes())])].filter(
      (text) => typeof parseCidr(text) !== "string",
    );
    this.#addresses = { at: now, closed };
    return closed;
  }

  async #nodes(): Promise<string[]> {
    const { api } = this.#parts;
    try {
      const { items } = await api.list("api/v1/nodes", "listing nodes", ({ spec, status }: V1Node) => [
        ...(spec?.podCIDRs ?? []),
        ...(status?.addresses ?? [])
          .filter(({ address }) => isIP(address))
          .map(({ address }) => addressCidr(address)),
      ]);
      return items.flat();
    } catch (error) {
      if (isRefusal(error, 403)) return [];
      throw error;
    }
  }
}

async function addressesOf(host: string): Promise<string[]> {
  try {
    return (await lookup(host, { all: true })).map(({ address }) => address);
  } catch (error) {
    throw translateError(error, "looking up the API server");
  }
}
