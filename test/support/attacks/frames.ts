import { once } from "node:events";
import { constants } from "node:http2";
import net from "node:net";

/** Frame types (RFC 9113, 6). */
export const FRAME = {
  data: 0,
  headers: 1,
  reset: 3,
  settings: 4,
  ping: 6,
  window: 8,
  continuation: 9,
} as const;
/** Frame flags. */
export const FLAG = { ack: 1, endStream: 1, endHeaders: 4 } as const;

/** An HTTP/2 frame, well-formed or not. */
export function frame(type: number, flags: number, stream: number, payload: Uint8Array = new Uint8Array()) {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** A RST_STREAM frame, with a code from RFC 9113, 7. */
export function reset(stream: number, code: number = constants.NGHTTP2_CANCEL): Buffer {
  return frame(FRAME.reset, 0, stream, uint32(code));
}

/** Four bytes, big-endian. */
export function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** A literal header field (RFC 7541, 6.2). `indexed`: adds it to the other end's table, as {@link NEWEST}. */
export function field(name: string, value: string, indexed = false): Buffer {
  return Buffer.concat([Buffer.from([indexed ? 0x40 : 0]), text(name), text(value)]);
}

/** The newest entry of the dynamic table, in one byte: number 62, after the 61 static entries. */
export const NEWEST = 0x80 | 62;

/** The header fields of a POST. */
export function postFields(authority: string, path: string, contentType: string): Buffer {
  const fields = {
    ":method": "POST",
    ":scheme": "http",
    ":path": path,
    ":authority": authority,
    "content-type": contentType,
    te: "trailers",
  };
  return Buffer.concat(Object.entries(fields).map(([name, value]) => field(name, value)));
}

/** A string in a header field, after its length with a prefix of 7 bits (RFC 7541, 5.1). */
function text(value: string): Buffer {
  const bytes = Buffer.from(value, "latin1");
  const length: number[] = [];
  if (bytes.length < 127) length.push(bytes.length);
  else {
    length.push(127);
    let rest = bytes.length - 127;
    for (; rest >= 128; rest >>>= 7) length.push((rest & 0x7f) | 0x80);
    length.push(rest);
  }
  return Buffer.concat([Buffer.from(length), bytes]);
}

const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/** The first bytes of an HTTP/2 client: the preface and settings, as pairs of number and value. */
export function opening(settings: readonly (readonly [number, number])[] = []): Buffer {
  const pairs = settings.map(([id, value]) => {
    const pair = Buffer.alloc(6);
    pair.writeUInt16BE(id);
    pair.writeUInt32BE(value, 2);
    return pair;
  });
  return Buffer.concat([Buffer.from(PREFACE), frame(FRAME.settings, 0, 0, Buffer.concat(pairs))]);
}

/** A connection that sends arbitrary bytes, and expects to be closed. */
export class RawConnection {
  readonly socket: net.Socket;

  private constructor(socket: net.Socket) {
    this.socket = socket;
  }

  static async open(address: string): Promise<RawConnection> {
    const [host = "", port = ""] = address.split(":");
    const socket = net.connect({ host, port: Number(port) });
    await once(socket, "connect");
    socket.on("error", () => {});
    return new RawConnection(socket);
  }

  get closed(): boolean {
    return this.socket.closed || this.socket.destroyed;
  }

  /** Calls `onPing` with the payload of each ping that the other end sends. Drops everything else received. */
  followPings(onPing: (payload: Buffer) => void): this {
    let held = Buffer.alloc(0);
    this.socket.on("data", (chunk: Buffer) => {
      held = Buffer.concat([held, chunk]);
      while (held.length >= 9 && held.length >= 9 + held.readUIntBE(0, 3)) {
        const end = 9 + held.readUIntBE(0, 3);
        const [type, flags] = held.subarray(3, 5);
        if (type === FRAME.ping && flags === 0) onPing(held.subarray(9, end));
        held = held.subarray(end);
      }
    });
    return this;
  }

  /** Reads and drops everything received. */
  ignore(): this {
    this.socket.resume();
    return this;
  }

  /** Sends bytes, and waits if the other end is slow to read. */
  async send(bytes: Uint8Array | string): Promise<void> {
    if (this.closed || this.socket.write(bytes)) return;
    const done = new AbortController();
    const { signal } = done;
    // If the connection is closed meanwhile, the caller reports that.
    const moved = ["drain", "close", "error"].map((event) =>
      once(this.socket, event, { signal }).catch(() => {}),
    );
    await Promise.race(moved);
    done.abort();
  }

  close(): void {
    this.socket.destroy();
  }
}
