# fish completion of kit. Written by: kit completion fish
function __kit_complete
    set -l words (commandline -opc)
    set -l program (string replace -r '^~(?=/)' -- "$HOME" $words[1])
    set -e words[1]
    set -l current (commandline -ct)
    set -l lines (command $program __complete fish $words "$current" 2>/dev/null)
    switch "$lines[1]"
        case ':files'
            # Of --flag=PATH, only the path is a file.
            set -l flag (string match -r -- '^--[^=]*=' $current)
            for path in (__fish_complete_path (string replace -r -- '^--[^=]*=' '' $current))
                printf '%s\n' "$flag$path"
            end
        case ':folders'
            __fish_complete_directories "$current"
        case '*'
            printf '%s\n' $lines
    end
end
complete -c kit -f -a '(__kit_complete)'
complete -c gpu-kit -f -a '(__kit_complete)'
