// SPDX-License-Identifier: Apache-2.0
// StateFile: writes whole tensors in memory and objects as one file, .pt or
// safetensors, instead of a DCP directory; one process writes for all. The
// sources know where the tensors are; fsdp/checkpoint gathers them from the
// ranks. Blocking; one thread.
#ifndef DCP_CHECKPOINT_SAVE_STATE_FILE_H_
#define DCP_CHECKPOINT_SAVE_STATE_FILE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/format.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/checkpoint/output/safetensors_output.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Whether the suffix of `path` stands for one file: .pt, .pth, .bin,
// .safetensors.
bool NamesStateFile(absl::string_view path);

class StateFile {
 public:
  // Lays out the file at `path`. The boxes in `state` are whole tensors; their
  // sources are asked for every byte once, in file order. The sources, the
  // objects and `fs` must outlive this. FailedPrecondition, with the names, for
  // values that safetensors cannot hold. `metadata` goes unchanged into the
  // safetensors header; torch.save's format has no place for it. Without a
  // `format`, the suffix of `path` decides.
  static absl::StatusOr<std::unique_ptr<StateFile>> Plan(
      FileSystem& fs, absl::string_view path, const SaveState& state,
      const SafetensorsMetadata& metadata = WithFormat({}),
      std::optional<Format> format = std::nullopt);

  // The numbers of the state's tensors, in file order.
  const std::vector<size_t>& order() const { return order_; }

  // Writes the file, which appears whole or not at all, under the destination's
  // lock, with the errors of ConvertCheckpoint. Ignores the options for memory,
  // except `memory_bytes`, and for plans.
  absl::Status Write(const SaveOptions& options);

 private:
  StateFile(FileSystem& fs, absl::string_view path) : fs_(fs), path_(path) {}

  FileSystem& fs_;
  const std::string path_;
  Output output_;
  std::vector<size_t> order_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SAVE_STATE_FILE_H_
