// SPDX-License-Identifier: Apache-2.0
// ValueArena::KeepOnly: moves the values that are still needed to new memory.
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "dcp/base/check.h"
#include "dcp/format/value/value.h"
#include "dcp/format/value/value_arena_impl.h"

namespace dcp {

using Kind = Value::Kind;

// Copies containers one by one. The contents of a copy still refer to the old
// arena until they are moved.
class ValueArena::Mover {
 public:
  explicit Mover(Impl& to) : to_(to) {}

  void MoveAll(absl::Span<Value> values) {
    open_.push_back(values);
    while (!open_.empty()) {
      const absl::Span<Value> next = open_.back();
      open_.pop_back();
      for (Value& value : next) Move(value);
    }
  }

 private:
  void Move(Value& value) {
    switch (value.kind_) {
      case Kind::kTuple:
        if (value.length_ > 0) value.values_ = Moved(value.values_, value);
        return;
      case Kind::kPersistent:
        value.values_ = Moved(value.values_, value);
        return;
      case Kind::kList:
      case Kind::kDict:
        value.sequence_ = Moved(value.sequence_, value);
        return;
      case Kind::kCall:
        value.call_ = Moved(value.call_, value);
        return;
      case Kind::kEnclosing:
        DCP_CHECK(false, "values were measured before they were moved");
        return;
      default:
        return;  // stored in the handle itself, or lasting
    }
  }

  // The new address of `node`. After the first call the node's Mark holds the
  // address.
  template <typename Node>
  Node* Moved(Node* node, const Value& value) {
    Impl::Mark& mark = Impl::ContainerMark(node);
    if (const auto address = std::bit_cast<uintptr_t>(mark); address != 0) {
      return reinterpret_cast<Node*>(address);
    }
    Node* const copy = NewAddress(node, value);
    mark = std::bit_cast<Impl::Mark>(reinterpret_cast<uintptr_t>(copy));
    return copy;
  }

  Value* NewAddress(const Value* values, const Value& value) {
    const size_t count = value.is(Kind::kTuple) ? value.length_ : 1;
    auto* copy = static_cast<Value*>(to_.AllocateMarked(count * sizeof(Value)));
    std::memcpy(static_cast<void*>(copy), values, count * sizeof(Value));
    open_.push_back({copy, count});
    return copy;
  }

  Value::SequenceNode* NewAddress(const Value::SequenceNode* node,
                                  const Value&) {
    auto* copy = new (to_.AllocateMarked(sizeof(*node))) Value::SequenceNode();
    CopySequence(*node, *copy);
    return copy;
  }

  Value::CallNode* NewAddress(const Value::CallNode* node, const Value&) {
    auto* copy = new (to_.AllocateMarked(sizeof(*node))) Value::CallNode(*node);
    open_.push_back({&copy->args, 1});
    open_.push_back({&copy->state, 1});
    if (node->content == nullptr) return copy;
    copy->content =
        new (to_.containers.Allocate(sizeof(*node->content), alignof(Value)))
            Value::CallNode::Content();
    CopySequence(node->content->items, copy->content->items);
    CopySequence(node->content->elements, copy->content->elements);
    return copy;
  }

  void CopySequence(const Value::SequenceNode& from, Value::SequenceNode& to) {
    if (from.size == 0) return;
    to_.Grow(to, from.capacity, /*exactly=*/true);  // more may be appended
    std::memcpy(static_cast<void*>(to.data), from.data,
                from.size * sizeof(Value));
    to.size = from.size;
    open_.push_back({to.data, to.size});
  }

  Impl& to_;
  // copies with contents that have not moved
  std::vector<absl::Span<Value>> open_;
};

void ValueArena::KeepOnly(absl::Span<const absl::Span<Value>> roots) {
  auto kept = std::make_unique<Impl>();
  kept->lasting = std::move(impl_->lasting);
  kept->globals = std::move(impl_->globals);
  kept->num_values = kept->globals.size();
  kept->containers.spare = std::move(impl_->containers.spare);
  Mover mover(*kept);
  for (const absl::Span<Value> values : roots) mover.MoveAll(values);
  kept->containers.TakeSpare(impl_->containers);
  impl_ = std::move(kept);
}

}  // namespace dcp
