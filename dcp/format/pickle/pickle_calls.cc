// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/pickle_calls.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/pickle/inert_value.h"
#include "dcp/format/pickle/metadata_modules.h"
#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_text.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// A name from a file, escaped and shortened for a message.
std::string Quoted(absl::string_view name) {
  constexpr size_t kMaxShown = 100;
  std::string text = absl::CHexEscape(name.substr(0, kMaxShown));
  if (name.size() > kMaxShown) text += "...";
  return text;
}

// The name in Python 3. Python's own pickler writes int as __builtin__.long and
// str as __builtin__.unicode for protocol 2.
PickleGlobalName ModernName(PickleGlobalName global) {
  if (global.module == "__builtin__") {
    global.module = "builtins";
    if (global.name == "long") global.name = "int";
    if (global.name == "unicode") global.name = "str";
    if (global.name == "xrange") global.name = "range";
  } else if (global.module == "copy_reg") {
    global.module = "copyreg";
  } else if (global.module == "pathlib._local") {
    global.module = "pathlib";
  }
  return global;
}

// Arguments that are harmless here must also be harmless for the Python that
// reads our output: an integer would make a buffer of that size.
absl::Status CheckArguments(Value callable, absl::Span<const Value> args) {
  if (args.empty()) return absl::OkStatus();
  const Value& first = args[0];
  const bool number = first.is(Kind::kInt) || first.is(Kind::kBigInt);
  if (number && (callable.IsGlobal("builtins", "bytearray") ||
                 callable.IsGlobal("builtins", "bytes"))) {
    return absl::DataLossError("bytes made from a length are not allowed");
  }
  const bool text = first.is(Kind::kStr) || first.is(Kind::kBytes);
  if (!text) return absl::OkStatus();
  // With an exponent, a short text would make a number with very many digits.
  if (callable.IsGlobal("fractions", "Fraction") &&
      first.text().find_first_not_of("+-0123456789/") !=
          absl::string_view::npos) {
    return absl::DataLossError(
        "the text of a Fraction is not an integer or two with a slash");
  }
  if (callable.IsGlobal("builtins", "int") &&
      first.text().size() > kMaxPickleIntBytes) {
    return absl::DataLossError(absl::StrCat("an int of ", first.text().size(),
                                            " digits is longer than ",
                                            kMaxPickleIntBytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPickleKeys(absl::Span<const Value> items) {
  for (size_t i = 0; i < items.size(); i += 2) {
    if (items[i].is(Kind::kList) || items[i].is(Kind::kDict)) {
      return absl::DataLossError(absl::StrCat(KindName(items[i].kind()),
                                              " cannot be a key of a dict"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> PickleCalls::MakeGlobal(PickleGlobalName global) {
  global = ModernName(global);
  const bool known = options_.allow_global(global.module, global.name);
  const bool kept = options_.keep_unknown_globals &&
                    !IsCodeGlobal(global.module, global.name);
  if ((!known && !kept) || !IsPlainName(global.module) ||
      !IsPlainName(global.name)) {
    return absl::PermissionDeniedError(
        absl::StrCat("global ", Quoted(global.module), ".", Quoted(global.name),
                     " is not allowed"));
  }
  has_unknown_globals_ |= !known;
  return arena_.Global(global.module, global.name);
}

absl::StatusOr<Value> PickleCalls::MakeBuiltin(absl::string_view name,
                                               Value argument) {
  DCP_ASSIGN_OR_RETURN(const Value callable, MakeGlobal({"builtins", name}));
  return arena_.Call(callable, arena_.Tuple({argument}));
}

absl::StatusOr<Value> PickleCalls::MakeCall(Value callable, Value args,
                                            bool is_new) {
  // Calling the result of an unknown function has an unknown result.
  if (callable.is(Kind::kCall) && IsUnknown(callable.callable())) {
    return arena_.Call(callable.callable(), arena_.Tuple({callable, args}));
  }
  if (!callable.is(Kind::kGlobal)) {
    return absl::DataLossError(
        absl::StrCat(KindName(callable.kind()), " cannot be called"));
  }
  if (!args.is(Kind::kTuple)) {
    return absl::DataLossError(absl::StrCat(
        "the arguments are ", KindName(args.kind()), ", not a tuple"));
  }
  const absl::Span<const Value> items = args.items();
  if (callable.IsGlobal("_codecs", "encode")) return MakeBytes(items);
  if (callable.IsGlobal("builtins", "getattr") && !IsUnknown(callable)) {
    return MakeEnum(items);
  }
  if (callable.IsGlobal("builtins", "bytes") && items.empty()) {
    return arena_.Bytes("");
  }
  DCP_RETURN_IF_ERROR(CheckArguments(callable, items));
  if (absl::Status plain = CheckNumpyDType(callable, items); !plain.ok()) {
    if (!options_.keep_unknown_globals) return plain;
    has_unknown_globals_ = true;
  }
  // In Python 2 an OrderedDict gets its items as a list of pairs; Counter still
  // gets a dict.
  const bool counter = callable.IsGlobal("collections", "Counter");
  if (counter && items.size() == 1 && items[0].is(Kind::kDict)) {
    const Value call = arena_.Call(callable, arena_.Tuple({}));
    arena_.Update(call, items[0].items());
    return call;
  }
  const bool ordered = callable.IsGlobal("collections", "OrderedDict");
  if (ordered && items.size() == 1 && items[0].is(Kind::kList)) {
    return MakeOrderedDict(callable, items[0]);
  }
  return is_new ? arena_.New(callable, args) : arena_.Call(callable, args);
}

absl::StatusOr<Value> PickleCalls::MakeOrderedDict(Value callable,
                                                   const Value& pairs) {
  const Value call = arena_.Call(callable, arena_.Tuple({}));
  for (const Value& pair : pairs.items()) {
    if ((!pair.is(Kind::kList) && !pair.is(Kind::kTuple)) ||
        pair.items().size() != 2) {
      return absl::DataLossError(
          "the argument of an OrderedDict is not a list of pairs");
    }
    DCP_RETURN_IF_ERROR(CheckPickleKeys(pair.items()));
    arena_.Update(call, pair.items());
  }
  return call;
}

absl::StatusOr<Value> PickleCalls::MakeBytes(absl::Span<const Value> args) {
  if (args.size() != 2 || !args[0].is(Kind::kStr) || !args[1].is(Kind::kStr)) {
    return absl::DataLossError("_codecs.encode requires a str and a codec");
  }
  if (args[1].text() != "latin1") {
    return absl::PermissionDeniedError(absl::StrCat(
        "_codecs.encode to ", Quoted(args[1].text()), " is not allowed"));
  }
  const std::optional<std::string> bytes = Latin1FromUtf8(args[0].text());
  if (!bytes.has_value()) {
    return absl::DataLossError("a str has characters that latin1 lacks");
  }
  return arena_.Bytes(*bytes);
}

// Makes an enum member, which Python 3.11.0 to 3.11.3 pickled by name.
absl::StatusOr<Value> PickleCalls::MakeEnum(absl::Span<const Value> args) {
  constexpr struct {
    PickleGlobalName type;
    absl::string_view member;
    int64_t value;
  } kMembers[] = {
      {{kMetadataModule, "_MEM_FORMAT_ENCODING"}, "TORCH_CONTIGUOUS_FORMAT", 0},
      {{kMetadataModule, "_MEM_FORMAT_ENCODING"}, "TORCH_CHANNELS_LAST", 1},
      {{kMetadataModule, "_MEM_FORMAT_ENCODING"}, "TORCH_PRESERVE_FORMAT", 2},
      {{kPlannerModule, "WriteItemType"}, "TENSOR", 1},
      {{kPlannerModule, "WriteItemType"}, "SHARD", 2},
      {{kPlannerModule, "WriteItemType"}, "BYTE_IO", 3},
  };
  if (args.size() == 2 && args[1].is(Kind::kStr)) {
    for (const auto& [type, member, value] : kMembers) {
      if (args[1].text() != member ||
          !args[0].IsGlobal(type.module, type.name)) {
        continue;
      }
      return arena_.Call(args[0], arena_.Tuple({Value::Int(value)}));
    }
  }
  return absl::PermissionDeniedError(
      "global builtins.getattr is not allowed except for members of "
      "_MEM_FORMAT_ENCODING and WriteItemType");
}

}  // namespace dcp
