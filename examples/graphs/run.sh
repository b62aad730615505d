#!/usr/bin/env bash
# Guide: docs/guides/graphs.md. A graph fails at its ninth node; with the missing value it completes.
graphs=$(cd "$(dirname "$0")" && pwd)
. "$graphs/../sandbox.sh"

code=0
piton run "$graphs/credential.yaml" || code=$?
test "$code" = 1                                  # api_key is not set
session=$(piton sessions list --agent credential --status failed --json | jq -er 'select(.session_id).session_id')
piton sessions checkpoints "$session"

export API_KEY=sk-0123456789
piton sessions resume "$session" --set api_key=@env:API_KEY
piton sessions timeline "$session"
# Each node completed once: the eight before the failure did not run again.
completed=$(piton sessions log "$session" --json | jq -r 'select(.kind == "node.completed") | .path' | sort)
test "$(printf '%s\n' "$completed" | wc -l)" = 9
test -z "$(printf '%s\n' "$completed" | uniq -d)"
