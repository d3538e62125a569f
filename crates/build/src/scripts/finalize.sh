# $1: template, $2: build, $3: default user of sandboxes without another.
set -eu
umask 022
printf 'ENV_ID=%s\nTEMPLATE_ID=%s\nBUILD_ID=%s\n' "$1" "$1" "$2" > /.e2b
chmod 0644 /.e2b
default_user "$3"
if [ ! -d /code ]; then
  mkdir -p /code
fi
chmod 0777 /code
if [ -d "/home/$3" ]; then
  find "/home/$3" -xdev ! -user "$3" -exec chown -h "$(id -u "$3"):$(id -g "$3")" {} + || true
fi
open_up
