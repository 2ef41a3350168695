/** The connection of an RFB client: bytes in order, both ways. */
export interface RfbLink {
  /** What the server sends. Ends with the connection. */
  readonly incoming: AsyncIterator<Uint8Array>;
  send(data: Uint8Array): Promise<void>;
  close(): void;
}

/** A part of the screen from the server. */
interface Update {
  readonly rectangles: number;
  readonly bytes: number;
}

const RAW = 0;
const DESKTOP_SIZE = -223;

/** A minimal client of RFB 3.8 (RFC 6143): raw encoding, 32 bits per pixel. It fails on anything that is not RFB. */
export class RfbClient {
  readonly #link: RfbLink;
  #held: Buffer = Buffer.alloc(0);
  #frame: Buffer;
  /** Bytes received. */
  received = 0;
  width: number;
  height: number;

  private constructor(link: RfbLink) {
    this.#link = link;
    this.width = 0;
    this.height = 0;
    this.#frame = Buffer.alloc(0);
  }

  /** Makes the handshake. */
  static async connect(link: RfbLink): Promise<RfbClient> {
    const client = new RfbClient(link);
    const version = (await client.#read(12)).toString();
    if (version !== "RFB 003.008\n") throw new Error(`no RFB 3.8: ${JSON.stringify(version)}`);
    await link.send(Buffer.from(version));
    const [count = 0] = await client.#read(1);
    if (!(await client.#read(count)).includes(1)) throw new Error("it asks for authentication");
    await link.send(Buffer.from([1]));
    if ((await client.#read(4)).readUInt32BE() !== 0) throw new Error("it refuses the client");
    await link.send(Buffer.from([1]));
    const init = await client.#read(24);
    client.#resize(init.readUInt16BE(0), init.readUInt16BE(2));
    await client.#read(init.readUInt32BE(20));
    // Little-endian 0xRRGGBB, whatever the server prefers.
    const format = Buffer.from([0, 0, 0, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0]);
    const encodings = Buffer.alloc(12);
    encodings.writeUInt8(2);
    encodings.writeUInt16BE(2, 2);
    encodings.writeInt32BE(RAW, 4);
    encodings.writeInt32BE(DESKTOP_SIZE, 8);
    await link.send(Buffer.concat([format, encodings]));
    return client;
  }

  /** Requests the screen and waits for a part of it. @param incremental whether to get only changes. */
  async update(incremental: boolean): Promise<Update> {
    await this.request(incremental);
    return this.receive();
  }

  /** Requests the screen. */
  async request(incremental: boolean): Promise<void> {
    const request = Buffer.alloc(10);
    request.writeUInt8(3);
    request.writeUInt8(incremental ? 1 : 0, 1);
    request.writeUInt16BE(this.width, 6);
    request.writeUInt16BE(this.height, 8);
    await this.#link.send(request);
  }

  /** Waits for a part of the screen. */
  async receive(): Promise<Update> {
    for (;;) {
      const [type] = await this.#read(1);
      if (type === 0) return this.#takeUpdate();
      if (type === 3) {
        await this.#read((await this.#read(7)).readUInt32BE(3));
      } else if (type !== 2) throw new Error(`no message of RFB: ${type}`);
    }
  }

  /** The last known color of a pixel, as 0xRRGGBB. */
  pixel(x: number, y: number): number {
    return this.#frame.readUInt32LE((y * this.width + x) * 4) & 0xff_ff_ff;
  }

  /** Updates until the condition holds. */
  async until(wanted: () => boolean, timeoutMs = 60_000): Promise<void> {
    const end = performance.now() + timeoutMs;
    while (!wanted()) {
      if (performance.now() > end) throw new Error(`the screen is not as wanted within ${timeoutMs} ms`);
      await this.update(false);
    }
  }

  async pointer(x: number, y: number, buttons = 0): Promise<void> {
    const event = Buffer.from([5, buttons, 0, 0, 0, 0]);
    event.writeUInt16BE(x, 2);
    event.writeUInt16BE(y, 4);
    await this.#link.send(event);
  }

  /** Presses and releases the key of an X keysym. */
  async key(symbol: number): Promise<void> {
    const events = Buffer.alloc(16);
    for (const [at, down] of [1, 0].entries()) {
      events.writeUInt8(4, at * 8);
      events.writeUInt8(down, at * 8 + 1);
      events.writeUInt32BE(symbol, at * 8 + 4);
    }
    await this.#link.send(events);
  }

  /** Types text, with Return for a line feed. */
  async type(text: string): Promise<void> {
    for (const character of text) {
      const code = character.codePointAt(0) ?? 0;
      await this.key(character === "\n" ? 0xff0d : code < 0x100 ? code : 0x1000000 + code);
    }
  }

  close(): void {
    this.#link.close();
  }

  #resize(width: number, height: number): void {
    this.width = width;
    this.height = height;
    this.#frame = Buffer.alloc(width * height * 4);
  }

  async #takeUpdate(): Promise<Update> {
    const rectangles = (await this.#read(3)).readUInt16BE(1);
    const before = this.received;
    for (let count = 0; count < rectangles; count++) {
      const head = await this.#read(12);
      const [x, y, width, height] = [0, 2, 4, 6].map((at) => head.readUInt16BE(at)) as [
        number,
        number,
        number,
        number,
      ];
      const encoding = head.readInt32BE(8);
      if (encoding === DESKTOP_SIZE) this.#resize(width, height);
      else if (encoding === RAW && x + width <= this.width && y + height <= this.height) {
        const pixels = await this.#read(width * height * 4);
        for (let row = 0; row < height; row++) {
          pixels.copy(this.#frame, ((y + row) * this.width + x) * 4, row * width * 4, (row + 1) * width * 4);
        }
      } else throw new Error(`no rectangle that was asked for: ${[x, y, width, height, encoding]}`);
    }
    return { rectangles, bytes: this.received - before };
  }

  async #read(bytes: number): Promise<Buffer> {
    const chunks = [this.#held];
    let size = this.#held.length;
    while (size < bytes) {
      const next = await this.#link.incoming.next();
      if (next.done) throw new Error("the connection ended");
      const chunk = Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength);
      this.received += chunk.length;
      size += chunk.length;
      chunks.push(chunk);
    }
    const all = Buffer.concat(chunks);
    this.#held = all.subarray(bytes);
    return all.subarray(0, bytes);
  }
}
