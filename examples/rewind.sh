#!/usr/bin/env bash
# Guide: docs/guides/rewind.md. An agent's shell command changes a file; the session goes back, and forward again.
. "$(dirname "$0")/sandbox.sh"

before=$(cat main.py)
piton chat --agent echo --print 'run echo changed > main.py'
test "$(cat main.py)" = changed

piton sessions checkpoints @last
piton sessions rewind @last --dry-run
piton sessions rewind @last                       # files and conversation
test "$(cat main.py)" = "$before"
test -z "$(git status --porcelain)"               # git was not touched

piton sessions undo @last
test "$(cat main.py)" = changed
