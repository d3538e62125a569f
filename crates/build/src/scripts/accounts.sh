# Accounts by their files alone: images have different programs for them, or none.

# look_up FILE NAME: sets number (third field), group (fourth) and home (sixth).
look_up() {
  number='' group='' home=''
  [ -r "$1" ] || return 1
  while IFS=: read -r name_ _ number_ group_ _ home_ _ || [ -n "$name_" ]; do
    if [ "$name_" = "$2" ]; then
      number=$number_ group=$group_ home=$home_
      return 0
    fi
  done < "$1"
  return 1
}

# name_of NUMBER: the account with that number.
name_of() {
  while IFS=: read -r name_ _ number_ _ || [ -n "$name_" ]; do
    if [ "$number_" = "$1" ]; then
      printf '%s\n' "$name_"
      return 0
    fi
  done < /etc/passwd
  return 1
}

# taken FILE NUMBER
taken() {
  [ -r "$1" ] || return 1
  while IFS=: read -r name_ _ number_ _ || [ -n "$name_" ]; do
    if [ "$number_" = "$2" ]; then
      return 0
    fi
  done < "$1"
  return 1
}

first_free() {
  free_=1000
  while taken /etc/passwd "$free_" || taken /etc/group "$free_"; do
    free_=$((free_ + 1))
  done
  printf '%s\n' "$free_"
}

# append FILE LINE: the file's last line may lack its end.
append() {
  if [ -s "$1" ] && [ -n "$(tail -c 1 "$1")" ]; then
    printf '\n' >> "$1"
  fi
  printf '%s\n' "$2" >> "$1"
}

# new_account NAME PASSWORD [NUMBER]: with a group and a home of its own.
new_account() {
  uid_=${3:-$(first_free)}
  if look_up /etc/group "$1"; then
    gid_=$number
  else
    gid_=$uid_
    if taken /etc/group "$gid_"; then
      gid_=$(first_free)
    fi
    append /etc/group "$1:x:$gid_:"
    if [ -f /etc/gshadow ]; then
      append /etc/gshadow "$1:!::"
    fi
  fi
  shell_=/bin/sh
  if [ -x /bin/bash ]; then
    shell_=/bin/bash
  fi
  append /etc/passwd "$1:x:$uid_:$gid_::/home/$1:$shell_"
  if [ ! -f /etc/shadow ]; then
    : > /etc/shadow
    chmod 0640 /etc/shadow
  fi
  append /etc/shadow "$1:$2:19000:0:99999:7:::"
  make_home "$1" "$uid_" "$gid_"
}

# make_home NAME UID GID: what is missing of it.
make_home() {
  if [ ! -d "/home/$1" ]; then
    mkdir -p "/home/$1"
    chmod 0755 "/home/$1"
  fi
  if [ -d /etc/skel ]; then
    for file_ in /etc/skel/.[!.]* /etc/skel/*; do
      target_=/home/$1/${file_##*/}
      if [ -e "$file_" ] && [ ! -e "$target_" ] && [ ! -L "$target_" ]; then
        cp -R "$file_" "$target_"
        chown -R "$2:$3" "$target_"
      fi
    done
  fi
  chown "$2:$3" "/home/$1"
}

# join GROUP NAME: into a group that exists.
join() {
  look_up /etc/group "$1" || return 0
  while IFS= read -r line_ || [ -n "$line_" ]; do
    case $line_ in
      "$1":*)
        case ",${line_##*:}," in
          *",$2,"*) ;;
          ,,) line_=$line_$2 ;;
          *) line_=$line_,$2 ;;
        esac
        ;;
    esac
    printf '%s\n' "$line_"
  done < /etc/group > /etc/group.soulbox
  cat /etc/group.soulbox > /etc/group
  rm -f /etc/group.soulbox
}

# default_user NAME: with an empty password, and sudo without one.
default_user() {
  if look_up /etc/passwd "$1"; then
    if [ "$home" = "/home/$1" ]; then
      make_home "$1" "$number" "$group"
    fi
  else
    new_account "$1" ''
  fi
  join sudo "$1"
  join wheel "$1"
  rule_="$1 ALL=(ALL:ALL) NOPASSWD: ALL"
  if [ -f /etc/sudoers ] && ! grep -qxF "$rule_" /etc/sudoers; then
    append /etc/sudoers "$rule_"
  fi
}
