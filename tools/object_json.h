// ObjectJson: an object of a checkpoint as JSON, whole and with its types,
// where JSON has none. What Python has as None, bool, int, float, str, list,
// and dict with keys that are text, stands there as null, true, number, string,
// array and object; integers are exact, however large. All else is an object
// whose
// "$type" says what it is:
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
// and for objects of classes the class, "collections.OrderedDict", with those
// of "args", "items" (pairs), "elements", "state" that are not empty. In an
// object that is a dict, what a limit left out stands under "$cut". Pure; any
// thread.
#ifndef TOOLS_OBJECT_JSON_H_
#define TOOLS_OBJECT_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "dcp/checkpoint/checkpoint.h"

namespace dcp::tools {

struct ObjectJsonLimits {
  // Of the JSON; what is open then is still closed.
  size_t max_bytes = size_t{64} << 20;
  // Readers of JSON do not go much deeper.
  uint32_t max_depth = 200;
};

// Of a located object. "null" for one that was not read.
std::string ObjectJson(const ObjectEntry& object,
                       const ObjectJsonLimits& limits = {});

}  // namespace dcp::tools

#endif  // TOOLS_OBJECT_JSON_H_
