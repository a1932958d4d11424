#!/usr/bin/env bash
# From nothing to a trained model on this machine: installs what is missing, builds the program,
# trains a small GPT with experts on the King James text on 4 ranks (threads, grid x·y·z·data =
# 2·1·2·1, two of them over experts), kills it midway, resumes, checks the checkpoint and lets the
# model write. Run it again at will: it does only what is still to do, but always trains anew.
#
# Usage: ./quickstart.sh [--steps N] [--run-dir DIR]     (in place of the run file's)
set -euo pipefail
cd "$(dirname "$0")"

stages=9
stage=0
started=$SECONDS
config=configs/quickstart.toml
run=runs/quickstart
fourfold=build/release/bin/fourfold

total=$(sed -n 's/^steps = //p' "$config")
more=()
while [ $# -gt 1 ]; do
  case $1 in
    --steps)
      total=$2
      more=(--set "train.steps=$2" --set "schedule.warmup=1" --set "checkpoint.save_interval=2")
      ;;
    --run-dir) run=$2 ;;
    *) break ;;
  esac
  shift 2
done
if [ $# -gt 0 ]; then
  printf 'error: unknown argument %s\nhint: ./quickstart.sh [--steps N] [--run-dir DIR]\n' "$1" >&2
  exit 2
fi

next() {
  stage=$((stage + 1))
  printf '\n[%d/%d] %s  (%d s so far)\n' "$stage" "$stages" "$1" $((SECONDS - started))
}

fail() {
  printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
  exit 1
}

# The newest step of the run's metrics; 0 before there is one.
last_step() {
  { grep -o '"step": *[0-9]*' "$run/metrics.jsonl" 2>/dev/null || true; } |
    grep -o '[0-9]*' | sort -n | tail -1 | grep . || echo 0
}

# Trains in the background until step $1, then kills the process as a lost machine would.
train_until_killed() {
  "$fourfold" train "$config" --run-dir "$run" "${more[@]}" &
  local trainer=$!
  while [ "$(last_step)" -lt "$1" ]; do
    if ! kill -0 "$trainer" 2>/dev/null; then
      wait "$trainer" || fail "training ended with exit code $?" "$run/log.txt says more"
      return
    fi
    sleep 0.2
  done
  kill -KILL "$trainer"
  wait "$trainer" 2>/dev/null || true
  printf '\nkilled at step %s by SIGKILL\n' "$(last_step)"
}

next "what is missing on this machine: packages, LibTorch"
tools/setup.sh

next "building the program into build/release"
mkdir -p build
cmake --preset release ${Torch_DIR:+-DTorch_DIR="$Torch_DIR"} >build/release-configure.log 2>&1 ||
  { cat build/release-configure.log; exit 1; }
sed -n '/^fourfold /,/linker/p' build/release-configure.log
cmake --build --preset release --target fourfold_app

next "the King James text of the distribution: data/kjv.txt"
mkdir -p data
if [ ! -s data/kjv.txt ]; then
  bible -l0 'gen1:1-rev22:21' >data/kjv.part
  mv data/kjv.part data/kjv.txt
fi
printf '%s lines, %s bytes\n' "$(wc -l <data/kjv.txt)" "$(wc -c <data/kjv.txt)"

next "a tokenizer of 4096 entries, trained on that text: data/tokenizer.json"
if [ data/tokenizer.json -nt data/kjv.txt ]; then
  echo "it is there"
else
  "$fourfold" data tokenizer --input data/kjv.txt --vocab 4096 --output data/tokenizer.json
fi

next "the text as tokens, a twentieth held out: data/kjv-train, data/kjv-valid"
if [ data/kjv-train.idx -nt data/tokenizer.json ]; then
  echo "they are there"
else
  "$fourfold" data prepare --input data/kjv.txt --tokenizer data/tokenizer.json \
    --output data/kjv --valid-fraction 0.05
fi
"$fourfold" data show data/kjv-train --tokenizer data/tokenizer.json --tokens 40

next "training on 4 ranks, killed midway"
rm -rf "$run"
train_until_killed $((total * 6 / 10))

next "the same command again: it resumes from the newest checkpoint"
"$fourfold" train "$config" --run-dir "$run" "${more[@]}"

next "proving the checkpoint whole"
"$fourfold" ckpt verify "$run"

next "the model writes"
"$fourfold" generate --run-dir "$run" --prompt "In the beginning" --max-tokens 60 \
  --temperature 0.8 --top-k 50
printf '\n'
python3 tools/unigram_baseline.py data/kjv-train data/kjv-valid "$run/metrics.jsonl" ||
  [ ${#more[@]} -gt 0 ] ||  # A few steps need not beat it.
  fail "the model is no better than guessing by frequency" "$run/report.html shows its curves"
printf '\nDone in %d s. Look at %s/report.html; next: README.md.\n' $((SECONDS - started)) "$run"
