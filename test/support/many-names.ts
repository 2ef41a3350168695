/** The most links that ext4 allows to a file is 65,000. */
const MAX_LINKS = 60_000;

/**
 * A shell command that makes files, named by number in `format`, in its current directory. They are links to as few
 * files as possible: on an ext4 without a journal a new file takes up to 0.5 ms after many were deleted, because the
 * kernel looks for one that was not deleted lately.
 */
export function manyNames(count: number, format = "%d"): string {
  return `perl -e '
    for my $i (1 .. ${count}) {
      my $name = sprintf("${format}", $i);
      if ($i % ${MAX_LINKS} == 1) { open(my $file, ">", $name) or die $!; $first = $name }
      else { link($first, $name) or die $! }
    }'`;
}
