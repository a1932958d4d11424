#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for SECONDS (unless given: 10, those of the
# checkpoint 30). Findings lie in build/fuzz/findings. Exit code 77 where there is no clang with
# libFuzzer.
set -euo pipefail
cd "$(dirname "$0")/../.."

compiler=""
for candidate in clang++-19 clang++; do
  if command -v "$candidate" > /dev/null; then compiler=$candidate; break; fi
done
if [[ -z $compiler ]]; then
  echo "skipped: the fuzz targets need clang with libFuzzer (clang-19)"
  exit 77
fi

readers=(safetensors token_index tokenizer_json manifest shard)
seconds_of() {
  case $1 in
    manifest | shard) echo 30 ;;
    *) echo 10 ;;
  esac
}
# A build type of its own: the project sets the flags of the usual ones.
cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=Fuzz -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_C_COMPILER="${compiler/++/}" \
  -DCMAKE_CXX_FLAGS_FUZZ="-O1 -g1 -fsanitize=fuzzer-no-link" \
  -DFOURFOLD_SANITIZE=address,undefined -DFOURFOLD_RUNTIME=OFF -DFOURFOLD_BENCHMARKS=OFF \
  -DFOURFOLD_FUZZ=ON > build/fuzz-configure.log 2>&1 \
  || { tail -30 build/fuzz-configure.log; exit 1; }
ninja -C build/fuzz "${readers[@]/#/fuzz_}"

mkdir -p build/fuzz/findings
python3 tests/fuzz/make_seeds.py build/fuzz/seeds
for reader in "${readers[@]}"; do
  seconds=${1:-$(seconds_of "$reader")}
  mkdir -p "build/fuzz/corpus/$reader"
  echo "fuzz_$reader: $seconds s"
  "build/fuzz/bin/fuzz_$reader" -max_total_time="$seconds" -rss_limit_mb=1024 \
    -malloc_limit_mb=512 -timeout=10 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix=build/fuzz/findings/ "build/fuzz/corpus/$reader" "build/fuzz/seeds/$reader" \
    > "build/fuzz/$reader.log" 2>&1 || { tail -40 "build/fuzz/$reader.log"; exit 1; }
  if grep "instrumented for coverage" "build/fuzz/$reader.log"; then exit 1; fi
  grep -E "number_of_executed_units|peak_rss" "build/fuzz/$reader.log" || true
done
