import Docker from "dockerode";

/** Says once, before hundreds of tests do, what is missing. */
export default async function setup(): Promise<void> {
  const docker = new Docker();
  try {
    await docker.ping();
  } catch (error) {
    throw new Error("The tests need a Docker daemon. Run them with: npm test", { cause: error });
  }
}
