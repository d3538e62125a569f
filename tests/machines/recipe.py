"""What a machine's image holds. Whatever is in here is part of the key it is cached by."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements.txt"

PACKAGES = """
systemd-sysv libpam-systemd dbus udev kmod initramfs-tools zstd linux-image-cloud-amd64
openssh-server sudo python3 python3-venv curl ca-certificates procps iproute2
nftables iptables docker.io apparmor e2fsprogs xfsprogs btrfs-progs
""".split()

# Nobody reads these in there, and unpacking them is most of the time that dpkg takes.
LEFT_OUT = ["/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*"]

FILES = {
    "etc/hostname": "machine\n",
    "etc/hosts": "127.0.0.1 localhost machine\n::1 localhost\n",
    "etc/fstab": "/dev/vda / ext4 defaults 0 1\n",
    # QEMU's own network, without asking for an address: that would take seconds of each boot.
    "etc/systemd/network/10-machine.network": (
        "[Match]\nName=e*\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\nIPv6AcceptRA=no\nLinkLocalAddressing=no\n"
    ),
    "etc/resolv.conf": "nameserver 10.0.2.3\n",
    "etc/sudoers.d/dev": "dev ALL=(ALL) NOPASSWD: ALL\n",
    # What the kernel needs until it has its disk; everything that it might need takes longer to unpack.
    "etc/initramfs-tools/conf.d/machine": "MODULES=list\n",
    "etc/initramfs-tools/modules": "virtio_pci\nvirtio_blk\nvirtio_net\n",
    # Keys of the host are made once, in the image: they keep nothing secret here.
    "etc/ssh/sshd_config.d/machine.conf": "UseDNS no\nPermitRootLogin prohibit-password\nMaxSessions 50\n",
}

# In the image's root, in this order. Docker is there, and off until a check wants it.
COMMANDS = [
    "useradd -m -s /bin/bash dev",
    "chmod 440 /etc/sudoers.d/dev",
    "systemctl enable -q systemd-networkd ssh apparmor",
    "systemctl disable -q docker.service docker.socket containerd.service",
    "systemctl mask -q apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer"
    " systemd-networkd-wait-online.service getty@tty1.service e2scrub_reap.service",
    "update-initramfs -u",
    "python3 -m venv /opt/venv",
    "/opt/venv/bin/pip install -q --no-index --find-links /opt/wheels e2b",
    "rm -rf /opt/wheels",
]


@dataclass(frozen=True)
class Recipe:
    name: str
    suite: str  # of the distribution
    kernel: str  # how its version begins, or the first that it may be
    python: str  # for which the packages of the SDK are fetched
    qemu: int = 0  # the first that boots its kernel without KVM

    @property
    def e2b(self) -> str:
        lines = REQUIREMENTS.read_text().splitlines()
        return next(line.strip() for line in lines if line.startswith("e2b=="))

    @property
    def key(self) -> str:
        whole = [asdict(self), self.e2b, PACKAGES, LEFT_OUT, FILES, COMMANDS]
        digest = hashlib.sha256(json.dumps(whole).encode()).hexdigest()
        return f"{self.name}-{digest[:16]}"


MACHINES = {
    each.name: each
    for each in (
        Recipe("debian12", "bookworm", kernel="6.1", python="3.11"),
        # Its kernel panics early in the emulation of QEMU 7.2.
        Recipe("debian13", "trixie", kernel="6.12", python="3.13", qemu=8),
    )
}
