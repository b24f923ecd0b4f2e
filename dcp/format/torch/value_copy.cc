// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/value_copy.h"

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "dcp/format/torch/torch_tensor.h"

namespace dcp {
namespace {

bool IsContainer(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kTuple:
    case Value::Kind::kList:
    case Value::Kind::kDict:
    case Value::Kind::kCall:
    case Value::Kind::kPersistent:
      return true;
    default:
      return false;
  }
}

using Visitor = absl::FunctionRef<void(const Value&)>;

void VisitStored(const Value& value, bool is_in_tensors,
                 absl::flat_hash_set<const void*>& seen, Visitor visit) {
  if (!IsContainer(value)) return;
  if (value.identity() != nullptr && !seen.insert(value.identity()).second) {
    return;
  }
  if (value.is(Value::Kind::kPersistent) ||
      (!is_in_tensors && IsTensor(value))) {
    visit(value);
    return;
  }
  const auto visit_all = [&](absl::Span<const Value> values) {
    for (const Value& each : values) {
      VisitStored(each, is_in_tensors, seen, visit);
    }
  };
  visit_all(value.items());
  if (!value.is(Value::Kind::kCall)) return;
  visit_all({value.args(), value.state()});
  visit_all(value.elements());
}

}  // namespace

Value ValueCopier::Copy(const Value& value) {
  if (!IsContainer(value)) return CopyLeaf(value);
  // Empty tuples have no separate identity.
  const void* identity = value.identity();
  if (identity != nullptr) {
    if (auto it = copies_.find(identity); it != copies_.end()) {
      return it->second;
    }
  }
  std::optional<Value> other = substitute_(value);
  const Value copy = other.has_value() ? *other : CopyContainer(value);
  if (identity != nullptr) copies_.emplace(identity, copy);
  return copy;
}

Value ValueCopier::CopyLeaf(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kStr:
      return arena_.Str(value.text());
    case Value::Kind::kBytes:
      return arena_.Bytes(value.text());
    case Value::Kind::kBigInt:
      return arena_.BigInt(value.text());
    case Value::Kind::kGlobal:
      return arena_.Global(value.module(), value.name());
    case Value::Kind::kEnclosing:
      if (auto it = copies_.find(value.enclosing().identity());
          it != copies_.end() && it->second.is(Value::Kind::kCall)) {
        return arena_.Enclosing(it->second);
      }
      lost_ = true;
      return Value();
    default:
      return value;  // held in the handle itself
  }
}

std::vector<Value> ValueCopier::CopyAll(absl::Span<const Value> values) {
  std::vector<Value> copies;
  copies.reserve(values.size());
  for (const Value& value : values) copies.push_back(Copy(value));
  return copies;
}

Value ValueCopier::CopyContainer(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kTuple:
      return arena_.Tuple(CopyAll(value.items()));
    case Value::Kind::kList:
      return arena_.List(CopyAll(value.items()));
    case Value::Kind::kDict:
      return arena_.Dict(CopyAll(value.items()));
    case Value::Kind::kPersistent:
      return arena_.Persistent(Copy(value.persistent_id()));
    default:
      return CopyCall(value);
  }
}

Value ValueCopier::CopyCall(const Value& value) {
  const Value callable = Copy(value.callable());
  const Value args = Copy(value.args());
  const Value call =
      value.is_new() ? arena_.New(callable, args) : arena_.Call(callable, args);
  copies_.emplace(value.identity(), call);  // later values may refer to it
  arena_.Update(call, CopyAll(value.items()));
  arena_.Extend(call, CopyAll(value.elements()));
  if (!value.state().is_none()) arena_.SetState(call, Copy(value.state()));
  return call;
}

Value CopyValue(ValueArena& arena, const Value& value,
                SubstituteFn substitute) {
  return ValueCopier(arena, substitute).Copy(value);
}

Value CopyValue(ValueArena& arena, const Value& value) {
  return CopyValue(arena, value, [](const Value&) { return std::nullopt; });
}

void ForEachStored(const Value& value, Visitor visit) {
  absl::flat_hash_set<const void*> seen;
  VisitStored(value, /*is_in_tensors=*/false, seen, visit);
}

void ForEachStorage(const Value& value, Visitor visit) {
  absl::flat_hash_set<const void*> seen;
  VisitStored(value, /*is_in_tensors=*/true, seen, visit);
}

}  // namespace dcp
