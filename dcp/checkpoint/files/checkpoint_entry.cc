// SPDX-License-Identifier: Apache-2.0
// Makes the short text of an object for people.
// Tested by tests/dcp/checkpoint/open/checkpoint_test.cc.
#include "dcp/checkpoint/files/checkpoint_entry.h"

#include "absl/strings/str_cat.h"
#include "dcp/format/pickle/inert_value.h"

namespace dcp {

std::string ToString(const ObjectEntry& object, size_t max_bytes) {
  if (object.unreadable.ok()) return ToString(object.value, max_bytes);
  const std::string opaque = OpaqueClass(object.value);
  return (opaque.empty()
              ? absl::StrCat("not read: ", object.unreadable.message())
              : absl::StrCat("<", opaque, ">"))
      .substr(0, max_bytes);
}

uint64_t TensorEntry::num_bytes() const {
  return static_cast<uint64_t>(Volume(shape)) * ElementSize(dtype);
}

}  // namespace dcp
