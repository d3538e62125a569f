# Sourced by ./serve and ./test: what the host must have.

need_program() { # name, what to do about it
    if ! command -v "$1" > /dev/null; then
        echo "$1 is missing: $2" >&2
        exit 1
    fi
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Each word is program:package. Installs the packages whose program is missing, if there is apt.
need_packages() {
    local pair missing=()
    for pair in "$@"; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" > /dev/null || missing+=("${pair#*:}")
    done
    [ ${#missing[@]} -eq 0 ] && return
    if ! command -v apt-get > /dev/null; then
        echo "please install these first, under the names that your system gives them: ${missing[*]}" >&2
        exit 1
    fi
    echo "installing: ${missing[*]}" >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "${missing[@]}" \
        || { as_root apt-get update -q \
            && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "${missing[@]}"; }
}
