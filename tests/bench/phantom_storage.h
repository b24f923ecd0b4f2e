// SPDX-License-Identifier: Apache-2.0
// PhantomStorage: a file system for plans with terabytes. Small files are kept
// on a simulated disk. A large file has a size; the bytes are zeros, except for
// those from the Output that the file is an image of. Counts calls and reads,
// and makes calls wait; queued requests do not wait. Paths begin at the root.
// Thread-safe; a queue belongs to one thread.
#ifndef TESTS_BENCH_PHANTOM_STORAGE_H_
#define TESTS_BENCH_PHANTOM_STORAGE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/output/dcp_output.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/io/file_system.h"
#include "tests/testing/sim_storage.h"

namespace dcp::bench {

class PhantomStorage final : public FileSystem {
 public:
  // Everything below this directory is in an object store.
  static constexpr absl::string_view kStore = "/store";

  struct Counts {
    uint64_t num_calls = 0;  // on a file system
    uint64_t num_store_calls = 0;
    uint64_t num_reads = 0;  // by queues, many at once
    uint64_t num_store_reads = 0;
    uint64_t bytes_read = 0;
    uint64_t bytes_written = 0;
  };

  // Adds a file from the output, which outlives this. The payload is zeros.
  absl::Status AddImage(const std::string& path, OutputFile& image);
  // Since the last call.
  Counts TakeCounts();
  // From now on, each call waits this long for an answer.
  void SetLatency(absl::Duration of_disk, absl::Duration of_store);

  FileSystemTraits TraitsAt(absl::string_view path) override;
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
  class Queue;
  struct Large {
    uint64_t size = 0;
    OutputFile* image = nullptr;  // or null: zeros
    bool in_store = false;
  };

  void Count(absl::string_view path);
  // Null for a file on the disk.
  const Large* Find(absl::string_view path) ABSL_LOCKS_EXCLUDED(mutex_);
  const Large* FindOpen(FileHandle handle) ABSL_LOCKS_EXCLUDED(mutex_);
  File Opened(File file, const Large* large) ABSL_LOCKS_EXCLUDED(mutex_);
  void Fill(const Large& large, uint64_t offset, MutableByteSpan data)
      ABSL_LOCKS_EXCLUDED(mutex_);

  testing::SimStorage disk_;  // has an empty file for each large one
  absl::Mutex mutex_;
  std::map<std::string, Large, std::less<>> large_ ABSL_GUARDED_BY(mutex_);
  std::map<FileHandle, const Large*> open_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> crcs_ ABSL_GUARDED_BY(mutex_);  // zeros
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  absl::Duration disk_latency_ ABSL_GUARDED_BY(mutex_);
  absl::Duration store_latency_ ABSL_GUARDED_BY(mutex_);
};

// The DCP checkpoint with `entries`, each cut by rows among `num_ranks`.
// `files` holds the files to which the entries refer, and outlives the output.
Output OutputByRows(const std::vector<OutputEntry>& entries, SourceFiles& files,
                    int64_t num_ranks);

}  // namespace dcp::bench

#endif  // TESTS_BENCH_PHANTOM_STORAGE_H_
