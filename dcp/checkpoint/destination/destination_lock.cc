// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/destination/destination_lock.h"

#include <cstdint>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/destination_names.h"

namespace dcp {
namespace {

constexpr absl::string_view kMadeFiles = "made files";
constexpr absl::string_view kMadeDirectory = "made directory";

// The value of the line "key value", or `otherwise` if there is none.
absl::string_view LineValue(absl::string_view text, absl::string_view key,
                            absl::string_view otherwise) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, key) && absl::ConsumePrefix(&line, " ")) {
      return line;
    }
  }
  return otherwise;
}

bool HasLine(absl::string_view text, absl::string_view wanted) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line == wanted) return true;
  }
  return false;
}

// The destination that the lock file `path` guards.
std::string GuardedPath(absl::string_view path) {
  absl::string_view name = BaseName(path);
  const std::string parent = ParentDirectory(path);
  if (name == kLockName) return parent;
  absl::ConsumePrefix(&name, ".");
  absl::ConsumeSuffix(&name, ".lock");
  return parent == "." ? std::string(name) : JoinPath(parent, name);
}

// The writer's name must stay on one line, whatever it contains.
std::string WriterLine(absl::string_view writer) {
  return absl::StrCat("writer ", absl::StrReplaceAll(writer, {{"\n", " "}}),
                      "\n");
}

absl::Status HeldError(absl::string_view path, const FileLock& lock) {
  const std::string holder =
      absl::StrCat(LineValue(lock.text, "writer", "another program"),
                   ", process ", LineValue(lock.text, "pid", "unknown"), " on ",
                   LineValue(lock.text, "host", "an unknown host"), ", since ",
                   LineValue(lock.text, "since", "a moment ago"));
  if (lock.by_existence) {
    return absl::FailedPreconditionError(absl::StrCat(
        GuardedPath(path), " is locked by ", holder,
        "; its file system does not support flock, so a killed process leaves "
        "its lock behind: if that process has ended, remove ",
        path));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      GuardedPath(path), " is being written by ", holder,
      "; run again when it has ended, or choose another destination"));
}

}  // namespace

std::string DestinationLock::PathInside(absl::string_view path) {
  return JoinPath(path, kLockName);
}

std::string DestinationLock::PathNextTo(absl::string_view path) {
  return JoinPath(ParentDirectory(path),
                  absl::StrCat(".", ShortName(BaseName(path)), ".lock"));
}

std::unique_ptr<DestinationLock> DestinationLock::Holding(
    FileSystem& fs, std::string path, const FileLock& lock) {
  return absl::WrapUnique(
      new DestinationLock(fs, std::move(path), lock.file,
                          {.files = HasLine(lock.text, kMadeFiles),
                           .directory = HasLine(lock.text, kMadeDirectory)}));
}

absl::StatusOr<std::unique_ptr<DestinationLock>> DestinationLock::Take(
    FileSystem& fs, std::string path, absl::string_view writer) {
  DCP_ASSIGN_OR_RETURN(const FileLock lock, fs.Lock(path, WriterLine(writer)));
  if (lock.file.handle < 0) return HeldError(path, lock);
  return Holding(fs, std::move(path), lock);
}

absl::StatusOr<std::unique_ptr<DestinationLock>> DestinationLock::TryTake(
    FileSystem& fs, std::string path, absl::string_view writer) {
  DCP_ASSIGN_OR_RETURN(const FileLock lock, fs.Lock(path, WriterLine(writer)));
  if (lock.file.handle >= 0) return Holding(fs, std::move(path), lock);
  if (lock.by_existence) return HeldError(path, lock);
  return nullptr;
}

DestinationLock::~DestinationLock() {
  const absl::Status status = fs_.Unlock(path_, file_);
  if (!status.ok()) {
    DCP_LOG(kWarning) << "event=lock_file_left path=" << path_
                      << " error=" << status.message();
  }
}

void DestinationLock::Record(const Made& made) {
  const std::string text =
      absl::StrCat(made.files ? kMadeFiles : "", "\n",
                   made.directory ? kMadeDirectory : "", "\n");
  fs_.Write(file_, file_.size, AsBytes(text)).IgnoreError();
}

}  // namespace dcp
