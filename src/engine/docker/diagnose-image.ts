import type { Finding } from "../../base/diagnosis.ts";
import { BerthError } from "../../base/errors.ts";
import type { Daemon } from "./daemon.ts";
import { answerTo } from "./errors.ts";

/** How long a registry may take to answer. */
const REGISTRY_TIMEOUT_MS = 15_000;

/** Looks whether sandboxes that name no image can be made: theirs is there, or can be pulled. */
export async function diagnoseImage(daemon: Daemon, image: string): Promise<Finding> {
  const subject = "default image";
  if (await isThere(daemon, image)) return { subject, status: "ok", found: `${image} is there` };
  const refusal = await pullRefusal(daemon, image);
  if (refusal === undefined) {
    return { subject, status: "ok", found: `${image} can be pulled, which the first sandbox will do` };
  }
  const others = await localImages(daemon);
  return {
    subject,
    status: "missing",
    found: `${image} is not there, and ${refusal}`,
    mend:
      others.length === 0
        ? `docker pull ${image}`
        : `docker pull ${image}\nor use one that is there (${others.slice(0, 5).join(", ")}): berth serve --default-image IMAGE`,
  };
}

async function isThere(daemon: Daemon, image: string): Promise<boolean> {
  try {
    await daemon.call("looking up an image", (docker) => docker.getImage(image).inspect());
    return true;
  } catch (error) {
    if (answerTo(error)?.statusCode === 404) return false;
    throw error;
  }
}

/** Why the image cannot be pulled; undefined: it can. */
async function pullRefusal(daemon: Daemon, image: string): Promise<string | undefined> {
  try {
    await daemon.call("asking a registry", (docker) => docker.getImage(image).distribution(), {
      timeoutMs: REGISTRY_TIMEOUT_MS,
    });
    return undefined;
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
    const answer = answerTo(error);
    if (answer === undefined) return "its registry does not answer";
    if (/dial tcp|lookup |timeout|connection re|TLS handshake|EOF/i.test(answer.text)) {
      return "its registry cannot be reached";
    }
    return "its registry does not give it out: it does not exist there, or needs a login";
  }
}

async function localImages(daemon: Daemon): Promise<string[]> {
  const images = await daemon.call("listing images", (docker) => docker.listImages());
  return images.flatMap(({ RepoTags }) => RepoTags ?? []).filter((tag) => !tag.startsWith("<none>"));
}
