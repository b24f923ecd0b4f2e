// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/output/object_json.h"

#include <cmath>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "dcp/base/check.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/dtype.h"
#include "nlohmann/json.hpp"
#include "proto/utf8.h"

namespace dcp::tools {
namespace {

using Kind = Value::Kind;

// `text` is valid UTF-8, or text that this writer made.
std::string Quoted(absl::string_view text) {
  return nlohmann::json(std::string(text)).dump();
}

std::string Base64(absl::string_view bytes) {
  return absl::StrCat("\"", absl::Base64Escape(bytes), "\"");
}

// Whether a dict can be a JSON object: every key is text and occurs once, and
// none looks like one of this writer's keys.
bool IsPlain(absl::Span<const Value> items) {
  absl::flat_hash_set<absl::string_view> keys;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const Value& key = items[i];
    if (!key.is(Kind::kStr) || absl::StartsWith(key.text(), "$") ||
        !IsUtf8(key.text()) || !keys.insert(key.text()).second) {
      return false;
    }
  }
  return true;
}

class ObjectWriter {
 public:
  ObjectWriter(const ObjectEntry& object, const ObjectJsonLimits& limits)
      : object_(object), limits_(limits) {}

  std::string Write() && {
    Append(object_.value, 0);
    return std::move(text_);
  }

 private:
  bool full() const { return text_.size() >= limits_.max_bytes; }
  bool HasRoomFor(size_t num_bytes) const {
    return text_.size() + num_bytes <= limits_.max_bytes;
  }

  void Append(const Value& value, uint32_t depth);
  void AppendFloat(double value);
  void AppendInt(const Value& value);
  void AppendText(const Value& value);
  void AppendValues(absl::Span<const Value> values, uint32_t depth);
  void AppendPairs(absl::Span<const Value> items, uint32_t depth);
  void AppendDict(absl::Span<const Value> items, uint32_t depth);
  void AppendCall(const Value& call, uint32_t depth);
  bool AppendTensor(const Value& value);

  // Writes {"$type":"<type>"; the caller writes the rest.
  void Begin(absl::string_view type) {
    absl::StrAppend(&text_, "{\"$type\":", Quoted(ToUtf8(type)));
  }
  std::string Cut(absl::string_view limit, uint64_t num_left) const {
    return absl::StrCat("{\"$type\":\"cut\",\"limit\":\"", limit,
                        "\",\"num_left\":", num_left, "}");
  }

  const ObjectEntry& object_;
  const ObjectJsonLimits& limits_;
  std::string text_;
};

void ObjectWriter::AppendFloat(double value) {
  // Python's text, which reads back as the same number.
  const std::string number = ToString(Value::Float(value));
  if (std::isfinite(value)) {
    text_ += number;
    return;
  }
  Begin("float");
  absl::StrAppend(&text_, ",\"value\":\"", number, "\"}");
}

void ObjectWriter::AppendInt(const Value& value) {
  if (value.is(Kind::kInt)) {
    absl::StrAppend(&text_, value.int_value());
    return;
  }
  const size_t num_bytes = value.text().size();
  // A byte takes fewer than three decimal digits.
  if (!HasRoomFor(3 * num_bytes)) {
    text_ += Cut("max_bytes", num_bytes);
    return;
  }
  text_ += ToString(value, 3 * num_bytes + 2);
}

void ObjectWriter::AppendText(const Value& value) {
  const absl::string_view text = value.text();
  if (!HasRoomFor(text.size())) {
    text_ += Cut("max_bytes", text.size());
  } else if (value.is(Kind::kStr) && IsUtf8(text)) {
    text_ += Quoted(text);
  } else {
    Begin(value.is(Kind::kStr) ? "str" : "bytes");
    absl::StrAppend(&text_, ",\"base64\":", Base64(text), "}");
  }
}

void ObjectWriter::AppendValues(absl::Span<const Value> values,
                                uint32_t depth) {
  text_ += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text_ += ',';
    if (full()) {
      text_ += Cut("max_bytes", values.size() - i);
      break;
    }
    Append(values[i], depth + 1);
  }
  text_ += ']';
}

void ObjectWriter::AppendPairs(absl::Span<const Value> items, uint32_t depth) {
  text_ += '[';
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (i > 0) text_ += ',';
    if (full()) {
      text_ += Cut("max_bytes", (items.size() - i) / 2);
      break;
    }
    AppendValues(items.subspan(i, 2), depth + 1);
  }
  text_ += ']';
}

void ObjectWriter::AppendDict(absl::Span<const Value> items, uint32_t depth) {
  if (!IsPlain(items)) {
    Begin("dict");
    text_ += ",\"items\":";
    AppendPairs(items, depth);
    text_ += '}';
    return;
  }
  text_ += '{';
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (i > 0) text_ += ',';
    if (!HasRoomFor(items[i].text().size())) {
      absl::StrAppend(&text_,
                      "\"$cut\":", Cut("max_bytes", (items.size() - i) / 2));
      break;
    }
    absl::StrAppend(&text_, Quoted(items[i].text()), ":");
    Append(items[i + 1], depth + 1);
  }
  text_ += '}';
}

// Returns whether the value was a tensor or a storage.
bool ObjectWriter::AppendTensor(const Value& value) {
  const auto found = object_.tensors.find(value.identity());
  if (found == object_.tensors.end()) return false;
  const TensorEntry& tensor = found->second;
  if (value.is(Kind::kPersistent)) {
    Begin("storage");
    absl::StrAppend(&text_, ",\"dtype\":\"", TorchName(tensor.dtype),
                    "\",\"num_bytes\":", tensor.num_bytes(), "}");
    return true;
  }
  Begin("tensor");
  absl::StrAppend(&text_, ",\"dtype\":\"", TorchName(tensor.dtype),
                  "\",\"shape\":[", absl::StrJoin(tensor.shape, ","), "]}");
  return true;
}

void ObjectWriter::AppendCall(const Value& call, uint32_t depth) {
  const absl::Span<const Value> args = call.args().items();
  for (const absl::string_view set : {"set", "frozenset"}) {
    const bool is_set =
        call.IsCallOf("builtins", set) || call.IsCallOf("__builtin__", set);
    if (!is_set || args.size() > 1) continue;
    if (!args.empty() && !call.elements().empty()) continue;
    if (!args.empty() && !args[0].is(Kind::kList)) continue;
    Begin(set);
    text_ += ",\"items\":";
    AppendValues(args.empty() ? call.elements() : args[0].items(), depth);
    text_ += '}';
    return;
  }
  Begin(absl::StrCat(call.callable().module(), ".", call.callable().name()));
  if (!args.empty()) {
    text_ += ",\"args\":";
    AppendValues(args, depth);
  }
  if (!call.items().empty()) {
    text_ += ",\"items\":";
    AppendPairs(call.items(), depth);
  }
  if (!call.elements().empty()) {
    text_ += ",\"elements\":";
    AppendValues(call.elements(), depth);
  }
  if (!call.state().is_none()) {
    text_ += ",\"state\":";
    Append(call.state(), depth + 1);
  }
  text_ += '}';
}

void ObjectWriter::Append(const Value& value, uint32_t depth) {
  if (full()) {
    text_ += Cut("max_bytes", 1);
    return;
  }
  if (depth > limits_.max_depth) {
    text_ += Cut("max_depth", 1);
    return;
  }
  switch (value.kind()) {
    case Kind::kNone:
      text_ += "null";
      return;
    case Kind::kBool:
      text_ += value.bool_value() ? "true" : "false";
      return;
    case Kind::kInt:
    case Kind::kBigInt:
      return AppendInt(value);
    case Kind::kFloat:
      return AppendFloat(value.float_value());
    case Kind::kStr:
    case Kind::kBytes:
      return AppendText(value);
    case Kind::kTuple:
      Begin("tuple");
      text_ += ",\"items\":";
      AppendValues(value.items(), depth);
      text_ += '}';
      return;
    case Kind::kList:
      return AppendValues(value.items(), depth);
    case Kind::kDict:
      return AppendDict(value.items(), depth);
    case Kind::kGlobal:
      Begin("global");
      absl::StrAppend(&text_, ",\"module\":", Quoted(ToUtf8(value.module())),
                      ",\"name\":", Quoted(ToUtf8(value.name())), "}");
      return;
    case Kind::kCall:
      if (!AppendTensor(value)) AppendCall(value, depth);
      return;
    case Kind::kPersistent:
      if (AppendTensor(value)) return;
      Begin("persistent");
      text_ += ",\"id\":";
      Append(value.persistent_id(), depth + 1);
      text_ += '}';
      return;
    case Kind::kEnclosing: {
      const Value callable = value.enclosing().callable();
      Begin("enclosing");
      absl::StrAppend(
          &text_, ",\"class\":",
          Quoted(ToUtf8(absl::StrCat(callable.module(), ".", callable.name()))),
          "}");
      return;
    }
    case Kind::kToken:
      DCP_CHECK(false, "a token in what was read for people");
      return;
  }
}

}  // namespace

std::string ObjectJson(const ObjectEntry& object,
                       const ObjectJsonLimits& limits) {
  return ObjectWriter(object, limits).Write();
}

}  // namespace dcp::tools
