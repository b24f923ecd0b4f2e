# SPDX-License-Identifier: Apache-2.0
"""C++ libraries and descriptors out of .proto files, by Debian's protoc."""

load("//third_party/precompiled:cc.bzl", "cc_library")

# Sets $imports: where files lie that are imported, which is each folder that has
# a google/.
_FIND_IMPORTS = (
    "imports=$$(for f in $(SRCS); do echo $${f%%/google/*}; done |" +
    " sort -u | sed 's/^/-I/')"
)

def _root_of(protos, prefix = ""):
    """Sets $root: the folder that the names of `protos` begin at."""
    here = "$$(dirname $(execpath %s%s))" % (prefix, protos[0])
    return "root=%s%s" % (here, "/.." * protos[0].count("/"))

# Generated code is not held to our warnings.
_COPTS = ["-w"]

def cc_proto(name, protos, root, deps = [], proto_files = [], services = [], **kwargs):
    """A library of messages and, where there are services, of their stubs.

    Args:
      name: of the library; NAME_files has the .proto files.
      protos: the files, relative to `root`, which is how others import them.
      root: the folder of the package below which they lie; "" is the package.
      deps: libraries of the files that these import.
      proto_files: the .proto files that these import: NAME_files of `deps`.
      services: those of `protos` that have services.
      **kwargs: of the cc_library.
    """
    prefix = root + "/" if root else ""
    outs = []
    for proto in protos:
        outs += [prefix + proto[:-len("proto")] + end for end in ["pb.cc", "pb.h"]]
    for proto in services:
        outs += [
            prefix + proto[:-len("proto")] + "grpc." + end
            for end in ["pb.cc", "pb.h"]
        ]
    srcs = [prefix + proto for proto in protos]
    native.filegroup(
        name = name + "_files",
        srcs = srcs,
        visibility = kwargs.get("visibility"),
    )
    out = "$(RULEDIR)" + ("/" + root if root else "")
    commands = [
        _root_of(protos, prefix),
        _FIND_IMPORTS,
        "protoc -I$$root $$imports --cpp_out=%s %s" % (out, " ".join(protos)),
    ]
    if services:
        commands.append(
            "protoc -I$$root $$imports --grpc_out=%s" % out +
            " --plugin=protoc-gen-grpc=$$(command -v grpc_cpp_plugin) " +
            " ".join(services),
        )
    native.genrule(
        name = name + "_code",
        srcs = srcs + proto_files,
        outs = outs,
        cmd = " && ".join(commands),
    )
    cc_library(
        name = name,
        srcs = [out for out in outs if out.endswith(".cc")],
        # The static names in generated files are always the same.
        own_units = outs,
        hdrs = [out for out in outs if out.endswith(".h")],
        copts = _COPTS,
        precompiled = "grpc",
        includes = [root if root else "."],
        deps = deps,
        **kwargs
    )

def descriptor_set(name, out, protos, imports = [], proto_files = [], **kwargs):
    """A FileDescriptorSet of .proto files and of all that they import.

    Args:
      name: of the rule.
      out: the file.
      protos: the files, relative to the package, which is how others import
        them.
      imports: further files that the set has, as they are imported.
      proto_files: the labels of all files that are imported.
      **kwargs: of the genrule.
    """
    native.genrule(
        name = name,
        srcs = protos + proto_files,
        outs = [out],
        cmd = " && ".join([
            _root_of(protos),
            _FIND_IMPORTS,
            "protoc -I$$root $$imports --include_imports --descriptor_set_out=$@ " +
            " ".join(protos + imports),
        ]),
        **kwargs
    )
