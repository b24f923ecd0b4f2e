// SPDX-License-Identifier: Apache-2.0
// Format: the checkpoint formats, their names, and their file names. Pure; any
// thread.
#ifndef DCP_CHECKPOINT_FILES_FORMAT_H_
#define DCP_CHECKPOINT_FILES_FORMAT_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dcp {

enum class Format : uint8_t {
  kDcp,          // a directory with .metadata
  kSafetensors,  // one or several files
  kTorch,        // a .pt file, or a model's .bin shards
};
absl::string_view FormatName(Format format);  // "dcp", "safetensors", "pt"
// Accepts also "torch", "pth", "bin" for kTorch.
absl::StatusOr<Format> ParseFormat(absl::string_view name);

// The format for a single file at `path`, by the suffix; nullopt for other
// suffixes.
std::optional<Format> FormatFromSuffix(absl::string_view path);
// All these suffixes, for a message.
inline constexpr absl::string_view kFileSuffixes =
    ".safetensors, .pt, .pth, .bin or .ckpt";

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_FORMAT_H_
