/** The supported shells. */
export type Shell = "bash" | "zsh" | "fish";

/**
 * The script for each shell. It only knows how to ask the program: `berth completion SHELL -- WORD…` with the words
 * from after the program's name up to the cursor. The first line of the answer is `files` or `words`: whether files are
 * allowed too. Then follow candidates, one per line, each with a tab and its description.
 */
export const SCRIPTS: Readonly<Record<Shell, string>> = {
  bash: `# Completion of berth for bash. To load it: source <(berth completion bash)
_berth() {
  local line=\${COMP_LINE:0:COMP_POINT} words=() cur word prefix= breaks= kind= i
  # Bash also splits words at : and =. A piece without a space before it belongs to the previous word.
  for ((i = 0; i < COMP_CWORD; i++)); do
    word=\${COMP_WORDS[i]}
    if ((i > 0)) && [[ $line != [[:space:]]* ]]; then
      words[\${#words[@]} - 1]+=$word
    else
      words+=("$word")
    fi
    line=\${line#*"$word"}
  done
  if [[ $line == [[:space:]]* ]]; then
    words+=("\${line#"\${line%%[![:space:]]*}"}")
  else
    words[\${#words[@]} - 1]+=$line
  fi
  # As typed, a space in a name has a backslash before it.
  words=("\${words[@]//\\\\/}")
  cur=\${words[\${#words[@]} - 1]}
  # Only the part after the last of them is replaced.
  [[ $COMP_WORDBREAKS == *:* ]] && breaks+=:
  [[ $COMP_WORDBREAKS == *=* ]] && breaks+==
  [[ -n $breaks ]] && prefix=\${cur%"\${cur##*[$breaks]}"}
  COMPREPLY=()
  while IFS=$'\\t' read -r word _; do
    if [[ -z $kind ]]; then
      kind=$word
    else
      printf -v word %q "\${word#"$prefix"}"
      COMPREPLY+=("$word")
    fi
  done < <(berth completion bash -- "\${words[@]:1}" 2>/dev/null)
  if [[ $kind == files && \${#COMPREPLY[@]} == 0 ]]; then
    compopt -o default 2>/dev/null
  elif [[ $kind == files ]]; then
    while IFS= read -r word; do
      printf -v word %q "$word"
      COMPREPLY+=("$word")
    done < <(compgen -f -- "$cur")
  fi
  if [[ \${#COMPREPLY[@]} == 1 && \${COMPREPLY[0]} == *[/:=] ]]; then
    compopt -o nospace 2>/dev/null
  fi
}
complete -F _berth berth
`,
  zsh: `#compdef berth
# Completion of berth for zsh. To load it, behind compinit: source <(berth completion zsh)
_berth() {
  local -a lines whole open
  local line value described found=1
  lines=("\${(@f)$(berth completion zsh -- "\${(@Q)words[2,CURRENT-1]}" "\${(Q)PREFIX}" 2>/dev/null)}")
  for line in "\${(@)lines[2,-1]}"; do
    value=\${line%%$'\\t'*}
    described="\${value//:/\\\\:}:\${line#*$'\\t'}"
    if [[ $value == *[/:=] ]]; then open+=("$described"); else whole+=("$described"); fi
  done
  (( $#whole )) && _describe -t values berth whole && found=0
  (( $#open )) && _describe -t values berth open -S '' && found=0
  [[ $lines[1] == files ]] && _files && found=0
  return found
}
if [[ $funcstack[1] == _berth ]]; then _berth "$@"; else compdef _berth berth; fi
`,
  fish: `# Completion of berth for fish. To load it: berth completion fish | source
function __berth_words
    set -l before (commandline -opc)
    # As typed, a space in a name has a backslash before it, or is in quotes that may be open.
    set -l current
    for quote in '' \\' \\"
        set current (string unescape -- (commandline -ct)$quote)
        and break
    end
    set -l lines (berth completion fish -- $before[2..-1] "$current" 2>/dev/null)
    string join \\n -- $lines[2..-1]
    test "$lines[1]" = files; and __fish_complete_path "$current"
end
complete -c berth -f -a '(__berth_words)'
`,
};
