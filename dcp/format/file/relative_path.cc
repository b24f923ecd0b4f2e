// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/file/relative_path.h"

#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "dcp/base/limits.h"

namespace dcp {
namespace {

// A hostile name could make a message very long.
constexpr size_t kMaxShown = 200;

}  // namespace

absl::Status CheckRelativePath(absl::string_view path) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("file name \"", path.substr(0, kMaxShown), "\" ", why));
  };
  if (path.empty()) return refuse("is empty");
  if (path.size() > kMaxNameBytes)
    return refuse(absl::StrCat("has more than ", kMaxNameBytes, " bytes"));
  if (path.find('\0') != absl::string_view::npos)
    return refuse("contains a NUL");
  if (absl::StartsWith(path, "/")) return refuse("is absolute");
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part.empty() || part == "." || part == "..") {
      return refuse("has an empty, '.' or '..' component");
    }
  }
  return absl::OkStatus();
}

}  // namespace dcp
