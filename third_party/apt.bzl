# SPDX-License-Identifier: Apache-2.0
"""apt-get for repositories. It reads the machine's own list of servers, checks their
signatures, and writes nothing outside of the repository.
"""

# Makes `apt COMMAND ARGUMENT...` and reads what the servers have: packages ("deb")
# or sources ("deb-src").
_PRELUDE = """
set -euo pipefail
readonly kind=$1 flags=(${2})
shift 2
mkdir -p lists/partial servers
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
  [[ ! -e $list ]] || sed "s/^deb /$kind /" "$list" >"servers/${list##*/}"
done
for list in /etc/apt/sources.list.d/*.sources; do
  [[ ! -e $list ]] ||
    sed "s/^Types:.*/Types: $kind/" "$list" >"servers/${list##*/}"
done
apt() {
  "apt-$1" -q -o APT::Sandbox::User=root -o Dir::Cache="$PWD" \\
    -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$PWD/servers" \\
    -o Dir::State::Lists="$PWD/lists" "${flags[@]}" "${@:2}"
}
apt get update
"""

_TIDY = """
rm -rf lists servers ./*.bin
"""

def fetch_with_apt(rctx, kind, script, arguments, flags = ""):
    """Runs a script of bash that fetches with `apt get`.

    Args:
      rctx: of the repository rule.
      kind: "deb" or "deb-src".
      script: fetches what `$@` names into the current folder.
      arguments: of the script.
      flags: more options of apt-get.
    """
    rctx.report_progress("apt-get fetches from Debian")
    done = rctx.execute(
        ["bash", "-c", _PRELUDE + script + _TIDY, "fetch", kind, flags] + arguments,
        timeout = 3600,
    )
    if done.return_code != 0:
        fail(("%s: apt-get could not fetch them; it needs Debian's " +
              "servers. It said:\n%s%s") %
             (", ".join(arguments), done.stdout, done.stderr))
