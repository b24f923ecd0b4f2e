# SPDX-License-Identifier: Apache-2.0
"""translation_units: the sources of a library in a few files.

Most of the time to compile a file goes to the headers that it includes. Eight
files that are compiled as one read them once.
"""

# With 8 files, a third of the time is left. More would save little, and a
# change of one file would take longer.
_FILES_PER_UNIT = 8

# Names the source again, so that warnings, stack traces and __FILE__ do.
_JOIN = """
unit=$1
shift
for source; do
  printf '#line 1 "%s"\\n' "$source"
  cat "$source"
done >"$unit"
"""

def _translation_units_impl(ctx):
    sources = ctx.files.srcs
    count = -(-len(sources) // _FILES_PER_UNIT)
    units = []
    for i in range(count):
        part = sources[len(sources) * i // count:len(sources) * (i + 1) // count]
        unit = ctx.actions.declare_file("%s/%d.cc" % (ctx.label.name, i))
        ctx.actions.run_shell(
            command = _JOIN,
            arguments = [unit.path] + [source.path for source in part],
            inputs = part,
            outputs = [unit],
            mnemonic = "JoinSources",
        )
        units.append(unit)
    return [DefaultInfo(files = depset(units))]

# Its files stand for `srcs` in another rule; cc.bzl says when.
translation_units = rule(
    implementation = _translation_units_impl,
    attrs = {
        "srcs": attr.label_list(
            allow_files = [".cc"],
            doc = "Files of one library; no two may define the same name, " +
                  "not even in unnamed namespaces.",
            mandatory = True,
        ),
    },
)
