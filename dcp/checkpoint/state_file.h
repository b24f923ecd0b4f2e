// StateFile: whole tensors in memory and objects as one file, .pt or
// safetensors, instead of a DCP directory: what one process writes for all.
// Where its tensors come from is for their sources to know; see dcp/torch,
// which gathers them from the ranks. Blocking; one thread.
#ifndef DCP_CHECKPOINT_STATE_FILE_H_
#define DCP_CHECKPOINT_STATE_FILE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/output.h"
#include "dcp/checkpoint/save.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Whether a path names one file by its suffix: .pt, .pth, .bin, .safetensors.
bool NamesStateFile(absl::string_view path);

class StateFile {
 public:
  // Lays out the file that `path` names. The boxes of `state` are whole
  // tensors; their sources are asked for every byte once, in the order of the
  // file; they and the objects outlive this, and so does `fs`.
  // FailedPrecondition where safetensors cannot hold what there is, with the
  // names.
  static absl::StatusOr<std::unique_ptr<StateFile>> Plan(
      FileSystem& fs, absl::string_view path, const SaveState& state);

  // The numbers of the tensors of the state, in the order of the file.
  const std::vector<size_t>& order() const { return order_; }

  // The file appears whole or not at all, under the lock of its destination; as
  // ConvertCheckpoint's. Of the options, those of memory but `memory_bytes`,
  // and of plans, are not used.
  absl::Status Write(const SaveOptions& options);

 private:
  StateFile(FileSystem& fs, absl::string_view path) : fs_(fs), path_(path) {}

  FileSystem& fs_;
  const std::string path_;
  Output output_;
  std::vector<size_t> order_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_STATE_FILE_H_
