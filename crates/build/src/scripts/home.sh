# $1: an account's name. Tells where it is at home.
look_up /etc/passwd "$1" || exit 1
printf '%s\n' "$home"
