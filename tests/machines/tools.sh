# Sourced by run: installs what machines are made and booted with, where there is apt.

machine_tools=(qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils mmdebstrap:mmdebstrap ssh:openssh-client
    ssh-keygen:openssh-client mke2fs:e2fsprogs)
oldest_qemu=8

have_machine_tools() {
    local pair
    for pair in "${machine_tools[@]}"; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" > /dev/null || return 1
    done
}

qemu_version() { qemu-system-x86_64 --version 2> /dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p'; }

need_machine_tools() {
    if have_machine_tools && [ "$(qemu_version)" -ge "$oldest_qemu" ]; then return; fi
    if ! command -v apt-get > /dev/null; then
        have_machine_tools && return # an older QEMU boots older kernels
        echo "please install QEMU (system emulator and qemu-img), mmdebstrap, ssh and e2fsprogs first" >&2
        return 1
    fi
    # A newer QEMU first: the one of Debian 12 cannot boot newer kernels.
    [ "$(qemu_candidate)" -ge "$oldest_qemu" ] || install_newer_qemu \
        || echo "no newer QEMU can be had: machines with newer kernels will be skipped" >&2
    (need_packages "${machine_tools[@]}") || return 1
    have_machine_tools
}

# The version that apt would install, or 0.
qemu_candidate() {
    local found
    found=$(LC_ALL=C apt-cache policy qemu-system-x86 2> /dev/null | sed -n 's/.*Candidate: \([0-9]*:\)\?\([0-9]*\).*/\2/p')
    echo "${found:-0}"
}

# From the backports, at the place where apt gets Debian's packages anyway. apt is told of them for
# this one call only: neither its sources nor its lists change.
install_newer_qemu() {
    local codename uri keyring apt=(-o APT::Get::Assume-Yes=true) dir
    codename=$(. /etc/os-release && [ "${ID:-}" = debian ] && echo "${VERSION_CODENAME:-}")
    [ -n "$codename" ] || return 1
    read -r uri keyring < <(PYTHONDONTWRITEBYTECODE=1 python3 tests/machines/sources.py) || return 1
    dir=$(mktemp -d "$work/apt.XXXXXX") && mkdir -p "$dir/parts" "$dir/lists/partial" || return 1
    cp /etc/apt/sources.list.d/* "$dir/parts/" 2> /dev/null
    echo "deb [signed-by=$keyring] $uri $codename-backports main" > "$dir/parts/machines-backports.list"
    apt+=(-o "Dir::Etc::SourceParts=$dir/parts" -o "Dir::State::Lists=$dir/lists")
    # Read by a user of apt's own.
    chmod -R a+rX "$work"
    echo "installing QEMU from $codename-backports" >&2
    apt-get -q "${apt[@]}" update > /dev/null \
        && DEBIAN_FRONTEND=noninteractive apt-get -q "${apt[@]}" install --no-install-recommends -t "$codename-backports" \
            qemu-system-x86 qemu-utils
}
