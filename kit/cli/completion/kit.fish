# fish completion of kit. Written by: kit completion fish
function __kit_complete
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    set -l current (commandline -ct)
    set -l lines (command $program __complete fish $words "$current" 2>/dev/null)
    switch "$lines[1]"
        case ':files'
            __fish_complete_path "$current"
        case ':folders'
            __fish_complete_directories "$current"
        case '*'
            printf '%s\n' $lines
    end
end
complete -c kit -f -a '(__kit_complete)'
complete -c gpu-kit -f -a '(__kit_complete)'
