// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/format/value/value.h"
#include "dcp/format/value/value_arena_impl.h"

namespace dcp {

using Kind = Value::Kind;

void ValueArena::Impl::Grow(Value::SequenceNode& sequence, size_t added,
                            bool exactly) {
  const size_t wanted = sequence.size + added;
  DCP_CHECK(wanted <= kMaxMetadataBytes, "container of ", wanted);
  if (wanted <= sequence.capacity) return;
  size_t capacity = wanted;
  if (!exactly || sequence.size > 0) {
    capacity = std::max(capacity, size_t{2} * sequence.capacity);
  }
  Value* data = reinterpret_cast<Value*>(
      containers.Allocate(capacity * sizeof(Value), alignof(Value)));
  if (sequence.size > 0) {
    std::memcpy(static_cast<void*>(data), sequence.data,
                sequence.size * sizeof(Value));
  }
  sequence.data = data;
  sequence.capacity = static_cast<uint32_t>(capacity);
}

void ValueArena::Impl::AppendAll(Value::SequenceNode& sequence,
                                 absl::Span<const Value> added) {
  if (added.empty()) return;
  Grow(sequence, added.size(), /*exactly=*/added.size() > 2);
  std::memcpy(static_cast<void*>(sequence.data + sequence.size), added.data(),
              added.size() * sizeof(Value));
  sequence.size += static_cast<uint32_t>(added.size());
}

Value::GlobalNode* ValueArena::Impl::InternGlobal(absl::string_view module,
                                                  absl::string_view name) {
  if (auto it = globals.find({module, name}); it != globals.end()) {
    return it->second;
  }
  ++num_values;
  auto* node = new (lasting.Allocate(sizeof(Value::GlobalNode), alignof(Value)))
      Value::GlobalNode{CopyText(module), CopyText(name)};
  globals.emplace(std::pair(node->module, node->name), node);
  return node;
}

ValueArena::ValueArena() : impl_(std::make_unique<Impl>()) {}
ValueArena::~ValueArena() = default;
ValueArena::ValueArena(ValueArena&&) noexcept = default;
ValueArena& ValueArena::operator=(ValueArena&&) noexcept = default;

Value ValueArena::Str(absl::string_view text) {
  const absl::string_view copy = impl_->CopyText(text);
  Value v;
  v.kind_ = Kind::kStr;
  v.length_ = static_cast<uint32_t>(copy.size());
  v.text_ = copy.data();
  return v;
}

Value ValueArena::Bytes(absl::string_view bytes) {
  Value v = Str(bytes);
  v.kind_ = Kind::kBytes;
  return v;
}

Value ValueArena::BigInt(absl::string_view little_endian) {
  Value v = Str(little_endian);
  v.kind_ = Kind::kBigInt;
  return v;
}

Value ValueArena::Tuple(absl::Span<const Value> items) {
  DCP_CHECK(items.size() <= kMaxMetadataBytes, "tuple of ", items.size());
  Value v;
  v.kind_ = Kind::kTuple;
  v.values_ = nullptr;
  if (items.empty()) return v;
  v.length_ = static_cast<uint32_t>(items.size());
  v.values_ =
      static_cast<Value*>(impl_->AllocateMarked(items.size() * sizeof(Value)));
  std::memcpy(static_cast<void*>(v.values_), items.data(),
              items.size() * sizeof(Value));
  return v;
}

Value ValueArena::List(absl::Span<const Value> items) {
  Value v;
  v.kind_ = Kind::kList;
  v.sequence_ = new (impl_->AllocateMarked(sizeof(Value::SequenceNode)))
      Value::SequenceNode();
  impl_->AppendAll(*v.sequence_, items);
  return v;
}

Value ValueArena::Dict(absl::Span<const Value> keys_and_values) {
  DCP_CHECK(keys_and_values.size() % 2 == 0, "a key without a value");
  Value v = List(keys_and_values);
  v.kind_ = Kind::kDict;
  return v;
}

Value ValueArena::Global(absl::string_view module, absl::string_view name) {
  Value v;
  v.kind_ = Kind::kGlobal;
  v.global_ = impl_->InternGlobal(module, name);
  return v;
}

Value ValueArena::Call(Value callable, Value args) {
  DCP_CHECK(callable.is(Kind::kGlobal) && args.is(Kind::kTuple),
            KindName(callable.kind()), " called with ", KindName(args.kind()));
  Value v;
  v.kind_ = Kind::kCall;
  v.call_ =
      new (impl_->AllocateMarked(sizeof(Value::CallNode))) Value::CallNode{
          .callable = callable.global_, .args = args, .state = Value()};
  return v;
}

Value ValueArena::New(Value callable, Value args) {
  const Value v = Call(callable, args);
  v.call_->is_new = true;
  return v;
}

Value ValueArena::Enclosing(Value call) {
  DCP_CHECK(call.is(Kind::kCall), "it is ", KindName(call.kind()));
  call.kind_ = Kind::kEnclosing;
  return call;
}

Value ValueArena::Persistent(Value id) {
  Value v;
  v.kind_ = Kind::kPersistent;
  v.values_ = new (impl_->AllocateMarked(sizeof(Value))) Value(id);
  return v;
}

void ValueArena::Append(Value list_or_call, Value element) {
  Extend(list_or_call, absl::MakeConstSpan(&element, 1));
}

void ValueArena::SetState(Value call, Value state) {
  DCP_CHECK(call.is(Kind::kCall), "it is ", KindName(call.kind()));
  call.call_->state = state;
}

void ValueArena::Extend(Value list_or_call, absl::Span<const Value> elements) {
  if (elements.empty()) return;
  if (list_or_call.is(Kind::kList)) {
    impl_->AppendAll(*list_or_call.sequence_, elements);
    return;
  }
  DCP_CHECK(list_or_call.is(Kind::kCall), KindName(list_or_call.kind()));
  auto*& content = list_or_call.call_->content;
  if (content == nullptr) {
    content = new (impl_->containers.Allocate(sizeof(*content), alignof(Value)))
        Value::CallNode::Content();
  }
  impl_->AppendAll(content->elements, elements);
}

void ValueArena::Update(Value dict_or_call,
                        absl::Span<const Value> keys_and_values) {
  DCP_CHECK(keys_and_values.size() % 2 == 0, "a key without a value");
  if (keys_and_values.empty()) return;
  if (dict_or_call.is(Kind::kDict)) {
    impl_->AppendAll(*dict_or_call.sequence_, keys_and_values);
    return;
  }
  DCP_CHECK(dict_or_call.is(Kind::kCall), KindName(dict_or_call.kind()));
  auto*& content = dict_or_call.call_->content;
  if (content == nullptr) {
    content = new (impl_->containers.Allocate(sizeof(*content), alignof(Value)))
        Value::CallNode::Content();
  }
  impl_->AppendAll(content->items, keys_and_values);
}

uint64_t ValueArena::num_values() const { return impl_->num_values; }

size_t ValueArena::num_bytes() const {
  return impl_->containers.num_bytes + impl_->lasting.num_bytes;
}

}  // namespace dcp
