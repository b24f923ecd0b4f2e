// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/destination/step_directories.h"

#include <algorithm>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/destination_lock.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/open/checkpoint.h"

namespace dcp {
namespace {

constexpr absl::string_view kStepPrefix = "step-";

absl::Status CheckInside(Checkpoint& checkpoint, const StorageInfo& item) {
  return checkpoint.files().CheckRange(item.file, item.offset, item.length);
}

// Removes the index first, so that a crash leaves nothing that looks like a
// checkpoint.
absl::Status RemoveStep(FileSystem& fs, const std::string& path) {
  std::unique_ptr<DestinationLock> lock;
  if (fs.TraitsAt(path).has_rename) {
    // Without an index it may be a save of another run in progress.
    DCP_ASSIGN_OR_RETURN(
        lock, DestinationLock::Take(fs, DestinationLock::PathInside(path),
                                    "the removal of old steps"));
  }
  const std::string index = JoinPath(path, kDcpMetadataName);
  const absl::Status removed = fs.Remove(index);
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  if (removed.ok()) DCP_RETURN_IF_ERROR(fs.SyncDirectory(path));
  DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                       fs.List(path));
  for (const DirectoryEntry& entry : entries) {
    if (entry.name == kLockName) continue;
    DCP_RETURN_IF_ERROR(fs.Remove(JoinPath(path, entry.name)));
  }
  lock.reset();
  return fs.RemoveDirectory(path);
}

}  // namespace

std::string StepPath(absl::string_view directory, int64_t step) {
  return JoinPath(directory, absl::StrCat(kStepPrefix, step));
}

absl::StatusOr<std::vector<int64_t>> ListSteps(FileSystem& fs,
                                               absl::string_view directory) {
  const absl::StatusOr<FileInfo> info = fs.Stat(directory);
  if (absl::IsNotFound(info.status())) return std::vector<int64_t>();
  DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                       fs.List(directory));
  std::vector<int64_t> steps;
  for (const DirectoryEntry& entry : entries) {
    absl::string_view name = entry.name;
    int64_t step = 0;
    if (entry.kind == FileKind::kDirectory &&
        absl::ConsumePrefix(&name, kStepPrefix) &&
        absl::SimpleAtoi(name, &step) && step >= 0 &&
        absl::StrCat(step) == name) {
      steps.push_back(step);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::Status CheckWhole(FileSystem& fs, const std::string& path) {
  const absl::StatusOr<FileInfo> index =
      fs.Stat(JoinPath(path, kDcpMetadataName));
  if (absl::IsNotFound(index.status())) {
    return absl::DataLossError(absl::StrCat("it has no ", kDcpMetadataName,
                                            ": its save did not finish"));
  }
  DCP_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                       Checkpoint::Open(fs, path, {}));
  for (const CheckpointEntry& entry : checkpoint->entries()) {
    if (entry.object() != nullptr) {
      DCP_RETURN_IF_ERROR(CheckInside(*checkpoint, entry.object()->item));
      continue;
    }
    for (const ChunkLocation& chunk : entry.tensor()->locations) {
      DCP_RETURN_IF_ERROR(CheckInside(*checkpoint, chunk.item));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int64_t>> NewestWholeStep(
    FileSystem& fs, absl::string_view directory,
    absl::FunctionRef<void(const std::string&)> log) {
  DCP_ASSIGN_OR_RETURN(const std::vector<int64_t> steps,
                       ListSteps(fs, directory));
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const std::string path = StepPath(directory, *step);
    const absl::Status whole = CheckWhole(fs, path);
    if (whole.ok()) return *step;
    log(absl::StrCat("skipped ", path, ": ", whole.message()));
  }
  return std::nullopt;
}

std::vector<int64_t> StepsToRemove(const std::vector<int64_t>& steps,
                                   int64_t durable, const KeepRules& rules) {
  std::vector<int64_t> removed;
  if (rules.keep_last <= 0) return removed;
  const auto end = std::upper_bound(steps.begin(), steps.end(), durable);
  const auto num = static_cast<int64_t>(end - steps.begin());
  for (int64_t i = 0; i < num - rules.keep_last; ++i) {
    const int64_t step = steps[static_cast<size_t>(i)];
    const bool is_kept = rules.keep_every > 0 && step % rules.keep_every == 0;
    if (!is_kept) removed.push_back(step);
  }
  return removed;
}

absl::Status MakeDirectories(FileSystem& fs, const std::string& directory) {
  if (fs.Stat(directory).ok()) return absl::OkStatus();
  const std::string parent = ParentDirectory(directory);
  if (parent != directory) DCP_RETURN_IF_ERROR(MakeDirectories(fs, parent));
  const absl::Status made = fs.MakeDirectory(directory);
  if (absl::IsAlreadyExists(made)) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(made);
  return fs.SyncDirectory(parent);
}

void RemoveOldSteps(FileSystem& fs, absl::string_view directory,
                    int64_t durable, const KeepRules& rules,
                    absl::FunctionRef<void(const std::string&)> log) {
  if (rules.keep_last <= 0) return;
  const absl::StatusOr<std::vector<int64_t>> steps = ListSteps(fs, directory);
  if (!steps.ok()) {
    log(absl::StrCat("old steps are kept: ", steps.status().message()));
    return;
  }
  std::vector<int64_t> whole;
  std::vector<int64_t> removed;
  for (const int64_t step : *steps) {
    if (step > durable) continue;
    const std::string index =
        JoinPath(StepPath(directory, step), kDcpMetadataName);
    const bool is_left_over = absl::IsNotFound(fs.Stat(index).status());
    // A store has no lock that shows whether a writer is still at work.
    if (is_left_over && !fs.TraitsAt(directory).has_rename) continue;
    (is_left_over ? removed : whole).push_back(step);
  }
  for (const int64_t step : StepsToRemove(whole, durable, rules)) {
    removed.push_back(step);
  }
  for (const int64_t step : removed) {
    const std::string path = StepPath(directory, step);
    const absl::Status status = RemoveStep(fs, path);
    log(status.ok() ? absl::StrCat("removed ", path)
                    : absl::StrCat(path, " is left: ", status.message()));
  }
}

}  // namespace dcp
