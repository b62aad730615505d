#!/usr/bin/env bash
# Guide: docs/guides/scripts-and-ci.md. A job that stops halfway leaves a file; another machine continues.
. "$(dirname "$0")/sandbox.sh"

# The job ends in the middle of the work, and the agent with it.
piton chat --print 'stream 1000 20' >/dev/null &
sleep 2
kill -9 "$(cat "$PITON_DATA"/run/exec_*/lock)"
code=0
wait $! || code=$?
test "$code" = 4                                  # the run is interrupted
session=$(piton sessions list --limit 1 --json | jq -r .session_id)
piton sessions export "$session" --to ../job.piton
piton stop

# The other machine. Its agent does not know the conversation: Piton gives it the history.
export PITON_DATA=$sandbox/other
piton sessions import ../job.piton
piton sessions resume "$session" --with-history
piton sessions prompt "$session" 'say the other half'
piton attach "$session" </dev/null
piton sessions show "$session" --json | jq -r .context_sentence
