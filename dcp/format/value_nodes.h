// What a Value points to: for value.cc and value_arena*.cc alone.
#ifndef DCP_FORMAT_VALUE_NODES_H_
#define DCP_FORMAT_VALUE_NODES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/format/value.h"

namespace dcp {

struct Value::GlobalNode {
  absl::string_view module;
  absl::string_view name;

  bool Is(absl::string_view other_module, absl::string_view other_name) const {
    return name == other_name && module == other_module;
  }
};

struct Value::SequenceNode {
  Value* data = nullptr;
  uint32_t size = 0;
  uint32_t capacity = 0;

  absl::Span<const Value> values() const { return {data, size}; }
};

struct Value::CallNode {
  GlobalNode* callable;
  Value args;
  Value state;
  bool is_new = false;
  // Most calls have neither items nor elements.
  struct Content {
    SequenceNode items;
    SequenceNode elements;
  };
  Content* content = nullptr;
};

}  // namespace dcp

#endif  // DCP_FORMAT_VALUE_NODES_H_
