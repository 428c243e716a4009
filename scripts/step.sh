#!/bin/sh
# Runs one step of the Makefile: a line while it works, its whole output only when it fails.
#   step.sh "what it does" command [argument...]
title=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
printf '%s ... ' "$title"
start=$(date +%s)
"$@" >"$log" 2>&1 </dev/null
status=$?
took=$(($(date +%s) - start))
if [ "$status" -eq 0 ]; then
    echo "ok (${took} s)"
else
    echo "FAILED after ${took} s"
    cat "$log" >&2
fi
exit "$status"
