// SPDX-License-Identifier: Apache-2.0
// WaitingStore: a directory on a disk that claims to be an object store. It
// holds the first calls for certain files until a given number have come. So a
// test shows without clocks that a program asks a store for many files at once.
// After the first time it holds no calls.
#ifndef TESTS_TESTING_WAITING_STORE_H_
#define TESTS_TESTING_WAITING_STORE_H_

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/io/file_system.h"
#include "tests/testing/hooked_storage.h"

namespace dcp::testing {

class WaitingStore final : public HookedStorage {
 public:
  // Holds reads of files for which `is_held` is true, until `num_at_once` are
  // held. Does the same, separately, for calls that ask whether they exist.
  WaitingStore(FileSystem& fs, std::function<bool(absl::string_view)> is_held,
               int num_at_once)
      : HookedStorage(fs, [] { return absl::OkStatus(); }),
        is_held_(std::move(is_held)),
        reads_(num_at_once),
        stats_(num_at_once) {}

  // The most calls of one kind at the same time.
  int most_reads() const { return reads_.most(); }
  int most_stats() const { return stats_.most(); }

  FileSystemTraits TraitsAt(absl::string_view) override {
    return {.has_rename = false};
  }
  absl::StatusOr<File> OpenForRead(absl::string_view path, DirectMode direct,
                                   bool follow_symlinks) override {
    DCP_ASSIGN_OR_RETURN(const File file, HookedStorage::OpenForRead(
                                              path, direct, follow_symlinks));
    absl::MutexLock lock(&mutex_);
    if (is_held_(path)) {
      held_.insert(file.handle);
    } else {
      held_.erase(file.handle);
    }
    return file;
  }
  absl::Status Read(const File& file, uint64_t offset,
                    MutableByteSpan data) override {
    const bool is_held = [&] {
      absl::MutexLock lock(&mutex_);
      return held_.contains(file.handle);
    }();
    if (is_held) reads_.Pass();
    return HookedStorage::Read(file, offset, data);
  }
  using HookedStorage::Stat;
  absl::StatusOr<FileInfo> Stat(absl::string_view path) override {
    if (is_held_(path)) stats_.Pass();
    return HookedStorage::Stat(path);
  }

 private:
  // Calls wait in it until there are enough.
  class Gate {
   public:
    explicit Gate(int num_at_once) : num_at_once_(num_at_once) {}

    void Pass() {
      absl::MutexLock lock(&mutex_);
      most_ = std::max(most_, ++num_inside_);
      // If too few calls come, the test fails, but must still end.
      constexpr absl::Duration kLongest = absl::Seconds(10);
      while (!is_open_ && num_inside_ < num_at_once_) {
        if (changed_.WaitWithTimeout(&mutex_, kLongest)) break;
      }
      is_open_ = true;
      changed_.SignalAll();
      --num_inside_;
    }
    int most() const {
      absl::MutexLock lock(&mutex_);
      return most_;
    }

   private:
    const int num_at_once_;
    mutable absl::Mutex mutex_;
    absl::CondVar changed_;
    int num_inside_ ABSL_GUARDED_BY(mutex_) = 0;
    int most_ ABSL_GUARDED_BY(mutex_) = 0;
    bool is_open_ ABSL_GUARDED_BY(mutex_) = false;
  };

  const std::function<bool(absl::string_view)> is_held_;
  absl::Mutex mutex_;
  absl::flat_hash_set<FileHandle> held_ ABSL_GUARDED_BY(mutex_);
  Gate reads_;
  Gate stats_;
};

}  // namespace dcp::testing

#endif  // TESTS_TESTING_WAITING_STORE_H_
