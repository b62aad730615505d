# Sourced by the examples: a data folder of their own, which is removed at the end, and the built-in agent
# instead of a real one. To use your own sessions and agent, leave this file out.
# shellcheck shell=bash
set -euo pipefail
for tool in piton jq git curl; do
    command -v "$tool" >/dev/null || { echo "This example needs $tool" >&2; exit 2; }
done
sandbox=$(mktemp -d)
export PITON_DATA=$sandbox/data PITON_SERVER_LISTEN=127.0.0.1:0 PITON_CHAT_AGENT=echo
end_sandbox() {
    for id in $(piton sessions list --json 2>/dev/null | jq -r .session_id); do
        piton sessions cancel "$id" >/dev/null 2>&1 || true
        piton sessions close "$id" >/dev/null 2>&1 || true # ends its agent
    done
    piton stop >/dev/null 2>&1 || true
    rm -rf "$sandbox"
}
trap end_sandbox EXIT
mkdir "$sandbox/project"
cd "$sandbox/project"
export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@example.org GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@example.org
git init -q -b main
echo 'print("hello")' >main.py
git add main.py
git commit -q -m first
