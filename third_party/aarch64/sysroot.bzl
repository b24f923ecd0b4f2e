# SPDX-License-Identifier: Apache-2.0
"""A repository with the contents of Debian's packages for aarch64, in the
folders in which such a machine has them. Nothing is installed on this one.
"""

load("//third_party:apt.bzl", "fetch_with_apt")
load("//third_party:build_file.bzl", "write_build_file")

_FETCH = """
apt get download "$@"
# Where all programs look, although some packages use the older folder.
mkdir -p usr/lib
ln -s usr/lib lib
for package in *.deb; do
  dpkg-deb --fsys-tarfile "$package" |
    tar --extract --keep-directory-symlink --exclude=./etc --exclude=./usr/s*
done
rm ./*.deb
find . -lname '/*' -print | while read -r link; do
  ln -sfr ".$(readlink "$link")" "$link"
done
# Of libraries that are not here.
find . -xtype l -delete
# clang would look for its headers next to lib, too.
rm lib
mkdir lib
ln -s ../usr/lib/aarch64-linux-gnu lib
ln -s aarch64-linux-gnu/ld-linux-aarch64.so.1 lib
# One archive, as in repositories.bzl.
cd usr/lib/aarch64-linux-gnu
if compgen -G 'libabsl_*.a' >/dev/null; then
  (
    echo CREATE libabsl.a
    printf 'ADDLIB %s\\n' libabsl_*.a
    printf 'SAVE\\nEND\\n'
  ) | llvm-ar-14 -M
  rm libabsl_*.a
fi
cd "$OLDPWD"
# By other names, because no build may name a folder and a file in it.
mkdir libraries
find usr/lib/aarch64-linux-gnu -maxdepth 1 '(' -name '*.a' -o -name '*.so.*' ')' \\
  -printf '../%p\\0' | xargs -0 ln -s -t libraries
"""

def _sysroot_impl(rctx):
    fetch_with_apt(
        rctx,
        "deb",
        _FETCH,
        rctx.attr.packages,
        flags = " ".join([
            "-oAPT::Architecture=arm64",
            "-oAPT::Architectures=arm64",
            "-oDir::State::Status=/dev/null",
        ]),
    )
    write_build_file(rctx)

sysroot = repository_rule(
    implementation = _sysroot_impl,
    attrs = {
        "build_file": attr.label(allow_single_file = True, mandatory = True),
        "packages": attr.string_list(mandatory = True),
    },
)
