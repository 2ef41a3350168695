import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { Api } from "../../src/engine/kubernetes/api.ts";
import { adminKubeconfig } from "./kubernetes.ts";

interface Slices {
  readonly items: readonly {
    readonly ports: readonly { readonly port: number }[] | null;
    readonly endpoints: readonly { readonly addresses: readonly string[] }[] | null;
  }[];
}

/**
 * An address on this machine for a Service of the cluster, which has no kube-proxy. Each connection goes to the pod
 * that is currently the Service's endpoint, and is refused if there is none.
 */
export class ServiceAddress implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server) {
    this.#server = server;
  }

  static async open(namespace: string, service: string): Promise<ServiceAddress> {
    const api = await Api.open({ kubeconfig: adminKubeconfig(), namespace });
    const query = new URLSearchParams({ labelSelector: `kubernetes.io/service-name=${service}` });
    const path = `${api.path("endpointslices", "apis/discovery.k8s.io/v1")}?${query}`;
    const server = createServer({ allowHalfOpen: true });
    const address = new ServiceAddress(server);
    server.on("connection", async (near) => {
      address.#keep(near);
      const slices = await api.call<Slices>("GET", path, "reading endpoints").catch(() => undefined);
      const slice = slices?.items.find(({ endpoints }) => (endpoints ?? []).length > 0);
      const [host, port] = [slice?.endpoints?.[0]?.addresses[0], slice?.ports?.[0]?.port];
      if (host === undefined || port === undefined) {
        near.resetAndDestroy();
        return;
      }
      const far = connect({ host, port, allowHalfOpen: true });
      address.#keep(far);
      near.pipe(far).pipe(near);
      near.on("close", () => far.destroy());
      far.on("close", () => near.resetAndDestroy());
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return address;
  }

  /** `host:port` */
  get address(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket);
    // An error always ends in "close".
    socket.on("error", () => {}).on("close", () => this.#sockets.delete(socket));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, "close");
  }
}
