import type { Client, Request } from "./client.ts";
import { RfbClient, type RfbLink } from "./rfb.ts";
import type { WireViewStarted } from "./wire-sessions.ts";

/** A view of a session over the API, with an RFB client. */
export interface ApiView {
  readonly started: WireViewStarted;
  readonly rfb: RfbClient;
  /** The connection for its input. */
  readonly link: RfbLink;
}

/** Opens a view of a worker's desktop. */
export async function openView(client: Client, workerId: string, more: Request = {}): Promise<ApiView> {
  const stream = client.stream("SessionService/ViewSession", { worker_id: workerId, ...more });
  const items = stream[Symbol.asyncIterator]();
  const { value: first } = await items.next();
  if (first?.started === undefined) throw new Error(`it began with ${JSON.stringify(first)}`);
  const { started } = first;
  let offset = 0;
  const incoming = (async function* () {
    for (let next = await items.next(); !next.done; next = await items.next()) {
      if (next.value.data !== undefined && next.value.event === "data") yield next.value.data;
    }
  })();
  const link = {
    incoming,
    send: async (data: Uint8Array) => {
      const request = { process_id: started.process_id, offset, data };
      offset += data.length;
      await client.call("ProcessService/WriteStdin", request);
    },
    close: () => stream.cancel(),
  };
  return { started, link, rfb: await RfbClient.connect(link) };
}
