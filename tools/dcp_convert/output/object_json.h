// SPDX-License-Identifier: Apache-2.0
// ObjectJson: an object of a checkpoint as JSON, complete and with its types,
// which JSON does not have. Python's None, bool, int, float, str, list, and
// dict with text keys become null, true, number, string, array and object;
// integers are exact, however large. Everything else is an object whose "$type"
// names its type:
//
//   float      "value" is "nan", "inf" or "-inf"
//   str        text that is not UTF-8: its bytes in "base64"
//   bytes      in "base64"
//   tuple, set, frozenset   "items"
//   dict       with other keys, or one that begins with "$": "items", of pairs
//   global     a class or function: "module", "name"
//   tensor     "dtype", "shape"
//   storage    "dtype", "num_bytes"
//   enclosing  an object that this one is a part of: "class"
//   persistent "id"
//   cut        what a limit left out: "limit" ("max_bytes", "max_depth"), and
//              in "num_left" how many items or bytes
//
// An object of a class has the class, "collections.OrderedDict", and those of
// "args", "items" (pairs), "elements" and "state" that are not empty. In an
// object that stands for a dict, "$cut" says what a limit left out. Pure; any
// thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_OBJECT_JSON_H_
#define TOOLS_DCP_CONVERT_OUTPUT_OBJECT_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "dcp/checkpoint/open/checkpoint.h"

namespace dcp::tools {

struct ObjectJsonLimits {
  // Limits the JSON; brackets that are open at that point are still closed.
  size_t max_bytes = size_t{64} << 20;
  // JSON readers do not accept much more.
  uint32_t max_depth = 200;
};

// `object` must be located. "null" for an object that was not read.
std::string ObjectJson(const ObjectEntry& object,
                       const ObjectJsonLimits& limits = {});

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_OBJECT_JSON_H_
