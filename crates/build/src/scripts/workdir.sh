# $1: a directory, absolute. $2: to whom it belongs when it is new. Prints `new` or `same`.
set -eu
if [ -d "$1" ]; then
  cd "$1"
  echo same
  exit 0
fi
first=$1
parent=$(dirname "$1")
while [ ! -e "$parent" ] && [ ! -L "$parent" ]; do
  first=$parent
  parent=$(dirname "$parent")
done
mkdir -p "$1"
chown -R "$(id -u "$2"):$(id -g "$2")" "$first"
cd "$1"
echo new
