# Sourced by scripts which run in a mount namespace of their own, as root: other users get at directories which
# are below a directory that only its owner may enter, such as a checkout in a home directory of mode 0700. The
# paths stay the same.

# Prints the first directory of a path, without the last one, which others may not enter; nothing if there is none.
closed_above() { # path
    above=
    rest=${1#/}
    while [ "$rest" != "${rest#*/}" ]; do
        above=$above/${rest%%/*}
        rest=${rest#*/}
        case $(stat -L -c %A "$above") in
        *[xt]) ;;
        *) echo "$above"; return ;;
        esac
    done
}

for_others() { # empty directory for mount points, paths
    places=$1
    shift
    number=0
    for path; do
        number=$((number + 1))
        mkdir "$places/$number"
        mount --bind "$path" "$places/$number"
    done
    number=0
    for path; do
        number=$((number + 1))
        closed=$(if [ -e "$path" ]; then closed_above "$path"; fi)
        if [ -e "$path" ] && [ -z "$closed" ]; then continue; fi
        if [ -n "$closed" ]; then mount -t tmpfs -o mode=755 none "$closed"; fi
        mkdir -p "$path"
        mount --bind "$places/$number" "$path"
    done
}
