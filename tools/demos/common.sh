# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# Functions that all demonstrations use. Sourced by tools/demo, which sets dir.

bold='' plain=''
if [[ -t 1 ]]; then bold=$'\e[1;36m' plain=$'\e[0m'; fi

heading() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }

fail() {
  echo "demo: $*" >&2
  exit 1
}

# Empties only a folder that this script made.
prepare_folder() {
  if [[ -e $dir && ! -e $dir/$kMark && -n $(ls -A "$dir") ]]; then
    fail "$dir exists and is not from an earlier run; name another folder"
  fi
  rm -rf "$dir"
  mkdir -p "$dir/steps"
  touch "$dir/$kMark"
}

# Puts the published model.safetensors into the cache, and prints the path.
fetch_model() {
  local cache=$kCache/$kPackage scratch
  if [[ ! -s $cache/model.safetensors ]]; then
    mkdir -p "$cache"
    scratch=$(mktemp -d "$cache/download.XXXXXX")
    /usr/bin/python3 -m venv "$scratch/pip"
    "$scratch/pip/bin/python" -m pip download --quiet --no-deps \
      --disable-pip-version-check --only-binary :all: --dest "$scratch" \
      "$kPackage" >&2
    unzip -q -j "$scratch"/*.whl '*/model.safetensors' -d "$scratch"
    # Renamed last, so that a file in the cache is always complete.
    mv "$scratch/model.safetensors" "$cache/model.safetensors"
    rm -rf "$scratch"
  fi
  echo "$cache/model.safetensors"
}

# Prints the command as a user would type it.
print_command() {
  local word line='$ dcp-convert'
  for word in "$@"; do
    # The server gets absolute paths.
    word=${word/#"$dir/"/'$PWD/'}
    [[ $word =~ ^[A-Za-z0-9_./=,:\$-]+$ ]] || word=${word@Q}
    line+=" $word"
  done
  echo "$line"
}

# show ARGUMENTS...: runs dcp-convert in $dir, as a user would.
show() {
  print_command "$@"
  (cd "$dir" && ./dcp-convert "$@") || fail "that ended with exit code $?"
}

# step NUMBER VERB SRC DST OPTIONS...: converts, keeps the figures, verifies.
step() {
  local number=$1 dst=$4
  shift
  print_command "$@"
  (cd "$dir" && ./dcp-convert "$@" --json >"steps/$number.json") ||
    fail "that ended with exit code $?"
  show verify "$dst"
}

print_table() {
  /usr/bin/python3 - "$dir"/steps/*.json <<'PYTHON'
import json, sys
row = "{:<14}{:<22}{:>10}{:>10}{:>10}{:>12}{:>14}".format
print(row("STEP", "RESULT", "READ", "WRITTEN", "TIME", "RATE", "PEAK MEMORY"))
for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as file:
        step = json.load(file)
    moved = step["bytes_read"] + step["bytes_written"]
    print(row(step["verb"], step["dst"],
              f"{step['bytes_read'] / 1e6:.1f} MB",
              f"{step['bytes_written'] / 1e6:.1f} MB",
              f"{step['seconds']:.2f} s",
              f"{moved / 1e9 / max(step['seconds'], 1e-6):.2f} GB/s",
              f"{step['peak_memory_bytes'] / 2**20:.0f} MiB"))
PYTHON
  echo "Times include fsync; the rate is of bytes read and written together."
}

# A port at random, below those that the kernel gives to connections.
random_port() {
  echo $((20000 + RANDOM % 12000))
}

# build NAME TARGET: puts an optimized program into $dir; Bazel prints its
# progress meanwhile.
build() {
  echo "building $1"
  local binary
  binary=$(tools/dev/build "$2")
  cp -f "$binary" "$dir/$1"
}

prepare() {
  heading "What is needed"
  tools/setup
  prepare_folder
  # This file requires nothing but the C library, so it can be copied.
  build dcp-convert tools/dcp_convert:dcp-convert
  echo "fetching the model ($kPackage)"
  model=$(fetch_model)
}
