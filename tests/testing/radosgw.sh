#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real S3 server on loopback, with everything in memory: Ceph's gateway, one
# object server, one monitor. See --help.

set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: radosgw.sh FOLDER [MEBIBYTES]

Starts Ceph's S3 gateway and what it needs, with room for MEBIBYTES (2048) of
objects, and prints its URL once it answers, after some 15 seconds. The access
key is "tessera", the secret key "tesserasecret", and they own the bucket
"tessera"; "stranger" and "strangersecret" are another user with a bucket.
Everything ends, and FOLDER is removed, when standard input is closed or the
process is terminated.

It answers on https, too: FOLDER/tls has that URL, and FOLDER/ca.pem the
certificate to trust.

The gateway alone is killed by `kill -9 $(cat FOLDER/gateway.pid)` and started
again by `touch FOLDER/restart`.

Packages: radosgw ceph-mon ceph-osd ceph-common curl openssl.
USAGE
}

if [[ $# -lt 1 || $1 == -* ]]; then
  usage
  [[ ${1-} == --help ]] && exit 0
  exit 2
fi

for program in ceph ceph-mon ceph-osd radosgw radosgw-admin curl openssl; do
  command -v "$program" >/dev/null || {
    echo "radosgw.sh: $program is missing: run tools/setup" >&2
    exit 1
  }
done

mkdir -p "$1"
folder=$(cd "$1" && pwd)
readonly folder
readonly kMebibytes=${2:-2048}
readonly kClusterId=4b9f6d7c-7a3e-4c8d-9f0c-1e2d3c4b5a69
readonly kOsdId=5a0c3a3c-5e3a-4c53-9c8e-0f9b3b1f2d11
mkdir -p "$folder"/{mon,osd,rgw,log}
export CEPH_ARGS="-c $folder/ceph.conf"

pids=()
finish() {
  trap - EXIT INT TERM
  # Without bash's report of each.
  disown -a
  kill -9 "${pids[@]}" 2>/dev/null || true
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM

# start NAME COMMAND...: a daemon, in the foreground of a process of its own.
start() {
  local name=$1
  shift
  "$@" -f >"$folder/log/$name" 2>&1 </dev/null &
  pids+=($!)
  echo $! >"$folder/$name.pid"
}

# until_works SECONDS COMMAND...
until_works() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >"$folder/log/wait" 2>&1; do
    if [[ $SECONDS -ge $deadline ]]; then
      cat "$folder"/log/* >&2
      echo "radosgw.sh: gave up on: $*" >&2
      exit 1
    fi
    # Waits, and ends with the process that started this one.
    read -r -t 0.2 || [[ $? -gt 128 ]] || exit 0
  done
}

write_config() {
  cat >"$folder/ceph.conf" <<CONF
[global]
fsid = $kClusterId
mon host = [v2:127.0.0.1:$mon_port,v1:127.0.0.1:$old_mon_port]
mon initial members = a
keyring = $folder/keyring
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
mon allow pool size one = true
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = $((kMebibytes << 20))
# A machine that is busy for 16 s must not end the lease of the only copy:
# every request would wait for ever.
osd heartbeat grace = 3600
# Paths of sockets must be short.
admin socket =
log to file = false
log to stderr = true
err to stderr = true
crash dir = $folder
mon data = $folder/mon
# The objects are in memory; a disk that is nearly full is not an obstacle.
mon data avail crit = 0
mon data avail warn = 0
osd data = $folder/osd
[client.rgw]
rgw data = $folder/rgw
# Without tcp_nodelay a small answer takes 46 ms instead of 1.5.
rgw frontends = beast endpoint=127.0.0.1:$port tcp_nodelay=1 ssl_endpoint=127.0.0.1:$tls_port ssl_certificate=$folder/server.pem
rgw thread pool size = 64
# What is overwritten is freed at once, not after two hours.
rgw gc obj min wait = 1
rgw gc processor period = 3
CONF
}

make_keys() {
  local key=(ceph-authtool "$folder/keyring")
  {
    "${key[@]}" -C --gen-key -n mon. --cap mon 'allow *'
    "${key[@]}" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *'
    "${key[@]}" --gen-key -n osd.0 --cap mon 'allow profile osd' --cap osd 'allow *'
    "${key[@]}" --gen-key -n client.rgw --cap mon 'allow rwx' --cap osd 'allow rwx'
  } >"$folder/log/keys"
}

start_cluster() {
  monmaptool --create --clobber --fsid "$kClusterId" \
    --addv a "[v2:127.0.0.1:$mon_port,v1:127.0.0.1:$old_mon_port]" \
    "$folder/monmap" >"$folder/log/monmap"
  ceph-mon --mkfs -i a --monmap "$folder/monmap" --keyring "$folder/keyring" \
    >"$folder/log/mkfs-mon" 2>&1
  start mon ceph-mon -i a
  until_works 60 timeout 20 ceph osd new "$kOsdId"
  ceph-osd --mkfs -i 0 --osd-uuid "$kOsdId" >"$folder/log/mkfs-osd" 2>&1
  start osd ceph-osd -i 0
  start gateway radosgw -n client.rgw
  until_works 120 curl -s -o /dev/null "http://127.0.0.1:$port"
}

# add_user NAME SECRET: with a bucket of the same name.
add_user() {
  radosgw-admin -n client.rgw user create --uid="$1" --display-name="$1" \
    --access-key="$1" --secret-key="$2" >"$folder/log/user-$1" 2>&1
  curl -s -f -X PUT --aws-sigv4 aws:amz:us-east-1:s3 --user "$1:$2" \
    -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "http://127.0.0.1:$port/$1"
}

make_certificate() {
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 \
    -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$folder/key.pem" -out "$folder/ca.pem" >"$folder/log/tls" 2>&1
  cat "$folder/ca.pem" "$folder/key.pem" >"$folder/server.pem"
  echo "https://127.0.0.1:$tls_port" >"$folder/tls"
}

exec {held}< <(exec /usr/bin/python3 -B "$(dirname "$0")/held_port.py" 4)
read -r port tls_port mon_port old_mon_port <&"$held"
write_config
make_certificate
make_keys
start_cluster
add_user tessera tesserasecret
add_user stranger strangersecret
echo "http://127.0.0.1:$port"

# Until standard input is closed.
while true; do
  read -r -t 0.2 || [[ $? -gt 128 ]] || exit 0
  if [[ -e $folder/restart ]]; then
    rm -f "$folder/restart"
    start gateway radosgw -n client.rgw
  fi
done
