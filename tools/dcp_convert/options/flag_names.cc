// SPDX-License-Identifier: Apache-2.0
// Looks in the table for the row that sets an option's field.
#include "tools/dcp_convert/options/flag_names.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "dcp/base/option_name.h"
#include "tools/dcp_convert/options/option_table.h"

namespace dcp::tools {
namespace {

// "--weights low"; empty if the row does not set the field.
std::string FlagOfRow(const OptionRow<CommandLine>& row,
                      const OptionName& option) {
  const std::string flag = absl::StrCat("--", row.name);
  const auto with_value = [&](absl::string_view value) {
    return value.empty() ? flag : absl::StrCat(flag, " ", value);
  };
  if (row.fields == nullptr) {
    const std::string field = absl::StrReplaceAll(row.name, {{"-", "_"}});
    if (field == option.field) return with_value(option.value);
    const bool clears = field == absl::StrCat("no_", option.field);
    return clears && option.value == "false" ? flag : "";
  }
  for (const absl::string_view word : absl::StrSplit(row.fields, ' ')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (field.first == option.field) return with_value(field.second);
  }
  return "";
}

std::string FlagText(const OptionName& option) {
  for (const OptionRow<CommandLine>& row : AllOptions()) {
    std::string flag = FlagOfRow(row, option);
    if (!flag.empty()) return flag;
  }
  return "";
}

}  // namespace

std::string WithFlags(const absl::Status& error) {
  const std::vector<std::string> fields = NamedOptions(error);
  return RenameOptions(error.message(), [&](const OptionName& option) {
    return std::find(fields.begin(), fields.end(), option.field) == fields.end()
               ? ""
               : FlagText(option);
  });
}

std::string WithFlags(absl::string_view text) {
  return RenameOptions(text, FlagText);
}

}  // namespace dcp::tools
