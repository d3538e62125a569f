# /usr/local is everybody's, as E2B has it: people install into it without asking. Large files keep
# their mode: changing it would copy them.
open_up() {
  if [ -n "$(find /usr/local -maxdepth 0 -perm -0777 2> /dev/null)" ]; then
    find /usr/local -xdev \( -type d -o -type f -size -2048 \) ! -perm -0777 \
      -exec chmod a+rwx {} + 2> /dev/null || true
  fi
}
