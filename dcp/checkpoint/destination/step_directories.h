// SPDX-License-Identifier: Apache-2.0
// The directories "step-<N>" of a training run: which exist, which are
// complete, and which may be removed. Knows nothing about ranks. Blocking; any
// thread.
#ifndef DCP_CHECKPOINT_DESTINATION_STEP_DIRECTORIES_H_
#define DCP_CHECKPOINT_DESTINATION_STEP_DIRECTORIES_H_

#include <cstdint>
#include <optional>
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

// The steps, ascending. Empty when `directory` does not exist.
absl::StatusOr<std::vector<int64_t>> ListSteps(FileSystem& fs,
                                               absl::string_view directory);

// OK when the checkpoint at `path` is complete: the index can be read, and
// every byte that it names is in the files. Reads no payload.
absl::Status CheckWhole(FileSystem& fs, const std::string& path);

// The newest complete step; absent without one. `log` receives a line for each
// newer step, which is skipped.
absl::StatusOr<std::optional<int64_t>> NewestWholeStep(
    FileSystem& fs, absl::string_view directory,
    absl::FunctionRef<void(const std::string&)> log);

struct KeepRules {
  int64_t keep_last = 0;   // 0: all
  int64_t keep_every = 0;  // also the multiples of this; 0: none
};

// Returns the ones among `steps` (ascending) that may be removed now that
// `durable`, one of them, is durable. Later steps are left alone.
std::vector<int64_t> StepsToRemove(const std::vector<int64_t>& steps,
                                   int64_t durable, const KeepRules& rules);

// Makes `directory` and missing parents.
absl::Status MakeDirectories(FileSystem& fs, const std::string& directory);

// Removes steps by the rules. Incomplete steps before `durable`, left by a
// crash, are removed too and do not count; in an object store they stay, for
// FindLitter. `log` receives a line for each step
// that was removed or could not be.
void RemoveOldSteps(FileSystem& fs, absl::string_view directory,
                    int64_t durable, const KeepRules& rules,
                    absl::FunctionRef<void(const std::string&)> log);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DESTINATION_STEP_DIRECTORIES_H_
