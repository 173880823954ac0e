# bash completion of kit. Written by: kit completion bash
_kit() {
  local line word rest=$COMP_LINE lead='' i last
  local -a words=()
  COMPREPLY=()
  # bash breaks words at = and :. What has no blank in between is one word.
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    last=$((${#words[@]} - 1))
    if ((last > 0)) && [[ -n $word && $rest == "$word"* ]]; then
      lead=${words[last]}
      words[last]+=$word
    else
      lead=
      words+=("$word")
    fi
    rest=${rest#*"$word"}
  done
  while IFS= read -r line; do
    case $line in
      :files) compopt -o default ;;
      :folders) compopt -o dirnames ;;
      # bash replaces only what is behind the last = or :.
      *)
        line=${line%%$'\t'*}
        COMPREPLY+=("${line#"$lead"}")
        ;;
    esac
  done < <("${1/#\~/$HOME}" __complete bash "${words[@]:1}" 2>/dev/null)
}
complete -F _kit kit gpu-kit
