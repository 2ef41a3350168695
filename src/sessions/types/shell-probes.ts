/**
 * What lanes are asked about an interpreter's processes; plain `sh` of dash,
 * bash and busybox, builtins alone. Each leaves its answer in $r.
 */

/**
 * Signals the interpreter, then what descends from it and is not in `spare`:
 * itself first, so that it takes the end of a child for an interruption.
 */
export function interruptProbe(pid: number, spare: Iterable<number>, signals: SignalPair): string {
  const { own, children } = signals;
  return `s=" ${pid} " v=" ${[...spare].join(" ")} " o=1
while [ $o ]; do o=
for d in /proc/[0-9]*; do q=\${d#/proc/}
case "$s$v" in *" $q "*) continue;; esac
x=; read -r x <$d/stat || continue
set -- \${x##*) }
case $s in *" $2 "*) s="$s$q " o=1;; esac
done; done
${own > 0 ? `kill -${own} ${pid}` : ":"}
for q in $s; do [ $q = ${pid} ] || kill -${children} $q; done
r=y`;
}

/** Which signals an interruption sends; 0: none. */
export interface SignalPair {
  readonly own: number;
  readonly children: number;
}

/**
 * Whether any process but those of `spare` holds one of two pipes: answers `y`
 * or `n`. Who hides its descriptors is taken for a holder.
 */
export function holdersProbe(
  pipes: { readonly stdout: string; readonly stderr: string },
  spare: Iterable<number>,
): string {
  return `v=" $$ ${[...spare].join(" ")} " r=n l=
while [ "$l" != "$v" ] && [ $r = n ]; do l=$v
for d in /proc/[0-9]*; do q=\${d#/proc/}
case $v in *" $q "*) continue;; esac
k=y
for f in $d/fd/*; do
if [ $f -ef ${pipes.stdout} ] || [ $f -ef ${pipes.stderr} ]; then r=y; break 2; fi
[ -e $f ] || [ -L $f ] || k=
done
if [ $k ]; then v="$v$q "
elif [ -d $d ] && ! [ -r $d/fd ]; then r=y; break
elif [ -d $d ]; then v="$v$q "; fi
done; done`;
}
