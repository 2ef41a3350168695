import type { Duplex } from "node:stream";
import Dockerode from "dockerode";

/** Docker without Berth: what the rows are compared with. */
export class RawDocker {
  readonly #docker = new Dockerode();
  readonly #label: string;
  readonly #image: string;

  constructor(instance: string, image: string) {
    this.#label = instance;
    this.#image = image;
  }

  /** `create` and `start` of a container like a sandbox's: no network, an init, limits, and an idle command. */
  async start(): Promise<Dockerode.Container> {
    const container = await this.#docker.createContainer({
      Image: this.#image,
      Cmd: ["sleep", "infinity"],
      Labels: { "berth.bench": this.#label },
      HostConfig: {
        NetworkMode: "none",
        Init: true,
        Memory: 512 * 1024 * 1024,
        PidsLimit: 512,
        LogConfig: { Type: "none", Config: {} },
      },
    });
    await container.start();
    return container;
  }

  /**
   * A `docker exec`, with its output read to the end, and the inspect that returns the exit code. Returns the bytes
   * read.
   */
  async exec(container: Dockerode.Container, argv: readonly string[]): Promise<number> {
    const exec = await container.exec({ Cmd: [...argv], AttachStdout: true, AttachStderr: true });
    const stream: Duplex = await exec.start({ hijack: true, stdin: false });
    let bytes = 0;
    for await (const chunk of stream) bytes += (chunk as Buffer).length;
    const { ExitCode: code } = await exec.inspect();
    if (code !== 0) throw new Error(`docker exec ended with ${code}`);
    return bytes;
  }

  /** Removes every container started here. */
  async removeAll(): Promise<void> {
    const filters = { label: [`berth.bench=${this.#label}`] };
    const all = await this.#docker.listContainers({ all: true, filters });
    await Promise.all(all.map(({ Id }) => this.#docker.getContainer(Id).remove({ force: true })));
  }
}
