#compdef kit gpu-kit
# zsh completion of kit. Written by: kit completion zsh
_kit() {
  local line value
  local -a lines described
  lines=("${(@f)$("${words[1]/#\~/$HOME}" __complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  case ${lines[1]} in
    # Of --flag=PATH, only the path is a file.
    :files) compset -P '--*='; _files; return ;;
    :folders) compset -P '--*='; _files -/; return ;;
    '') return 1 ;;
  esac
  for line in "${lines[@]}"; do
    # _describe takes VALUE:DESCRIPTION, with a backslash before each colon of the value.
    value=${${line%%$'\t'*}//:/\\:}
    [[ $line = *$'\t'* ]] && value+=":${line#*$'\t'}"
    described+=("$value")
  done
  _describe kit described
}
# Read with source or eval, it registers itself; in a folder of $fpath, compinit calls it.
if [[ ${funcstack[1]} = _kit ]]; then
  _kit "$@"
else
  compdef _kit kit gpu-kit
fi
