// SPDX-License-Identifier: Apache-2.0
// FindModelConfig: a model's config.json; a mapping needs the numbers in it.
// Blocking; any thread.
#ifndef DCP_CHECKPOINT_LENS_MODEL_CONFIG_H_
#define DCP_CHECKPOINT_LENS_MODEL_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Where the config.json for the checkpoint at `source` may be: in it, and next
// to it, in the order in which they are tried.
std::vector<std::string> ModelConfigPlaces(absl::string_view source);

// The text of the first file that exists and may be read; empty if there is
// none. ResourceExhausted if it has more than kMaxModelConfigBytes.
absl::StatusOr<std::string> FindModelConfig(FileSystem& fs,
                                            absl::string_view source);

// Gives the mapping in `options` the source's config.json, if there is a
// mapping without one.
absl::Status AddModelConfig(FileSystem& fs, absl::string_view source,
                            OpenOptions& options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LENS_MODEL_CONFIG_H_
