#!/usr/bin/env bash
# planted.sh PROGRAM: the tests of the translator, built with a bug in its kernels, must fail, in the comparison with
# the CPU and nowhere else (the queue and the guards know nothing of that bug).
set -u
out=$("$1" 2>&1)
rc=$?
printf '%s\n' "$out" | tail -n 20
[ $rc -ne 0 ] || { echo "the planted bug was not seen"; exit 1; }
printf '%s\n' "$out" | grep -q 'position [0-9]* of [0-9]* holds' || { echo "it failed, but no wrong position was told"; exit 1; }
printf '%s\n' "$out" | grep -q 'FAILED.*translate__equals_the_cpu_past_the_tiles' || { echo "it failed elsewhere"; exit 1; }
! printf '%s\n' "$out" | grep -q 'FAILED.*work__is_queued'
