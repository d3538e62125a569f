#!/usr/bin/env bash
# Several pieces of code in one call, with curl alone: POST /v1/sandboxes/ID/execute works in every
# sandbox, whatever its template.
#
#     eval "$(sudo cat /var/lib/soulbox/env)"
#     examples/execute_batch.sh
#
# Needs curl, and python3 to read the answers.
set -euo pipefail

ask() { # method, path, body
    curl -sS --fail-with-body -X "$1" "$E2B_API_URL$2" -H "X-API-Key: $E2B_API_KEY" \
        -H "Content-Type: application/json" -d "$3"
}

id=$(ask POST /v2/sandboxes '{"templateID": "base", "timeout": 120}' |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["sandboxID"])')
trap 'ask DELETE "/sandboxes/$id" "" > /dev/null' EXIT

show=$(
    cat << 'PYTHON'
import json, sys

for number, each in enumerate(json.load(sys.stdin)["results"]):
    if "error" in each:
        print(f"{number}: refused: {each['error']['error_code']}")
        continue
    run = each["run"]
    ending = "timed out" if run["timed_out"] else f"exit code {run['exit_code']}"
    print(f"{number}: {each['language']}, {ending}: {(run['stdout'] or run['stderr']).strip()}")
PYTHON
)

# In order, up to two at a time. One that fails costs the others nothing.
ask POST "/v1/sandboxes/$id/execute" '{
    "parallel": 2,
    "executions": [
        {"language": "python", "code": "print(6 * 7)"},
        {"language": "bash", "code": "read name; echo hello $name", "stdin": "world\n"},
        {"language": "python", "code": "import sys; sys.exit(\"no\")"},
        {"language": "sh", "code": "while :; do :; done", "timeout_ms": 500},
        {"language": "klingon", "code": ""}
    ]
}' | python3 -c "$show"
