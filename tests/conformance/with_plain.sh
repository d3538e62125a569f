#!/bin/sh
# Gives a command the plain HTTP mode of the server that tests/support/with_server.py started.
export E2B_API_KEY="$PLAIN_E2B_API_KEY" E2B_API_URL="$PLAIN_E2B_API_URL" E2B_SANDBOX_URL="$PLAIN_E2B_SANDBOX_URL"
export E2B_VOLUME_API_URL="${PLAIN_E2B_VOLUME_API_URL:-$PLAIN_E2B_API_URL}"
unset E2B_DOMAIN
exec "$@"
