#include "dcp/format/value_copy.h"

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "dcp/format/torch_tensor.h"

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

class Copier {
 public:
  Copier(ValueArena& arena, SubstituteFn substitute)
      : arena_(arena), substitute_(substitute) {}

  Value Copy(const Value& value) {
    if (!IsContainer(value)) return CopyLeaf(value);
    // Empty tuples have no identity of their own.
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

 private:
  Value CopyLeaf(const Value& value) {
    switch (value.kind()) {
      case Value::Kind::kStr:
        return arena_.Str(value.text());
      case Value::Kind::kBytes:
        return arena_.Bytes(value.text());
      case Value::Kind::kBigInt:
        return arena_.BigInt(value.text());
      case Value::Kind::kGlobal:
        return arena_.Global(value.module(), value.name());
      default:
        return value;  // held in the handle itself
    }
  }

  std::vector<Value> CopyAll(absl::Span<const Value> values) {
    std::vector<Value> copies;
    copies.reserve(values.size());
    for (const Value& value : values) copies.push_back(Copy(value));
    return copies;
  }

  Value CopyContainer(const Value& value) {
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

  Value CopyCall(const Value& value) {
    const Value call = arena_.Call(Copy(value.callable()), Copy(value.args()));
    const std::vector<Value> items = CopyAll(value.items());
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      arena_.SetItem(call, items[i], items[i + 1]);
    }
    for (const Value& element : CopyAll(value.elements())) {
      arena_.Append(call, element);
    }
    if (!value.state().is_none()) arena_.SetState(call, Copy(value.state()));
    return call;
  }

  ValueArena& arena_;
  SubstituteFn substitute_;
  absl::flat_hash_map<const void*, Value> copies_;
};

void VisitTensors(const Value& value, absl::flat_hash_set<const void*>& seen,
                  absl::FunctionRef<void(const Value&)> visit) {
  if (!IsContainer(value)) return;
  if (value.identity() != nullptr && !seen.insert(value.identity()).second) {
    return;
  }
  if (IsTensor(value)) {
    visit(value);
    return;
  }
  if (value.is(Value::Kind::kPersistent)) return;
  for (const Value& item : value.items()) VisitTensors(item, seen, visit);
  if (!value.is(Value::Kind::kCall)) return;
  VisitTensors(value.args(), seen, visit);
  for (const Value& element : value.elements()) {
    VisitTensors(element, seen, visit);
  }
  VisitTensors(value.state(), seen, visit);
}

}  // namespace

Value CopyValue(ValueArena& arena, const Value& value,
                SubstituteFn substitute) {
  return Copier(arena, substitute).Copy(value);
}

Value CopyValue(ValueArena& arena, const Value& value) {
  return CopyValue(arena, value, [](const Value&) { return std::nullopt; });
}

void ForEachTensor(const Value& value,
                   absl::FunctionRef<void(const Value&)> visit) {
  absl::flat_hash_set<const void*> seen;
  VisitTensors(value, seen, visit);
}

}  // namespace dcp
