/** The client for browsers, and whatever has `fetch`: Connect's own protocol over HTTP. */
import { createConnectTransport } from "@connectrpc/connect-web";
import { DEFAULT_ADDRESS, parseAddress } from "./address.ts";
import { BerthClient } from "./client.ts";
import type { ClientSettings } from "./connection.ts";

export * from "./common.ts";

/** How a client connects. */
export interface ConnectSettings extends ClientSettings {
  /** Replaces the platform's own. */
  readonly fetch?: typeof globalThis.fetch | undefined;
}

/**
 * A client of a Berth service; see {@link BerthClient}.
 *
 * The service answers pages of its own origin, and of the origins in `berth serve --cors-origin`. A browser cannot
 * stream a request: `uploadArchive` and `importArchive` throw UNSUPPORTED. Its certificates and proxies are the
 * browser's.
 */
export class Berth extends BerthClient {
  /**
   * Prepares to call a service.
   * @param address "https://…", "http://…" or "HOST:PORT". Default: the page's own origin, otherwise 127.0.0.1:7070.
   * @throws TypeError for an invalid address
   */
  static connect(address: string | undefined = undefined, settings: ConnectSettings = {}): Berth {
    const { location } = globalThis as { readonly location?: { readonly origin: string } };
    const origin = location?.origin.startsWith("http") ? location.origin : undefined;
    const { address: given, baseUrl, socketPath } = parseAddress(address || origin || DEFAULT_ADDRESS, false);
    if (socketPath !== undefined) throw new TypeError("A browser cannot reach a Unix socket.");
    const transport = createConnectTransport({
      baseUrl,
      useBinaryFormat: true,
      ...(settings.fetch && { fetch: settings.fetch }),
    });
    return new Berth({ address: given, transport, streamsRequests: false, close: () => {} }, settings);
  }
}
