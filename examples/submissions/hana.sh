# Never reads, never ends.
while :; do :; done
