// The directories "step-<N>" of a training run: which there are, which are
// whole, which may go. Blocking; any thread; knows no ranks.
#ifndef DCP_TORCH_STEP_DIRECTORIES_H_
#define DCP_TORCH_STEP_DIRECTORIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"

namespace dcp {

// "<directory>/step-<step>".
std::string StepPath(absl::string_view directory, int64_t step);

// Rising. None when `directory` is not there.
absl::StatusOr<std::vector<int64_t>> ListSteps(FileSystem& fs,
                                               absl::string_view directory);

// OK when the checkpoint at `path` is whole: its index can be read, and every
// byte that the index names is in its files. Reads no payload.
absl::Status CheckWhole(FileSystem& fs, const std::string& path);

struct KeepRules {
  int64_t keep_last = 0;   // 0: all
  int64_t keep_every = 0;  // 0: none more
};

// Which of `steps` (rising) may be removed now that `durable` is one of them
// and durable. Steps beyond it are left alone.
std::vector<int64_t> StepsToRemove(const std::vector<int64_t>& steps,
                                   int64_t durable, const KeepRules& rules);

// Makes `directory` and those above it where they are missing.
absl::Status MakeDirectories(FileSystem& fs, const std::string& directory);

// Removes steps by the rules; what the crash of a save left behind below
// `durable` goes too, and does not count. `log` is told of each, and of what
// could not be removed.
void RemoveOldSteps(FileSystem& fs, absl::string_view directory,
                    int64_t durable, const KeepRules& rules,
                    absl::FunctionRef<void(const std::string&)> log);

}  // namespace dcp

#endif  // DCP_TORCH_STEP_DIRECTORIES_H_
