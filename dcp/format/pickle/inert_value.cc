// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/inert_value.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "dcp/base/status.h"
#include "dcp/format/pickle/pickle_globals.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

bool HasKey(const Value& dict, absl::string_view name) {
  for (size_t i = 0; i < dict.items().size(); i += 2) {
    const Value& key = dict.items()[i];
    if (key.is(Kind::kStr) && key.text() == name) return true;
  }
  return false;
}

// Visits values in writing order, so that every object that a value may refer
// to has been seen before.
class Inspector {
 public:
  absl::Status Check(const Value& value) {
    if (value.is(Kind::kGlobal)) return CheckGlobal(value);
    if (value.is(Kind::kEnclosing)) {
      if (seen_.contains(value.enclosing().identity())) return absl::OkStatus();
      return absl::UnimplementedError(
          absl::StrCat("it refers to an object outside itself, ",
                       value.enclosing().callable().module(), ".",
                       value.enclosing().callable().name()));
    }
    if (value.identity() == nullptr) return absl::OkStatus();
    if (!seen_.insert(value.identity()).second) return absl::OkStatus();
    if (value.is(Kind::kPersistent)) return Check(value.persistent_id());
    if (!value.is(Kind::kCall)) return CheckAll(value.items());
    if (const std::string name = PickledModuleClass(value); !name.empty()) {
      return absl::UnimplementedError(
          absl::StrCat("it is a whole pickled module, ", name,
                       ", which requires its code: in Python, torch.save its "
                       "state_dict() instead"));
    }
    DCP_RETURN_IF_ERROR(CheckGlobal(value.callable()));
    DCP_RETURN_IF_ERROR(
        CheckNumpyDType(value.callable(), value.args().items()));
    DCP_RETURN_IF_ERROR(Check(value.args()));
    DCP_RETURN_IF_ERROR(CheckAll(value.items()));
    DCP_RETURN_IF_ERROR(CheckAll(value.elements()));
    return Check(value.state());
  }

  absl::Status CheckAll(absl::Span<const Value> values) {
    for (const Value& value : values) DCP_RETURN_IF_ERROR(Check(value));
    return absl::OkStatus();
  }

 private:
  static absl::Status CheckGlobal(const Value& global) {
    if (IsStateDictGlobal(global.module(), global.name())) {
      return absl::OkStatus();
    }
    return absl::PermissionDeniedError(absl::StrCat(
        "global ", global.module(), ".", global.name(), " is not allowed"));
  }

  absl::flat_hash_set<const void*> seen_;
};

std::string ClassName(const Value& call) {
  return absl::StrCat(call.callable().module(), ".", call.callable().name());
}

// Whether a call looks like an enumeration member: Kind(1), Kind("a").
bool IsMember(const Value& call) {
  const absl::Span<const Value> args = call.args().items();
  return args.size() == 1 && (args[0].is(Kind::kInt) || args[0].is(Kind::kStr));
}

// "f4", "|b1", "U12", "M8[ns]": the texts that numpy itself pickles for a dtype
// without Python objects.
bool IsPlainDType(absl::string_view text) {
  const auto begins_with_one_of = [&](absl::string_view characters) {
    return !text.empty() && characters.find(text[0]) != absl::string_view::npos;
  };
  if (begins_with_one_of("<>=|")) text.remove_prefix(1);
  if (!begins_with_one_of("?biufcmMVSU")) return false;
  text.remove_prefix(1);
  const absl::string_view unit =
      text.substr(std::min(text.size(), text.find_first_not_of("0123456789")));
  return unit.empty() || (unit[0] == '[' && unit.back() == ']' &&
                          unit.find(',') == absl::string_view::npos);
}

}  // namespace

absl::Status CheckNumpyDType(const Value& callable,
                             absl::Span<const Value> args) {
  if (!callable.IsGlobal("numpy", "dtype") || args.empty()) {
    return absl::OkStatus();
  }
  // A class, which must be known.
  if (args[0].is(Kind::kGlobal)) return absl::OkStatus();
  const bool text = args[0].is(Kind::kStr) || args[0].is(Kind::kBytes);
  if (text && IsPlainDType(args[0].text())) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("numpy objects are not allowed: the dtype ",
                   ToString(args[0], 40), " may hold objects of Python"));
}

absl::Status CheckInert(const Value& value) { return Inspector().Check(value); }

std::string OpaqueClass(const Value& value) {
  if (!value.is(Kind::kCall) ||
      IsStateDictGlobal(value.callable().module(), value.callable().name()) ||
      (!value.is_new() && !IsMember(value)) ||
      !PickledModuleClass(value).empty()) {
    return "";
  }
  Inspector inspector;
  absl::Status plain = inspector.Check(value.args());
  plain.Update(inspector.CheckAll(value.items()));
  plain.Update(inspector.CheckAll(value.elements()));
  plain.Update(inspector.Check(value.state()));
  return plain.ok() ? ClassName(value) : "";
}

std::string PickledModuleClass(const Value& value) {
  if (!value.is(Kind::kCall) || !value.state().is(Kind::kDict) ||
      !HasKey(value.state(), "_parameters") ||
      !HasKey(value.state(), "_modules")) {
    return "";
  }
  return ClassName(value);
}

}  // namespace dcp
