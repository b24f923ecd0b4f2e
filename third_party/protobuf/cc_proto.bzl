"""C++ libraries out of .proto files, by Debian's protoc."""

load("//third_party/precompiled:cc.bzl", "cc_library")

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
    here = "$$(dirname $(execpath %s))" % srcs[0]
    up = "/.." * protos[0].count("/")
    out = "$(RULEDIR)" + ("/" + root if root else "")
    commands = [
        "root=%s%s" % (here, up),
        # Where files lie that are imported: each folder that has a google/.
        "imports=$$(for f in $(SRCS); do echo $${f%%/google/*}; done |" +
        " sort -u | sed 's/^/-I/')",
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
        hdrs = [out for out in outs if out.endswith(".h")],
        copts = _COPTS,
        precompiled = "grpc",
        includes = [root if root else "."],
        deps = deps,
        **kwargs
    )
