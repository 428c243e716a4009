#!/bin/sh
# Runs one step of the Makefile: a line while it works, its whole output only when it fails.
#   step.sh "what it does" command [argument...]
# With WHOLE_LINES set the line is written when the step ends: others run at the same time.
title=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
[ -n "$WHOLE_LINES" ] || printf '%s ... ' "$title"
start=$(date +%s)
"$@" >"$log" 2>&1 </dev/null
status=$?
took=$(($(date +%s) - start))
[ -z "$WHOLE_LINES" ] || title_again="$title ... "
if [ "$status" -eq 0 ]; then
    echo "${title_again}ok (${took} s)"
else
    echo "${title_again}FAILED after ${took} s"
    cat "$log" >&2
fi
exit "$status"
