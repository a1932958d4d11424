#!/usr/bin/env bash
# Writes docs/config.md and docs/cli.md anew from the program of the release build.
set -euo pipefail
cd "$(dirname "$0")/.."
fourfold=${1:-build/release/bin/fourfold}
"$fourfold" docs config docs
"$fourfold" docs cli docs
