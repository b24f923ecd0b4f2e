// SPDX-License-Identifier: Apache-2.0
// ObjectJson: a checkpoint's object as JSON, complete and with Python's types,
// which JSON does not have. None, bool, int, float, str, list, and dict with
// text keys become null, true, number, string, array and object; integers are
// exact, however large. Everything else is an object that names the type in
// "$type":
//
//   float      "value" is "nan", "inf" or "-inf"
//   str        text that is not UTF-8: the bytes in "base64"
//   bytes      in "base64"
//   tuple, set, frozenset   "items"
//   dict       with other keys, or one that begins with "$": "items", of pairs
//   global     a class or function: "module", "name"
//   tensor     "dtype", "shape"
//   storage    "dtype", "num_bytes"
//   enclosing  an object that contains this one: "class"
//   persistent "id"
//   cut        left out because of "limit" ("max_bytes", "max_depth");
//   "num_left"
//              is how many items or bytes
//
// A class's object has the class, "collections.OrderedDict", and those of
// "args", "items" (pairs), "elements" and "state" that are not empty. In an
// object that stands for a dict, "$cut" names the limit that left items out.
// Pure; any thread.
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
