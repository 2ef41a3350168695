import { type Duplex, Writable } from "node:stream";
import type Dockerode from "dockerode";
import type { Containers } from "./containers.ts";
import { filling } from "./http.ts";
import { Counter, type Peer, type PeerContext, type PeerSandbox, type Result } from "./peer.ts";

/** Docker's own exec, which everyone builds first. It has no timeout, so the caller simply leaves. */
export function dockerExec({ image }: PeerContext, containers: Containers): Peer {
  return {
    name: "docker exec",
    pids: [],
    create: async () => {
      const container = await containers.idle(image);
      return sandboxOf(container, containers.docker);
    },
    close: async () => {},
  };
}

function sandboxOf(container: Dockerode.Container, docker: Dockerode): PeerSandbox {
  const start = async (argv: string[], stdin = false): Promise<{ exec: Dockerode.Exec; stream: Duplex }> => {
    const exec = await container.exec({
      ...{ Cmd: argv, AttachStdin: stdin, AttachStdout: true, AttachStderr: true },
    });
    return { exec, stream: await exec.start({ hijack: true, stdin }) };
  };
  return {
    containerId: async () => container.id,
    run: async (line, { timeoutMs } = {}): Promise<Result> => {
      const { exec, stream } = await start(["/bin/sh", "-c", line]);
      const stdout: Buffer[] = [];
      const stderr: Buffer[] = [];
      const into = (chunks: Buffer[]): Writable => writable((chunk) => chunks.push(chunk));
      docker.modem.demuxStream(stream, into(stdout), into(stderr));
      const timer = timeoutMs && setTimeout(() => stream.destroy(), timeoutMs);
      await new Promise((resolve) => stream.once("close", resolve));
      clearTimeout(timer || undefined);
      const { ExitCode } = await exec.inspect();
      const exitCode = ExitCode ?? undefined;
      return { stdout: Buffer.concat(stdout), stderr: Buffer.concat(stderr), exitCode };
    },
    upload: async (path, bytes) => {
      const { exec, stream } = await start(["/bin/sh", "-c", `cat > ${path}`], true);
      stream.resume();
      for (const part of filling(bytes)) {
        if (!stream.write(part)) await new Promise((resolve) => stream.once("drain", resolve));
      }
      stream.end();
      await new Promise((resolve) => stream.once("close", resolve));
      const { ExitCode } = await exec.inspect();
      if (ExitCode !== 0) throw new Error(`cat ended with ${ExitCode}`);
    },
    download: async (path, bytes) => {
      const counter = new Counter();
      const { stream } = await start(["cat", path]);
      docker.modem.demuxStream(
        stream,
        writable(counter.take),
        writable(() => {}),
      );
      await new Promise((resolve) => stream.once("close", resolve));
      counter.expect(bytes);
    },
    remove: () => container.remove({ force: true }),
  };
}

function writable(take: (chunk: Buffer) => void): Writable {
  return new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      take(chunk);
      done();
    },
  });
}
