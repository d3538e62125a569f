# Makes an image fit for sandboxes. $1: the default user; $2: `sudo` when ours was put in.
set -eu
umask 022

# What the user is to see, of all that package managers print.
tell() {
  printf 'soulbox: %s\n' "$*"
}

lacks() {
  ! command -v "$1" > /dev/null 2>&1
}

has_authorities() {
  [ -s /etc/ssl/certs/ca-certificates.crt ] || [ -s /etc/pki/tls/certs/ca-bundle.crt ] ||
    [ -s /etc/ssl/ca-bundle.pem ] || [ -s /etc/ssl/cert.pem ]
}

mkdir -p /tmp /var/tmp /home /root /etc/ssl/certs
chmod 1777 /tmp /var/tmp

# Before anything is fetched: the way out may need them.
authorities=/usr/local/share/ca-certificates/soulbox.crt
trust() {
  [ -s "$authorities" ] || return 0
  # A line of our own, which also survives what distributions do with such files.
  mark=$(head -n 1 "$authorities")
  for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt \
    /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
    if [ -f "$bundle" ] && ! grep -qF -e "$mark" "$bundle"; then
      cat "$authorities" >> "$bundle"
    fi
  done
  if [ ! -e /etc/ssl/certs/ca-certificates.crt ]; then
    cat "$authorities" > /etc/ssl/certs/ca-certificates.crt
  fi
  if [ -d /etc/pki/ca-trust/source/anchors ]; then
    cp "$authorities" /etc/pki/ca-trust/source/anchors/soulbox.pem
  fi
}
wanted=''
lacks bash && wanted="$wanted bash"
lacks curl && wanted="$wanted curl"
has_authorities || wanted="$wanted ca-certificates"
trust

if ! lacks apt-get; then
  mkdir -p /etc/apt/apt.conf.d
  # apt drops to a user of its own for downloads, which needs rights that a sandbox has not.
  printf 'APT::Sandbox::User "root";\n' > /etc/apt/apt.conf.d/99soulbox
  if [ -d /etc/dpkg/dpkg.cfg.d ]; then
    # What a build leaves is written out when it is kept: not after every file.
    printf 'force-unsafe-io\n' > /etc/dpkg/dpkg.cfg.d/soulbox
  fi
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    # There is no init inside: packages must not try to start their services.
    mkdir -p /usr/sbin
    printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
    chmod 0755 /usr/sbin/policy-rc.d
  fi
  lacks ss && wanted="$wanted iproute2"
  lacks pgrep && wanted="$wanted procps"
  if [ -n "$wanted" ]; then
    tell "installing$wanted"
    export DEBIAN_FRONTEND=noninteractive
    quick='-o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20'
    # shellcheck disable=SC2086
    if apt-get $quick -qq update; then
      apt-get $quick -qq install -y --no-install-recommends $wanted ||
        for package in $wanted; do
          apt-get $quick -qq install -y --no-install-recommends "$package" || true
        done
    fi
    apt-get clean || true
    rm -rf /var/lib/apt/lists/*
  fi
elif ! lacks apk; then
  lacks ss && wanted="$wanted iproute2"
  lacks pgrep && wanted="$wanted procps"
  [ -z "$wanted" ] || tell "installing$wanted"
  for package in $wanted; do
    apk add --no-cache "$package" || true
  done
else
  lacks ss && wanted="$wanted iproute"
  lacks pgrep && wanted="$wanted procps-ng"
  for manager in dnf microdnf yum zypper; do
    if [ -n "$wanted" ] && ! lacks "$manager"; then
      tell "installing$wanted"
      for package in $wanted; do
        case $manager-$package in
          zypper-iproute) package=iproute2 ;;
          zypper-procps-ng) package=procps ;;
        esac
        if [ "$manager" = zypper ]; then
          zypper --non-interactive install --no-recommends "$package" || true
        else
          "$manager" install -y "$package" || true
        fi
      done
      "$manager" clean all || true
      break
    fi
  done
fi
trust

# Some have it elsewhere; every client's commands go through this very path.
if [ ! -e /bin/bash ] && ! lacks bash; then
  ln -s "$(command -v bash)" /bin/bash
fi

if [ "$2" = sudo ]; then
  chown 0:0 /usr/bin/sudo
  chmod 4755 /usr/bin/sudo
fi

# Login shells of some distributions set PATH anew; the template's own comes first.
if [ ! -f /etc/profile ] || ! grep -q soulbox_path /etc/profile; then
  if [ -f /etc/profile ]; then
    cp /etc/profile /etc/profile.soulbox
  else
    : > /etc/profile.soulbox
  fi
  {
    printf 'soulbox_path=${PATH-}\n'
    cat /etc/profile.soulbox
    cat <<'END'

if [ -n "$soulbox_path" ]; then
  soulbox_rest=$PATH:
  while [ -n "$soulbox_rest" ]; do
    soulbox_one=${soulbox_rest%%:*}
    soulbox_rest=${soulbox_rest#*:}
    case ":$soulbox_path:" in
      *":$soulbox_one:"*) ;;
      *) soulbox_path=$soulbox_path:$soulbox_one ;;
    esac
  done
  PATH=$soulbox_path
  export PATH
fi
unset soulbox_path soulbox_rest soulbox_one
END
  } > /etc/profile
  chmod 0644 /etc/profile
  rm -f /etc/profile.soulbox
fi

if [ ! -r /etc/passwd ]; then
  append /etc/passwd 'root:x:0:0:root:/root:/bin/sh'
fi
default_user "$1"
mkdir -p /code /usr/local
chmod 0777 /code /usr/local
open_up
