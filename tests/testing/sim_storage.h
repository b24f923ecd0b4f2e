// SPDX-License-Identifier: Apache-2.0
// SimStorage: FileSystem and IoQueue over one simulated disk in memory, for
// tests in which storage misbehaves. It shortens, interrupts and reorders
// transfers, runs full, fails a chosen operation with a chosen errno, and
// crashes at a chosen one; see SimDisk for the state after a crash. The same
// seed and the same calls give the same events. Paths begin at the root; there
// are no symbolic links. Thread-safe; a queue belongs to one thread. Outlives
// all queues.

#ifndef TESTS_TESTING_SIM_STORAGE_H_
#define TESTS_TESTING_SIM_STORAGE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/limits.h"
#include "dcp/io/file_system.h"
#include "tests/testing/sim_disk.h"

namespace dcp::testing {

class SimStorage final : public FileSystem {
 public:
  struct Options {
    uint64_t seed = 1;
    uint64_t capacity_bytes = UINT64_MAX;
    // These two apply to queue requests.
    uint32_t percent_short = 0;
    uint32_t percent_interrupted = 0;  // EINTR or EAGAIN
    Survival survival = Survival::kSubset;
    bool has_locks = true;  // as flock; else the lock file alone is the lock
    uint64_t alignment = kDirectAlignment;  // of requests on direct files
  };

  explicit SimStorage(const Options& options);
  SimStorage() : SimStorage(Options()) {}

  // Every FileSystem method except Close and NewQueue, and every queue request,
  // is an operation. Operations that change something, durable or not (syncs
  // included), are mutations. Counted from the start.
  uint64_t num_operations() const;
  uint64_t num_mutations() const;
  uint64_t num_open_files() const;
  // The most memory that queues had at one time.
  uint64_t most_queue_bytes() const;

  // After `num_before` more operations one fails with `error`, an errno.
  void FailOperation(uint64_t num_before, int error);
  // Calls `hook` before that operation, which then continues. The hook does not
  // use the storage.
  void CallBeforeOperation(uint64_t num_before, std::function<void()> hook);

  // After `num_before` more mutations the machine dies during the next one,
  // which may or may not have happened, or in part. From then on everything
  // fails with Unavailable until Reboot.
  void CrashAfter(uint64_t num_before);
  bool crashed() const;

  // The machine starts again (dying first if it has not) with the surviving
  // state; handles are gone, a CrashAfter that was not reached is forgotten.
  void Reboot();

  absl::StatusOr<File> OpenForRead(absl::string_view path, DirectMode direct,
                                   bool follow_symlinks) override;
  absl::StatusOr<File> Create(absl::string_view path, uint64_t size,
                              DirectMode direct) override;
  absl::StatusOr<File> OpenShared(absl::string_view path, uint64_t size,
                                  DirectMode direct) override;
  absl::Status Close(File file) override;
  absl::Status Read(const File& file, uint64_t offset,
                    MutableByteSpan data) override;
  absl::Status Write(const File& file, uint64_t offset, ByteSpan data) override;
  absl::Status Truncate(const File& file, uint64_t size) override;
  absl::Status Sync(const File& file) override;
  absl::Status SyncDirectory(absl::string_view path) override;
  absl::Status Rename(absl::string_view from, absl::string_view to) override;
  absl::Status RenameExclusive(absl::string_view from,
                               absl::string_view to) override;
  absl::Status Exchange(absl::string_view a, absl::string_view b) override;
  absl::Status Remove(absl::string_view path) override;
  absl::Status MakeDirectory(absl::string_view path) override;
  absl::Status RemoveDirectory(absl::string_view path) override;
  absl::StatusOr<FileInfo> Stat(absl::string_view path) override;
  absl::StatusOr<FileInfo> Stat(const File& file) override;
  absl::StatusOr<std::vector<DirectoryEntry>> List(
      absl::string_view path) override;
  absl::StatusOr<uint64_t> FreeBytes(absl::string_view path) override;
  absl::StatusOr<FileLock> Lock(absl::string_view path,
                                absl::string_view note) override;
  absl::Status Unlock(absl::string_view path, File file) override;
  absl::StatusOr<std::unique_ptr<IoQueue>> NewQueue(
      uint32_t depth, std::span<uint8_t> memory) override;

 private:
  friend class SimQueue;
  using Dentry = SimDisk::Dentry;

  struct OpenFile {
    SimDisk::NodePtr node;
    uint64_t alignment = 1;
    bool writable = false;
    bool locked = false;
  };

  // How an operation proceeds: normally (error 0), not at all, or, when the
  // machine dies during it, perhaps in part.
  struct Fate {
    int error = 0;
    bool dying = false;
    bool refused() const { return error != 0 && !dying; }
  };

  Fate Begin(bool mutates) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Chance(uint32_t percent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Change(Fate fate, std::vector<SimDisk::Change> changes,
                      absl::string_view what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Move(absl::string_view from, absl::string_view to,
                    bool exclusive);
  absl::Status Unlink(absl::string_view path, bool is_directory);
  // Null for a handle that is not open.
  OpenFile* Lookup(FileHandle handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  File Open(SimDisk::NodePtr node, bool writable, DirectMode direct)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Bytes moved, or -errno.
  int64_t WriteSome(SimDisk::Node& node, Fate fate, uint64_t offset,
                    ByteSpan data) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndQueue(uint64_t memory_bytes);
  uint64_t Unused() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t Perform(const IoRequest& request);
  int64_t PerformOn(OpenFile& file, const IoRequest& request, Fate fate)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable absl::Mutex mutex_;
  SimDisk disk_ ABSL_GUARDED_BY(mutex_);
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  std::map<FileHandle, OpenFile> open_files_ ABSL_GUARDED_BY(mutex_);
  FileHandle next_handle_ ABSL_GUARDED_BY(mutex_) = 1000;
  uint64_t num_operations_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_mutations_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, int> failures_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::function<void()>> hooks_ ABSL_GUARDED_BY(mutex_);
  uint64_t queue_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t most_queue_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<uint64_t> crash_at_ ABSL_GUARDED_BY(mutex_);
  bool crashed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dcp::testing

#endif  // TESTS_TESTING_SIM_STORAGE_H_
