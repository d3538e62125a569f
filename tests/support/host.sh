# Sourced by ./serve, ./test and ./storm: what the host must have.

need_program() { # name, what to do about it
    if ! command -v "$1" > /dev/null; then
        echo "$1 is missing: $2" >&2
        exit 1
    fi
}

# Before anything takes its time: who is not root goes on as root, or cannot.
need_sudo() { # what needs it
    [ "$(id -u)" -eq 0 ] && return
    if ! command -v sudo > /dev/null; then
        echo "$1 needs root, and there is no sudo here: run it as root" >&2
        exit 2
    fi
}

build_release() {
    echo "building target/release/soulbox: the first time takes about eight minutes on two cores" >&2
    cargo build --release -p soulbox
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

# Only its programs, where there is apt: tests start servers of their own, and those for which there
# are no programs are skipped. The package would make a database on this machine and start it.
need_postgres() {
    local settings=/etc/postgresql-common/createcluster.d
    compgen -G '/usr/lib/postgresql/*/bin/postgres' > /dev/null && return
    command -v apt-get > /dev/null || return 0
    as_root mkdir -p "$settings"
    echo 'create_main_cluster = false' | as_root tee "$settings/soulbox-tests.conf" > /dev/null
    need_packages postgres-of-postgresql:postgresql
    as_root rm -f "$settings/soulbox-tests.conf"
    as_root rmdir --ignore-fail-on-non-empty "$settings"
}
