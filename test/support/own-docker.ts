import { type ChildProcessWithoutNullStreams, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { eventually } from "./eventually.ts";
import { newDataDir } from "./settings.ts";

const run = promisify(execFile);
const PATIENT = { timeoutMs: 60_000 };
const ENV = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` };
/** Everything inside ends with the first process, and cannot reach the machine's own bridge. */
const NAMESPACES = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];

/**
 * The first process in the namespaces, which takes commands as lines. `containerd` is not the daemon's child: as on a
 * real machine, it outlives a killed daemon, and so do the containers. It removes old pid files, which a daemon would
 * believe.
 */
const SCRIPT = `
set -e
ip link set lo up
mount -t tmpfs none /run
chmod 711 "$1"
mkdir -p "$1/data" "$1/exec" "$1/containerd"
[ -z "$3" ] || for ids in subuid subgid; do
  echo "$3" >"$1/$ids"
  mount --bind "$1/$ids" "/etc/$ids"
done
containerd --root "$1/containerd" --state /run/own --address /run/own.sock &
while read -r what; do
  case $what in
    start)
      rm -f "$1/pid" "$1/exec/containerd/containerd.pid"
      dockerd --host "unix://$1/docker.sock" --containerd /run/own.sock --pidfile "$1/pid" \
        --data-root "$1/data" --exec-root "$1/exec" --live-restore="$2" \
        --bridge=none --iptables=false --ip-forward=false --ip-masq=false \
        \${3:+"--userns-remap=\${3%%:*}"} &
      daemon=$!;;
    kill) kill -9 $daemon; wait $daemon || true;;
  esac
done
`;

export interface OwnDockerOptions {
  /** Whether containers survive a daemon's absence. If not, it ends them when it starts again. */
  readonly liveRestore: boolean;
  /** A line as in `/etc/subuid`: its containers get a user namespace with these ids. */
  readonly subIds?: string;
}

/** A Docker daemon that tests may kill. It has its own namespaces and data, so that it cannot harm the machine's. */
export class OwnDocker {
  readonly #directory = newDataDir();
  readonly #init: ChildProcessWithoutNullStreams;

  private constructor({ liveRestore, subIds = "" }: OwnDockerOptions) {
    const args = [...NAMESPACES, "sh", "-c", SCRIPT, "sh", this.#directory, String(liveRestore), subIds];
    this.#init = spawn("unshare", args, { env: ENV });
    const log = createWriteStream(path.join(this.#directory, "log"));
    this.#init.stdout.pipe(log, { end: false });
    this.#init.stderr.pipe(log, { end: false });
    this.#init.stdin.on("error", () => {});
  }

  /** Starts a daemon with one of the machine's images. */
  static async start(image: string, options: OwnDockerOptions): Promise<OwnDocker> {
    const docker = new OwnDocker(options);
    const archive = path.join(docker.#directory, "image.tar");
    await Promise.all([docker.start(), run("docker", ["save", "--output", archive, image])]);
    await docker.ask(["load", "--input", archive]);
    return docker;
  }

  /** In the form of `DOCKER_HOST`. */
  get host(): string {
    return `unix://${path.join(this.#directory, "docker.sock")}`;
  }

  /** Starts the daemon. Returns when it answers. */
  async start(): Promise<void> {
    this.#init.stdin.write("start\n");
    const answers = (): Promise<boolean> =>
      this.ask(["version"]).then(
        () => true,
        () => false,
      );
    const describe = (): unknown => readFileSync(path.join(this.#directory, "log"), "utf8").slice(-2_000);
    await eventually(answers, { ...PATIENT, describe });
  }

  /** Kills only the daemon. Returns when it no longer answers. */
  async kill(): Promise<void> {
    this.#init.stdin.write("kill\n");
    const silent = (): Promise<boolean> =>
      this.ask(["version"]).then(
        () => false,
        () => true,
      );
    await eventually(silent, PATIENT);
  }

  /** The stdout of a docker command. */
  async ask(args: readonly string[]): Promise<string> {
    return (await run("docker", ["--host", this.host, ...args], { env: ENV })).stdout;
  }

  /** Ids of its containers, in any state. */
  async containers(): Promise<string[]> {
    return (await this.ask(["ps", "--all", "--quiet"])).split("\n").filter((id) => id !== "");
  }

  /** Stops it with everything that it runs. */
  async stop(): Promise<void> {
    const ids = await this.containers();
    // Their control groups are the machine's, and would stay.
    if (ids.length > 0) await this.ask(["rm", "--force", ...ids]);
    const ended = once(this.#init, "close");
    this.#init.stdin.end();
    await ended;
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
