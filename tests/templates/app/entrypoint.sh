#!/bin/sh
set -eu
case "$1" in
    serve) shift; exec python -m orders "$@" ;;
    *) exec "$@" ;;
esac
