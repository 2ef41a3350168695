import { withoutVanished } from "../failure.ts";

/** What tars say, in both makes, of what they rightly leave out. */
const LEFT_OUT =
  /(socket ignored|unknown file type|file (removed before|changed as) we read it|shrank by .*|error exit delayed.*|Exiting with failure status.*)$/;

/** GNU's tar ends with 1 or 2, busybox's with 1. */
export const LAST_CODE_OF_TAR = 2;

/** What a tar complained of, without what it rightly left out and files that went meanwhile. */
export function complaintsOf(stderr: string): string[] {
  return withoutVanished(stderr)
    .split("\n")
    .filter((line) => line !== "" && !LEFT_OUT.test(line));
}
