#!/usr/bin/env bash
# Installs what building and testing fourfold needs and is missing: packages of the distribution
# (as root or through sudo) and LibTorch from the Python index into .deps/venv. Give Torch_DIR
# (.../share/cmake/Torch) to use a LibTorch that is already there. Running it again costs a second.
#
# Usage: tools/setup.sh
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.13.0
needed=(g++ cmake ninja-build pkg-config git python3-venv libfmt-dev nlohmann-json3-dev libcli11-dev
  libtomlplusplus-dev libpcre2-dev libgtest-dev libgmock-dev bible-kjv bible-kjv-text)
# Good to have: MPI, faster builds, the formatter, the fuzzer, random tests. Without them parts are
# out.
wanted=(libopenmpi-dev openmpi-bin liburing-dev ccache clang-format-19 clang-19
  libclang-rt-19-dev librapidcheck-dev)

say() { printf 'set-up: %s\n' "$*"; }

fail() {
  printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
  exit 1
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

install_packages() {
  if ! command -v apt-get >/dev/null; then
    say "no apt-get here; these must be there under their names of this system: ${needed[*]}"
    return
  fi
  local missing=() package
  for package in "${needed[@]}"; do installed "$package" || missing+=("$package"); done
  for package in "${wanted[@]}"; do
    installed "$package" && continue
    # One that the distribution does not have is looked for once, not at every run.
    grep -qxF "$package" .deps/not-offered 2>/dev/null || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "packages are missing: ${missing[*]}" "install them as root, or install sudo"
    root=(sudo)
  fi
  say "installing packages: ${missing[*]}"
  "${root[@]}" apt-get update -qq
  local offered=()
  for package in "${missing[@]}"; do
    if apt-cache show "$package" >/dev/null 2>&1; then
      offered+=("$package")
    elif [[ " ${needed[*]} " == *" $package "* ]]; then
      fail "the distribution offers no package $package" "Debian 12 or later has it"
    else
      say "the distribution offers no $package; going on without it"
      mkdir -p .deps && echo "$package" >>.deps/not-offered
    fi
  done
  [ ${#offered[@]} -eq 0 ] && return
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${offered[@]}" >/dev/null
}

# Prints what pip would fetch for its arguments, in megabytes.
say_size() {
  .deps/venv/bin/pip install --quiet --dry-run --report - "$@" 2>/dev/null |
    .deps/venv/bin/python tools/download_size.py || say "the size of the download is not known"
}

install_python() {
  local modules=(numpy safetensors tokenizers) missing=() module
  if [ ! -x .deps/venv/bin/python ]; then
    say "making .deps/venv"
    mkdir -p .deps
    python3 -m venv .deps/venv
  fi
  local site
  site=$(echo .deps/venv/lib/python3*/site-packages)
  for module in "${modules[@]}"; do [ -d "$site/$module" ] || missing+=("$module"); done
  if [ -z "${Torch_DIR:-}" ] && ! compgen -G "$site/torch-$torch_version*.dist-info" >/dev/null
  then
    missing+=("torch==$torch_version")
  fi
  [ ${#missing[@]} -eq 0 ] && return
  say_size "${missing[@]}"
  say "fetching ${missing[*]} from the Python index"
  .deps/venv/bin/pip install --disable-pip-version-check "${missing[@]}" |
    grep -E '^(Downloading|Successfully)|^  Downloading' || true
  for module in "${modules[@]}"; do
    [ -d "$site/$module" ] || fail "$module could not be installed" "is the Python index reachable?"
  done
}

# What a test compares with; it is skipped without.
install_python_for_tests() {
  local module=transformers
  compgen -G ".deps/venv/lib/python3*/site-packages/$module" >/dev/null && return
  grep -qxF "$module" .deps/not-offered 2>/dev/null && return
  say "fetching $module from the Python index"
  .deps/venv/bin/pip install --quiet --disable-pip-version-check "$module" && return
  say "no $module; going on without it"
  echo "$module" >>.deps/not-offered
}

install_packages
install_python
install_python_for_tests
if [ -n "${Torch_DIR:-}" ]; then
  [ -e "$Torch_DIR/../../../lib/libtorch_cpu.so" ] ||
    fail "Torch_DIR=$Torch_DIR has no LibTorch" "give the folder share/cmake/Torch of one"
elif ! compgen -G ".deps/venv/lib/python3*/site-packages/torch/lib/libtorch_cpu.so" >/dev/null; then
  fail "LibTorch could not be installed" "is the Python index reachable? or give Torch_DIR"
fi
say "everything is there"
