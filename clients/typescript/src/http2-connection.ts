import type { ClientHttp2Stream } from "node:http2";
import { Http2SessionManager } from "@connectrpc/connect-node";

/** A connection on which an interrupted call never looks complete. */
export class Http2Connection extends Http2SessionManager {
  override async request(...given: Parameters<Http2SessionManager["request"]>): Promise<ClientHttp2Stream> {
    const stream = await super.request(...given);
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
