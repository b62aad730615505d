#!/usr/bin/env bash
# Guide: docs/guides/scripts-and-ci.md. One prompt per command, and what its exit code says.
. "$(dirname "$0")/sandbox.sh"

piton chat --print 'say done'
echo 'say from stdin' | piton chat --print -

code=0
piton chat --print 'ask May I delete main.py?' || code=$?
test "$code" = 5                                  # the run waits for an answer
wait=$(piton sessions waits --json | jq -r .wait_id)
piton sessions answer "$wait" reject
piton attach </dev/null                           # the rest of the conversation
