// SPDX-License-Identifier: Apache-2.0
// The fields travel in a payload of the status, separated by spaces.
#include "dcp/base/option_name.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"

namespace dcp {
namespace {

constexpr absl::string_view kOptionsType = "tessera/options";
constexpr absl::string_view kBeforeField = "the option ";
constexpr absl::string_view kBeforeValue = " = ";

// Takes the word of lower case, digits and underscores at the beginning of
// `text`, which may be empty.
absl::string_view TakeWord(absl::string_view& text) {
  const auto* const end =
      std::find_if_not(text.begin(), text.end(), [](char c) {
        return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
      });
  const absl::string_view word =
      text.substr(0, static_cast<size_t>(end - text.begin()));
  text.remove_prefix(word.size());
  return word;
}

}  // namespace

std::string ToText(const OptionName& option) {
  return absl::StrCat(kBeforeField, option.field,
                      option.value.empty() ? "" : kBeforeValue, option.value);
}

absl::Status WithOptions(absl::Status status,
                         const std::vector<std::string>& fields) {
  if (status.ok()) return status;
  std::vector<std::string> all = NamedOptions(status);
  for (const std::string& field : fields) {
    if (std::find(all.begin(), all.end(), field) == all.end()) {
      all.push_back(field);
    }
  }
  if (!all.empty()) {
    status.SetPayload(kOptionsType, absl::Cord(absl::StrJoin(all, " ")));
  }
  return status;
}

std::vector<std::string> NamedOptions(const absl::Status& status) {
  const absl::optional<absl::Cord> fields = status.GetPayload(kOptionsType);
  if (!fields.has_value()) return {};
  return absl::StrSplit(std::string(*fields), ' ', absl::SkipEmpty());
}

std::vector<std::string> NamedOptions(absl::string_view text) {
  std::vector<std::string> fields;
  RenameOptions(text, [&](const OptionName& option) {
    fields.emplace_back(option.field);
    return std::string();
  });
  return fields;
}

std::string RenameOptions(
    absl::string_view text,
    absl::FunctionRef<std::string(const OptionName& option)> rename) {
  std::string renamed;
  for (;;) {
    const size_t at = text.find(kBeforeField);
    absl::StrAppend(&renamed, text.substr(0, at));
    if (at == absl::string_view::npos) return renamed;
    absl::string_view rest = text.substr(at + kBeforeField.size());
    OptionName option = {.field = TakeWord(rest)};
    absl::string_view behind = rest;
    if (absl::ConsumePrefix(&behind, kBeforeValue)) {
      option.value = TakeWord(behind);
      if (!option.value.empty()) rest = behind;
    }
    const std::string name = rename(option);
    absl::StrAppend(&renamed, name.empty() ? ToText(option) : name);
    text = rest;
  }
}

}  // namespace dcp
