if [ -x /bin/bash ]; then exec /bin/bash -l -c "$1"; else exec /bin/sh -l -c "$1"; fi
