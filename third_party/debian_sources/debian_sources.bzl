# SPDX-License-Identifier: Apache-2.0
"""A repository with the sources of Debian's packages, for what Debian compiled in
a form that cannot be linked: as shared libraries only, or not for those.

They are of the installed versions, in Debian's newest revision of each.
"""

load("//third_party:apt.bzl", "fetch_with_apt")
load("//third_party:build_file.bzl", "write_build_file")

# Each package gets a folder of its name. Its own files for Bazel would hide
# folders from ours.
_FETCH = """
mapfile -t installed < <(
  dpkg-query --show --showformat '${source:Package}=${source:Version}\\n' "$@" |
  sort -u)
versions=()
for version in "${installed[@]}"; do
  name=${version%%=*}
  # Servers have the newest revision only; what is compiled is the same in all.
  upstream=${version#*=}
  upstream=${upstream%-*}
  found=$(apt cache showsrc --only-source "$name" |
    sed -n "s/^Version: \\(${upstream//./\\.}-.*\\)/\\1/p" | sort -V | tail -n 1)
  [[ -n $found ]] || {
    echo "there is no $name $upstream" >&2
    exit 1
  }
  versions+=("$name=$found")
done
apt get source --only-source "${versions[@]}"
for version in "${versions[@]}"; do
  name=${version%%=*}
  mv "$name"-*/ "$name"
done
find . -name BUILD -o -name BUILD.bazel -o -name 'WORKSPACE*' | xargs rm -f
rm -f ./*.tar.* ./*.dsc
"""

def _debian_sources_impl(rctx):
    fetch_with_apt(rctx, "deb-src", _FETCH, rctx.attr.packages)
    write_build_file(rctx)

debian_sources = repository_rule(
    implementation = _debian_sources_impl,
    attrs = {
        "build_file": attr.label(allow_single_file = True, mandatory = True),
        "packages": attr.string_list(
            doc = "Installed packages that were made of the sources.",
            mandatory = True,
        ),
    },
)
