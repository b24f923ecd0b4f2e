// SPDX-License-Identifier: Apache-2.0
// Splits the text at its last slash and its last dot.
#include "dcp/checkpoint/destination/destination_path.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/io/file_system.h"

namespace dcp {

DestinationPath::DestinationPath(absl::string_view text)
    : text_(text),
      path_(WithoutTrailingSlashes(text)),
      parent_(ParentDirectory(path_)),
      name_(BaseName(path_)),
      format_(FormatFromSuffix(text)) {}

absl::string_view DestinationPath::suffix() const {
  const absl::string_view name = name_;
  const size_t dot = name.rfind('.');
  if (dot == absl::string_view::npos || dot == 0) return "";
  const absl::string_view suffix = name.substr(dot + 1);
  const bool is_plain =
      std::all_of(suffix.begin(), suffix.end(), absl::ascii_isalnum);
  if (!is_plain || suffix.empty() || !absl::ascii_isalpha(suffix[0])) return "";
  const bool is_version =
      suffix[0] == 'v' && suffix.size() > 1 &&
      std::all_of(suffix.begin() + 1, suffix.end(), absl::ascii_isdigit);
  return is_version ? "" : suffix;
}

}  // namespace dcp
