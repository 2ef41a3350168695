/** What tars say, in both makes, of what they rightly leave out or take as it is just then. */
const LEFT_OUT =
  /(socket ignored|unknown file type(; file ignored)?|file (removed before|changed as) we read it|shrank by .*|error exit delayed.*|Exiting with failure status.*)$/i;

/** How it looks to a tar that something went, or became something else, between two looks at it. */
const CHANGED =
  /: (no such file or directory|not a directory|is a directory|too many levels of symbolic links|invalid argument|no such device or address|stale file handle)$/i;

/** GNU's tar ends with 1 or 2, busybox's with 1. */
export const LAST_CODE_OF_TAR = 2;

/** What a tar complained of, without what it rightly left out and files that changed meanwhile. */
export function complaintsOf(stderr: string): string[] {
  return stderr.split("\n").filter((line) => line !== "" && !LEFT_OUT.test(line) && !CHANGED.test(line));
}
