#!/usr/bin/env bash
# Guide: docs/guides/troubleshooting.md. What a problem looks like, and where its explanation is.
. "$(dirname "$0")/sandbox.sh"

piton doctor
piton chat --agent codex --print 'hello' || echo "exit code $?: codex is not installed here, or not logged in"
piton chat --print 'say half
crash' || echo "exit code $?: interrupted"
session=$(piton sessions list --limit 1 --json | jq -r .session_id)
piton sessions show "$session"                    # the last lines say what to do
piton sessions dismiss "$session"
piton verify
