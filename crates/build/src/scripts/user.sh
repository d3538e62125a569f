set -eu
# $1: an account's name or number. Makes it where there is none, and prints its name; `new` or `same`
# before it says whether files were changed.
if [ ! -r /etc/passwd ]; then
  : > /etc/passwd
fi
case $1 in
  *[!0-9]*)
    if look_up /etc/passwd "$1"; then
      printf 'same %s\n' "$1"
    else
      new_account "$1" '!'
      printf 'new %s\n' "$1"
    fi
    ;;
  *)
    if known=$(name_of "$1"); then
      printf 'same %s\n' "$known"
    else
      new_account "user$1" '!' "$1"
      printf 'new %s\n' "user$1"
    fi
    ;;
esac
