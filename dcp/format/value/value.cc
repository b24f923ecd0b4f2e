// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/value/value.h"

#include <algorithm>
#include <bit>

#include "dcp/base/check.h"

namespace dcp {

using Kind = Value::Kind;

Value Value::Bool(bool value) {
  Value v;
  v.kind_ = Kind::kBool;
  v.integer_ = value ? 1 : 0;
  return v;
}

Value Value::Int(int64_t value) {
  Value v;
  v.kind_ = Kind::kInt;
  v.integer_ = value;
  return v;
}

Value Value::Float(double value) {
  Value v;
  v.kind_ = Kind::kFloat;
  v.real_ = value;
  return v;
}

Value Value::Token(uint32_t type, uint64_t token) {
  Value v;
  v.kind_ = Kind::kToken;
  v.length_ = type;
  v.integer_ = static_cast<int64_t>(token);
  return v;
}

bool Value::bool_value() const {
  DCP_CHECK(is(Kind::kBool), "it is ", KindName(kind_));
  return integer_ != 0;
}

int64_t Value::int_value() const {
  DCP_CHECK(is(Kind::kInt), "it is ", KindName(kind_));
  return integer_;
}

double Value::float_value() const {
  DCP_CHECK(is(Kind::kFloat), "it is ", KindName(kind_));
  return real_;
}

absl::string_view Value::text() const {
  DCP_CHECK(is(Kind::kStr) || is(Kind::kBytes) || is(Kind::kBigInt), "it is ",
            KindName(kind_));
  return {text_, length_};
}

absl::Span<const Value> Value::items() const {
  switch (kind_) {
    case Kind::kTuple:
      return {values_, length_};
    case Kind::kList:
    case Kind::kDict:
      return sequence_->values();
    case Kind::kCall:
      if (call_->content == nullptr) return {};
      return call_->content->items.values();
    default:
      DCP_CHECK(false, KindName(kind_), " has no items");
      return {};
  }
}

absl::string_view Value::module() const {
  DCP_CHECK(is(Kind::kGlobal), "it is ", KindName(kind_));
  return global_->module;
}

absl::string_view Value::name() const {
  DCP_CHECK(is(Kind::kGlobal), "it is ", KindName(kind_));
  return global_->name;
}

bool Value::IsGlobal(absl::string_view module, absl::string_view name) const {
  return is(Kind::kGlobal) && global_->Is(module, name);
}

Value Value::callable() const {
  DCP_CHECK(is(Kind::kCall), "it is ", KindName(kind_));
  Value v;
  v.kind_ = Kind::kGlobal;
  v.global_ = call_->callable;
  return v;
}

Value Value::args() const {
  DCP_CHECK(is(Kind::kCall), "it is ", KindName(kind_));
  return call_->args;
}

absl::Span<const Value> Value::elements() const {
  DCP_CHECK(is(Kind::kCall), "it is ", KindName(kind_));
  if (call_->content == nullptr) return {};
  return call_->content->elements.values();
}

Value Value::state() const {
  DCP_CHECK(is(Kind::kCall), "it is ", KindName(kind_));
  return call_->state;
}

bool Value::is_new() const {
  DCP_CHECK(is(Kind::kCall), "it is ", KindName(kind_));
  return call_->is_new;
}

bool Value::IsCallOf(absl::string_view module, absl::string_view name) const {
  return is(Kind::kCall) && call_->callable->Is(module, name);
}

Value Value::persistent_id() const {
  DCP_CHECK(is(Kind::kPersistent), "it is ", KindName(kind_));
  return *values_;
}

Value Value::enclosing() const {
  DCP_CHECK(is(Kind::kEnclosing), "it is ", KindName(kind_));
  Value v = *this;
  v.kind_ = Kind::kCall;
  return v;
}

uint32_t Value::token_type() const {
  DCP_CHECK(is(Kind::kToken), "it is ", KindName(kind_));
  return length_;
}

uint64_t Value::token() const {
  DCP_CHECK(is(Kind::kToken), "it is ", KindName(kind_));
  return static_cast<uint64_t>(integer_);
}

const void* Value::identity() const {
  switch (kind_) {
    case Kind::kTuple:
    case Kind::kPersistent:
      return values_;
    case Kind::kList:
    case Kind::kDict:
      return sequence_;
    case Kind::kCall:
      return call_;
    default:
      return nullptr;
  }
}

namespace {

bool SameCallable(const Value& a, const Value& b) {
  return a.callable().name() == b.callable().name() &&
         a.callable().module() == b.callable().module();
}

bool AllEqual(absl::Span<const Value> a, absl::Span<const Value> b,
              bool exact) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [exact](const Value& x, const Value& y) {
                      return DeepEqual(x, y, exact);
                    });
}

bool IsOrdinaryDict(const Value& value) {
  return value.is(Kind::kDict) ||
         (value.IsCallOf("collections", "OrderedDict") &&
          value.args().items().empty() && value.elements().empty());
}

}  // namespace

bool DeepEqual(const Value& a, const Value& b, bool exact) {
  if (a.identity() != nullptr && a.identity() == b.identity()) return true;
  if (!exact && IsOrdinaryDict(a) && IsOrdinaryDict(b)) {
    return AllEqual(a.items(), b.items(), exact);
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return a.bool_value() == b.bool_value();
    case Kind::kInt:
      return a.int_value() == b.int_value();
    case Kind::kFloat:
      return std::bit_cast<uint64_t>(a.float_value()) ==
             std::bit_cast<uint64_t>(b.float_value());
    case Kind::kBigInt:
    case Kind::kStr:
    case Kind::kBytes:
      return a.text() == b.text();
    case Kind::kTuple:
    case Kind::kList:
    case Kind::kDict:
      return AllEqual(a.items(), b.items(), exact);
    case Kind::kGlobal:
      return a.IsGlobal(b.module(), b.name());
    case Kind::kCall:
      return SameCallable(a, b) && (!exact || a.is_new() == b.is_new()) &&
             DeepEqual(a.args(), b.args(), exact) &&
             AllEqual(a.items(), b.items(), exact) &&
             AllEqual(a.elements(), b.elements(), exact) &&
             DeepEqual(a.state(), b.state(), exact);
    case Kind::kPersistent:
      return DeepEqual(a.persistent_id(), b.persistent_id(), exact);
    case Kind::kEnclosing:
      return SameCallable(a.enclosing(), b.enclosing());
    case Kind::kToken:
      return a.token_type() == b.token_type() && a.token() == b.token();
  }
  return false;
}

absl::string_view KindName(Value::Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "an int";
    case Kind::kFloat:
      return "a float";
    case Kind::kStr:
      return "a str";
    case Kind::kBytes:
      return "bytes";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kList:
      return "a list";
    case Kind::kDict:
      return "a dict";
    case Kind::kGlobal:
      return "a global";
    case Kind::kCall:
      return "an object";
    case Kind::kPersistent:
      return "a persistent id";
    case Kind::kEnclosing:
      return "an enclosing object";
    case Kind::kToken:
      return "a token";
  }
  return "unknown";
}

bool IsAttributeDict(absl::string_view module, absl::string_view name) {
  return name == "AttributeDict" &&
         (module == "lightning.fabric.utilities.data" ||
          module == "lightning_fabric.utilities.data" ||
          module == "pytorch_lightning.utilities.parsing");
}

bool IsMapping(const Value& value) {
  if (value.is(Kind::kDict)) return true;
  if (!value.is(Kind::kCall)) return false;
  const Value callable = value.callable();
  return callable.IsGlobal("collections", "OrderedDict") ||
         callable.IsGlobal("collections", "defaultdict") ||
         callable.IsGlobal("collections", "Counter") ||
         IsAttributeDict(callable.module(), callable.name());
}

}  // namespace dcp
