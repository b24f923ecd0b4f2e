// SPDX-License-Identifier: Apache-2.0
// Format: the formats of checkpoints, their names, and the names of their
// files. Pure; any thread.
#ifndef DCP_CHECKPOINT_FILES_FORMAT_H_
#define DCP_CHECKPOINT_FILES_FORMAT_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dcp {

enum class Format : uint8_t {
  kDcp,          // a directory with .metadata
  kSafetensors,  // a file, or a directory of them
  kTorch,        // a .pt file, or the .bin shards of a model
};
absl::string_view FormatName(Format format);  // "dcp", "safetensors", "pt"
// Accepts also "torch", "pth", "bin" for kTorch.
absl::StatusOr<Format> ParseFormat(absl::string_view name);

// The format of a single file that is named `path`, by its suffix; nullopt for
// other suffixes.
std::optional<Format> FormatOfFileName(absl::string_view path);
// All these suffixes, for a message.
inline constexpr absl::string_view kFileSuffixes =
    ".safetensors, .pt, .pth, .bin or .ckpt";

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_FORMAT_H_
