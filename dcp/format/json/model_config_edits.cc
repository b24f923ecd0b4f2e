// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/json/model_config_edits.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/format/json/json.h"
#include "dcp/tensor/dtype.h"

namespace dcp {
namespace {

constexpr absl::string_view kQuantization = "quantization_config";

// Finds tensor types in a text that is known to be valid JSON.
class Scanner {
 public:
  explicit Scanner(absl::string_view json) : json_(json) {}

  std::vector<TextRange> Find() {
    // a key in the outermost object, until the value comes
    absl::string_view key;
    for (; at_ < json_.size(); ++at_) {
      switch (json_[at_]) {
        case '{':
        case '[':
          ++depth_;
          key = {};
          break;
        case '}':
        case ']':
          --depth_;
          break;
        case ',':
          key = {};
          is_value_ = false;
          break;
        case ':':
          is_value_ = true;
          break;
        case '"':
          TakeString(key);
          break;
        default:
          break;
      }
    }
    return found_;
  }

 private:
  // Reads a string, from the first quotation mark to the last.
  void TakeString(absl::string_view& key) {
    const size_t begin = ++at_;
    while (json_[at_] != '"') at_ += json_[at_] == '\\' ? 2 : 1;
    const absl::string_view text = json_.substr(begin, at_ - begin);
    if (depth_ != 1) return;
    if (!is_value_) {
      key = text;
      return;
    }
    if (key != "torch_dtype" && key != "dtype") return;
    const std::optional<DType> dtype = DTypeFromTorchName(text);
    if (dtype.has_value() && IsFloatingPoint(*dtype)) {
      found_.push_back({.offset = begin, .length = text.size()});
    }
  }

  const absl::string_view json_;
  size_t at_ = 0;
  int depth_ = 0;
  bool is_value_ = false;
  std::vector<TextRange> found_;
};

bool IsObject(absl::string_view json) {
  const absl::Status is_json = ParseJson(json, [](const JsonEvent& event) {
    const bool is_object = event.depth > 0 ||
                           event.kind == JsonEvent::Kind::kBeginObject ||
                           event.kind == JsonEvent::Kind::kEndObject;
    return is_object ? absl::OkStatus()
                     : absl::InvalidArgumentError("not an object");
  });
  return is_json.ok();
}

// The range of an outermost key and the value, in a text that is known to be an
// object; with the comma behind it, or the one before it if it is the last.
std::optional<TextRange> FindMember(absl::string_view json,
                                    absl::string_view key) {
  std::optional<size_t> begin;
  size_t last_comma = 0;  // none: the brace
  int depth = 0;
  bool is_value = false;
  for (size_t at = 0; at < json.size(); ++at) {
    const char c = json[at];
    if (c == '"') {
      const size_t quote = at++;
      while (json[at] != '"') at += json[at] == '\\' ? 2 : 1;
      const bool is_key = depth == 1 && !is_value;
      if (is_key && json.substr(quote + 1, at - quote - 1) == key) {
        begin = quote;
      }
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (depth > 1) {
      if (c == '}' || c == ']') --depth;
    } else if (c == ':') {
      is_value = true;
    } else if (c == ',') {
      if (begin.has_value()) {
        return TextRange{.offset = *begin, .length = at + 1 - *begin};
      }
      last_comma = at;
      is_value = false;
    } else if (c == '}') {
      if (!begin.has_value()) return std::nullopt;
      const size_t from = last_comma != 0 ? last_comma : *begin;
      return TextRange{.offset = from, .length = at - from};
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<TextRange> FindTensorTypes(absl::string_view json) {
  return IsObject(json) ? Scanner(json).Find() : std::vector<TextRange>();
}

std::optional<TextRange> FindQuantization(absl::string_view json) {
  if (!IsObject(json)) return std::nullopt;
  return FindMember(json, kQuantization);
}

std::optional<TextEdit> SetQuantization(absl::string_view json,
                                        absl::string_view value) {
  if (!IsObject(json)) return std::nullopt;
  const std::string member = absl::StrCat("\"", kQuantization, "\": ", value);
  if (const auto range = FindMember(json, kQuantization)) {
    const absl::string_view old = json.substr(range->offset, range->length);
    return TextEdit{*range, absl::StrCat(old.front() == ',' ? ", " : "", member,
                                         old.back() == ',' ? "," : "")};
  }
  const size_t begin = json.find('{') + 1;
  const bool is_empty = json[json.find_first_not_of(" \t\r\n", begin)] == '}';
  return TextEdit{{.offset = begin, .length = 0},
                  absl::StrCat("\n  ", member, is_empty ? "\n" : ",")};
}

}  // namespace dcp
