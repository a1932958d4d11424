#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests.
#
# Usage: ./test.sh [label...]
#   unit threads mpi crash train cli interop tidy property fuzz   parts of the release build
#   asan   everything but mpi, cli and tidy, under the address and undefined-behaviour sanitizers
#   tsan   the tests of ranks as threads and of the checkpoint writer under the thread sanitizer
# Without a label: all parts, and a short piece of asan and tsan. Ends with one line
# "N passed, N failed, N skipped".
set -euo pipefail
cd "$(dirname "$0")"

parts=(unit threads mpi crash train cli interop tidy property fuzz)
core='^unit_(base|layout|spec|policy|formats|plan)$'
threads='^(unit_comm|threads_(collectives|failures|messages|ckpt_(store|engine|rotation)))$'
suites=()

fail() {
  printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
  exit 2
}

configure() {
  local log=build/$1-configure.log
  mkdir -p build
  if ! cmake --preset "$1" ${Torch_DIR:+-DTorch_DIR="$Torch_DIR"} >"$log" 2>&1; then
    cat "$log"
    exit 1
  fi
  sed -n '/^fourfold /,/linker/p' "$log"
}

# build PRESET TARGET...: only what the tests that run need.
build() {
  local preset=$1
  shift
  printf '%s: building %s\n' "$preset" "$*"
  cmake --build --preset "$preset" --target "$@" -- --quiet
}

# release LABEL...
release() {
  local targets=() label labels=()
  configure release
  for label in "$@"; do
    if [ -f "tests/$label/CMakeLists.txt" ] || [ "$label" = unit ]; then
      targets+=("build_$label")
      labels+=("$label")
    fi
  done
  [ ${#labels[@]} -gt 0 ] || return 0
  build release "${targets[@]}"
  local joined
  joined=$(IFS=,; echo "${labels[*]}")
  suites+=(--suite build/release "$joined" .)
}

# sanitized PRESET LABELS PATTERN TARGET...
sanitized() {
  local preset=$1 labels=$2 pattern=$3
  shift 3
  configure "$preset"
  build "$preset" "$@"
  suites+=(--suite "build/$preset" "$labels" "$pattern")
}

short_sanitizers() {
  sanitized asan unit "$core" build_unit_core
  sanitized tsan unit,threads "$threads" unit_comm threads_collectives threads_failures \
    threads_messages threads_ckpt_store threads_ckpt_engine threads_ckpt_rotation
}

tools/setup.sh
if [ $# -eq 0 ]; then
  release "${parts[@]}"
  short_sanitizers
fi
wanted=()
for label in "$@"; do
  case " ${parts[*]} " in *" $label "*) wanted+=("$label") ;; *)
    case $label in
      asan) sanitized asan unit,threads,crash,train . build_unit build_threads build_crash \
        build_train ;;
      tsan) sanitized tsan unit,threads,crash '^(unit_(comm|ckpt)|threads_.*|crash_.*)$' \
        build_unit build_threads build_crash ;;
      *) fail "no label $label" "labels are ${parts[*]} asan tsan" ;;
    esac ;;
  esac
done
[ ${#wanted[@]} -eq 0 ] || release "${wanted[@]}"
exec python3 tools/run_tests.py "${suites[@]}"
