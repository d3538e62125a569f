# $1: a pattern. Tells what there is of it, one path per line.
IFS=''
for path in $1; do
  if [ -e "$path" ] || [ -L "$path" ]; then
    printf '%s\n' "$path"
  fi
done
