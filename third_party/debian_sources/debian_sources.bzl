# SPDX-License-Identifier: Apache-2.0
"""A repository with the sources of Debian's packages, for what Debian compiled in
a form that cannot be linked: as shared libraries only, or not for those.

apt-get fetches the sources of the installed versions, in Debian's newest revision of
each, and checks their signatures. It reads the machine's own list of servers and
writes nothing outside of the repository.
"""

load("//third_party:build_file.bzl", "write_build_file")

# Each package gets a folder of its name. Its own files for Bazel would hide
# folders from ours.
_FETCH = """
set -euo pipefail
mkdir -p lists/partial servers
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
  [[ ! -e $list ]] || sed 's/^deb /deb-src /' "$list" >"servers/${list##*/}"
done
for list in /etc/apt/sources.list.d/*.sources; do
  [[ ! -e $list ]] ||
    sed 's/^Types:.*/Types: deb-src/' "$list" >"servers/${list##*/}"
done
apt() {
  "apt-$1" -q -o APT::Sandbox::User=root -o Dir::Cache="$PWD" \
    -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$PWD/servers" \
    -o Dir::State::Lists="$PWD/lists" "${@:2}"
}
apt get update
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
rm -rf lists servers ./*.bin ./*.tar.* ./*.dsc
"""

def _debian_sources_impl(rctx):
    rctx.report_progress("apt-get fetches Debian's sources")
    done = rctx.execute(
        ["bash", "-c", _FETCH, "fetch"] + rctx.attr.packages,
        timeout = 3600,
    )
    if done.return_code != 0:
        fail(("Sources of %s: apt-get could not fetch them; it needs Debian's " +
              "servers. It said:\n%s%s") %
             (", ".join(rctx.attr.packages), done.stdout, done.stderr))
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
