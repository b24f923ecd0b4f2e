#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Debian package, checks the metadata and the files, and starts the
# daemon from it.
set -euo pipefail
# shellcheck source=../install/prefix.sh
. tests/tools/install/prefix.sh

mkdir "$TEST_TMPDIR/bin"
cp -L server/dcp-server tools/dcp_convert/dcp-convert \
  tools/fsdp_config/fsdp-config "$TEST_TMPDIR/bin/"
export DEBFULLNAME=Nobody DEBEMAIL=nobody@example.org
export SOURCE_DATE_EPOCH=1700000000
# Faster than Debian's xz.
export DPKG_DEB_COMPRESSOR_TYPE=gzip DPKG_DEB_COMPRESSOR_LEVEL=1
tools/deb/make_deb "$TEST_TMPDIR/bin" "$TEST_TMPDIR" >"$TEST_TMPDIR/path" \
  2>"$TEST_TMPDIR/make.log" || fail "$(cat "$TEST_TMPDIR/make.log")"
package=$(cat "$TEST_TMPDIR/path")
version=$("$TEST_TMPDIR/bin/dcp-convert" --version | grep -o '[0-9.]*[0-9]')
same "the path" "$package" "$TEST_TMPDIR/tessera_${version}_amd64.deb"

# What it says.
same "the version" "$(dpkg-deb --field "$package" Version)" "$version"
same "the maintainer" "$(dpkg-deb --field "$package" Maintainer)" \
  "Nobody <nobody@example.org>"
# Everything else is linked in (tests/third_party/glibc).
same "the dependencies" "$(dpkg-deb --field "$package" Depends)" \
  "adduser, libc6 (>= 2.28)"
same "the configuration" "$(dpkg-deb --ctrl-tarfile "$package" |
  tar -xO ./conffiles)" /etc/dcp-server/dcp-server.conf

# The files, and that root owns all of them.
readonly files="/etc/dcp-server/dcp-server.conf
/lib/systemd/system/dcp-server.service
/usr/bin/dcp-convert
/usr/bin/dcp-server
/usr/bin/fsdp-config
/usr/share/bash-completion/completions/dcp-convert
/usr/share/doc/tessera/NEWS.gz
/usr/share/doc/tessera/README.Debian
/usr/share/doc/tessera/changelog.gz
/usr/share/doc/tessera/copyright
/usr/share/fish/vendor_completions.d/dcp-convert.fish
/usr/share/lintian/overrides/tessera
/usr/share/man/man1/dcp-convert.1.gz
/usr/share/man/man1/fsdp-config.1.gz
/usr/share/man/man8/dcp-server.8.gz
/usr/share/zsh/vendor-completions/_dcp-convert"
listed=$(dpkg-deb --contents "$package")
same "the files" "$(awk '/^-/ { print substr($6, 2) }' <<<"$listed" |
  LC_ALL=C sort)" "$files"
same "their owners" "$(awk '{ print $2 }' <<<"$listed" | sort -u)" root/root

# The package's scripts and unit.
readonly root=$TEST_TMPDIR/root
dpkg-deb --raw-extract "$package" "$root"
for library in libabsl-dev libgrpc++-dev libssl-dev aws-c-s3; do
  grep -q "^==== $library" "$root/usr/share/doc/tessera/copyright" ||
    fail "the licence of $library"
done
(cd "$root" && md5sum --check --quiet DEBIAN/md5sums) || fail "md5sums"
for script in postinst prerm postrm; do
  sh -n "$root/DEBIAN/$script" || fail "$script"
done
readonly unit=$root/lib/systemd/system/dcp-server.service
same "the programs of the unit" \
  "$(sed -n 's/^ExecStart[Pre]*=\([^ ]*\).*/\1/p' "$unit" | sort -u)" \
  /usr/bin/dcp-server
for page in man1/dcp-convert.1 man1/fsdp-config.1 man8/dcp-server.8; do
  zcat "$root/usr/share/man/$page.gz" | grep -q '^\.TH ' || fail "$page"
done

# The daemon, with its configuration, serves an inspect.
mkdir "$TEST_TMPDIR/checkpoints"
cp -rL tests/golden/torch-2.11/train "$TEST_TMPDIR/checkpoints/"
sed "s#= /srv/checkpoints#= $TEST_TMPDIR/checkpoints#
  s#= /var/lib/dcp-server#= $TEST_TMPDIR/state#; s#127\.0\.0\.1:[0-9]*#127.0.0.1:0#" \
  "$root/etc/dcp-server/dcp-server.conf" >"$TEST_TMPDIR/dcp-server.conf"
"$root/usr/bin/dcp-server" --config="$TEST_TMPDIR/dcp-server.conf" \
  --check-config || fail "--check-config: $?"
start_server "$root/usr/bin/dcp-server" --config="$TEST_TMPDIR/dcp-server.conf"
"$root/usr/bin/dcp-convert" inspect "$TEST_TMPDIR/checkpoints/train" \
  --server "$address" >"$TEST_TMPDIR/inspected" || fail "inspect: $?"
grep -q "format  *dcp" "$TEST_TMPDIR/inspected" ||
  fail "$(cat "$TEST_TMPDIR/inspected")"
