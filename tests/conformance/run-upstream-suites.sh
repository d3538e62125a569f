#!/usr/bin/env bash
# Runs the test suites of E2B's own SDKs against a fresh server and prints the counts per file.
#
#   tests/conformance/run-upstream-suites.sh CHECKOUT [js|python|all] [pattern…]
#
# CHECKOUT is a clone of E2B's repository, prepared as follows (nothing of it is part of SoulBox):
#   pnpm install --frozen-lockfile            in CHECKOUT
#   python3 -m venv VENV; VENV/bin/pip install -e CHECKOUT/packages/python-sdk \
#       pytest pytest-asyncio pytest-xdist pytest-timeout pytest-dotenv
#   VENV in $E2B_VENV, default CHECKOUT/../venv
#
# The suites reach the server as its users do with a domain: over HTTPS, by name, with only
# E2B_DOMAIN, E2B_API_KEY and the certificate set. Patterns select files by a part of their path;
# without one, the files for what SoulBox supports so far are run. The images that template builds
# ask Docker Hub for (ubuntu:22.04, e2bdev/base) come from a registry beside the server.
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
checkout=$(cd "${1:?the path of a checkout of the E2B repository}" && pwd)
what=${2:-all}
shift $(($# < 2 ? $# : 2))
venv=${E2B_VENV:-$checkout/../venv}
out=${OUT:-$(mktemp -d /tmp/soulbox-suites.XXXXXX)}
mkdir -p "$out/python-hook"

# Node and glibc leave *.localhost to the resolver; these two make it mean 127.0.0.1.
cat > "$out/hook.cjs" < "$project/tests/e2e-js/localhost.cjs"
cat > "$out/python-hook/sitecustomize.py" <<PYTHON
import sys
sys.path.insert(0, "$project/tests")
from support.names import resolve_localhost_names
resolve_localhost_names()
sys.path.pop(0)
PYTHON

js_files=(
    tests/api/info tests/api/kill tests/api/list
    tests/sandbox/commands tests/sandbox/files tests/sandbox/pty tests/sandbox/git
    tests/sandbox/create tests/sandbox/connect tests/sandbox/kill tests/sandbox/timeout
    tests/sandbox/host tests/sandbox/metrics tests/sandbox/secure
    tests/sandbox/snapshot tests/sandbox/fork tests/sandbox/lifecyclePayload
    tests/api/snapshot tests/template
)
python_files=(
    test_sbx_info test_sbx_kill test_sbx_list commands/ files/ pty/ shared/git
    test_create.py test_connect.py test_kill.py test_timeout.py test_host.py test_metrics.py test_secure.py
    test_snapshot test_sbx_snapshot test_fork.py
    template_sync/ template_async/ shared/template
)
# These connect to public addresses from inside a sandbox: only where that is allowed.
if [ "${OPEN_INTERNET:-}" = 1 ]; then
    js_files+=(tests/sandbox/internetAccess tests/sandbox/network.test)
    python_files+=(test_internet_access.py test_network.py)
fi
if [ $# -gt 0 ]; then js_files=("$@") python_files=("$@"); fi

run_js() {
    cd "$checkout/packages/js-sdk"
    NODE_OPTIONS="--require $out/hook.cjs" \
        npx vitest run --project unit --project template --maxWorkers="${WORKERS:-4}" \
        --reporter=json --reporter=default --outputFile.json="$out/js.json" "${js_files[@]}" > "$out/js.log" 2>&1 || true
    python3 "$project/tests/conformance/counts.py" vitest "$out/js.json" "$PWD/tests"
}

run_python() {
    cd "$checkout/packages/python-sdk"
    local pattern files=()
    for pattern in "${python_files[@]}"; do
        while IFS= read -r file; do files+=("$file"); done < <(find tests -path "*$pattern*" -name 'test_*.py' | sort)
    done
    PYTHONPATH="$out/python-hook" "$venv/bin/python" -m pytest -n "${WORKERS:-4}" -q \
        --junit-xml="$out/python.xml" "${files[@]}" > "$out/python.log" 2>&1 || true
    python3 "$project/tests/conformance/counts.py" junit "$out/python.xml"
}

export -f run_js run_python
# Arrays do not survive export: the inner shell gets them as declarations.
python3 -c 'import httpx' 2> /dev/null && python=python3 || python=$venv/bin/python
env -u E2B_API_KEY "$python" "$project/tests/support/with_server.py" --registry bash -c "
    set -euo pipefail
    unset E2B_API_URL E2B_SANDBOX_URL
    project='$project' checkout='$checkout' venv='$venv' out='$out'
    $(declare -p js_files python_files)
    case '$what' in js) run_js ;; python) run_python ;; all) run_js; run_python ;; *) echo 'js, python or all' >&2; exit 2 ;; esac
"
echo "logs and reports: $out"
