// SPDX-License-Identifier: Apache-2.0
// Converts between formats and their names and file suffixes.
// Tested by tests/dcp/checkpoint/convert/convert_target_test.cc.
#include "dcp/checkpoint/files/format.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace dcp {

absl::string_view FormatName(Format format) {
  switch (format) {
    case Format::kDcp:
      return "dcp";
    case Format::kSafetensors:
      return "safetensors";
    case Format::kTorch:
      return "pt";
  }
  return "";
}

absl::StatusOr<Format> ParseFormat(absl::string_view name) {
  if (name == "dcp") return Format::kDcp;
  if (name == "safetensors") return Format::kSafetensors;
  if (name == "pt" || name == "torch" || name == "pth" || name == "bin") {
    return Format::kTorch;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown format '", name, "'; the formats are dcp, safetensors and pt"));
}

std::optional<Format> FormatFromSuffix(absl::string_view path) {
  if (absl::EndsWith(path, ".safetensors")) return Format::kSafetensors;
  for (const absl::string_view suffix : {".pt", ".pth", ".bin", ".ckpt"}) {
    if (absl::EndsWith(path, suffix)) return Format::kTorch;
  }
  return std::nullopt;
}

}  // namespace dcp
