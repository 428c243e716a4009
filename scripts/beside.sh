#!/bin/sh
# Runs a command while another one runs beside it, which uses what the first leaves of the processors.
#   beside.sh "command beside" command [argument...]
# What the one beside it prints is shown after all that the command prints. Fails if either fails.
beside=$1
shift
log=$(mktemp)
sh -c "$beside" >"$log" 2>&1 </dev/null &
other=$!
trap 'kill "$other" 2>/dev/null; rm -f "$log"' EXIT
trap 'exit 130' INT TERM HUP
"$@"
status=$?
wait "$other"
status_beside=$?
cat "$log"
[ "$status" -ne 0 ] || status=$status_beside
exit "$status"
