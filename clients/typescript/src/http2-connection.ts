import type {
  ClientHttp2Stream,
  ClientSessionOptions,
  Http2Session,
  SecureClientSessionOptions,
} from "node:http2";
import { Http2SessionManager } from "@connectrpc/connect-node";

/**
 * In MB. At its default of 10, Node refuses the answer of any call while others still have so much to send, and after a
 * request that the service refuses before it has all of it, every later answer. What a program sends is its own to bound.
 */
const MAX_SESSION_MEMORY = 1_000_000;

/** A connection on which an interrupted call never looks complete, and calls do not hinder each other. */
export class Http2Connection extends Http2SessionManager {
  readonly #heard = new WeakSet<Http2Session>();

  constructor(
    baseUrl: string,
    pings: ConstructorParameters<typeof Http2SessionManager>[1],
    options: ClientSessionOptions | SecureClientSessionOptions = {},
  ) {
    super(baseUrl, pings, { maxSessionMemory: MAX_SESSION_MEMORY, ...options });
  }

  override async request(...given: Parameters<Http2SessionManager["request"]>): Promise<ClientHttp2Stream> {
    const stream = await super.request(...given);
    const { session } = stream;
    if (session && !this.#heard.has(session)) {
      this.#heard.add(session);
      // The library stops listening once it knows that the connection is broken, and Node reports the error after that.
      session.on("error", () => {});
    }
    // The library closes the stream of such a call, and Node ends a closed stream in order before it resets it: the
    // service could mistake half an upload for a whole one. A stream destroyed with an error is only reset.
    const close = stream.close.bind(stream);
    stream.close = (code, callback) => {
      // Without a callback it is Node that closes the streams of a connection which broke.
      if (!code || !callback || stream.closed || stream.destroyed) return close(code, callback);
      stream.once("close", callback);
      stream.destroy(new Error(`the call was broken off (HTTP/2 error ${code})`));
    };
    return stream;
  }
}
