/** Calls grep once for many files and once for each with lines to show, which it writes as `grep -Z` does. */
const LINES = `found="
$(grep -lsE -e "$0" -- "$@"; echo /)"
for f do
case $found in *"
$f
"*) ;; *) continue;; esac
[ "$(tr -dc '\\000' <"$f" | head -c 1 | wc -c)" -eq 0 ] || continue
grep -nsE -e "$0" -- "$f" | while IFS= read -r line; do printf '%s\\0%s\\n' "$f" "$line"; done
done`;

/** A pattern is tried first: below the path there may be nothing to complain about it. */
const SEARCH = `echo | grep -E -e "$2" >/dev/null; [ $? -le 1 ] || exit 2
find "$1" -type d -name .git -prune -o -type f -exec sh -c "$3" "$2" {} +`;

/** What does the work of `grep -rnIHEZ --exclude-dir=.git`, by options of grep and tools that busybox has too. */
export function portableGrep(path: string, pattern: string): string[] {
  return ["sh", "-c", SEARCH, "sh", path, pattern, LINES];
}
