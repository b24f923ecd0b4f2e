// SPDX-License-Identifier: Apache-2.0

#include "dcp/options/option_help.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace dcp {

void AppendOptionHelp(absl::string_view head, absl::string_view help,
                      int column, std::string& text) {
  std::string first = absl::StrCat("  ", head);
  if (first.size() >= static_cast<size_t>(column)) {
    absl::StrAppend(&text, first, "\n");
    first.clear();
  }
  for (absl::string_view line : absl::StrSplit(help, '\n')) {
    absl::StrAppendFormat(&text, "%-*s%s\n", column, first, line);
    first.clear();
  }
}

}  // namespace dcp
