#!/usr/bin/env bash
# Guide: docs/guides/first-session.md. Talk to an agent, leave, return.
. "$(dirname "$0")/sandbox.sh"

piton agents doctor echo
echo 'say The first answer' | piton chat          # a terminal would stay open here
piton sessions list
echo 'say The second answer' | piton attach       # the same session, the same agent
