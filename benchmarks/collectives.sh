#!/bin/sh
# Compares the collectives of this project with the MPI library's own, at 2 and 4 ranks.
# Usage: benchmarks/collectives.sh [build folder, default build/release]
set -eu
build=${1:-$(dirname "$0")/../build/release}
for ranks in 2 4; do
  mpirun --oversubscribe --allow-run-as-root --bind-to none -n "$ranks" \
    "$build/bin/bench_collectives"
done
