#!/usr/bin/env bash
# Guide: docs/guides/permissions.md. A rule allows one command and denies another; the rest is asked.
. "$(dirname "$0")/sandbox.sh"

export PITON_CONFIG=$sandbox/config.toml
cat >"$PITON_CONFIG" <<'TOML'
[[permissions.rules]]
action = "allow"
command = "git status*"

[[permissions.rules]]
name = "no pushing"
action = "deny"
command = "git push*"
TOML
piton permissions test --tool execute --command 'git status --short'
piton permissions test --tool execute --command 'git status && rm -rf x'
piton chat --print 'ask-run git status --short'   # allowed by the first rule: no question
piton chat --print 'ask-run git push'             # denied by the second
piton sessions log "$(piton sessions list --limit 1 --json | jq -r .session_id)" | grep permission.decided
