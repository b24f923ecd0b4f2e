// SPDX-License-Identifier: Apache-2.0
// The data files in an opened checkpoint: the index names them, the first use
// opens them, and the destructor closes them. The names have been checked to
// stay inside the checkpoint's directory. Remembers each file's FileInfo from
// when it was opened, so that a file that is written while it is read is
// noticed. Thread-safe.
#ifndef DCP_CHECKPOINT_FILES_SOURCE_FILES_H_
#define DCP_CHECKPOINT_FILES_SOURCE_FILES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "dcp/io/file_system.h"

namespace dcp {

class SourceFiles {
 public:
  // `names` are relative to `directory`. `fs` must outlive this.
  SourceFiles(FileSystem& fs, std::string directory,
              std::vector<std::string> names, DirectMode direct,
              bool follow_symlinks);
  // Joins several checkpoints' files below one directory: each part's folder,
  // relative to `directory`, goes before the names; it is empty for files in
  // `directory` itself. Open files stay open.
  struct Part {
    std::string folder;
    std::unique_ptr<SourceFiles> files;
  };
  static std::unique_ptr<SourceFiles> Join(std::string directory,
                                           std::vector<Part> parts);
  ~SourceFiles();
  SourceFiles(const SourceFiles&) = delete;
  SourceFiles& operator=(const SourceFiles&) = delete;

  const std::vector<std::string>& names() const { return names_; }
  // The properties of the storage that holds the files. In an object store all
  // machines see the same inodes.
  FileSystemTraits traits() const { return fs_.TraitsAt(directory_); }
  std::string FullPath(uint32_t file) const;

  // The open file; the first call opens it.
  absl::StatusOr<File> Get(uint32_t file) ABSL_LOCKS_EXCLUDED(mutex_);
  // Opens these files at the same time if they are in a store, because they
  // will be needed. Get returns the error for a file that cannot be opened.
  void OpenAhead(absl::Span<const uint32_t> files);
  // Calls `body` for all files, by number; in a store for many at the same
  // time, and in any order.
  absl::Status ForEach(const std::stop_token& stop,
                       absl::FunctionRef<absl::Status(uint32_t)> body) const;
  // The same for `count` things to read from the files.
  absl::Status ForMany(size_t count, const std::stop_token& stop,
                       absl::FunctionRef<absl::Status(size_t)> body) const;
  // DataLoss unless bytes [offset, offset + length) are in the file.
  absl::Status CheckRange(uint32_t file, uint64_t offset, uint64_t length);
  // The file's FileInfo from when it was opened; nullopt if it is not open.
  std::optional<FileInfo> OpenedAs(uint32_t file) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Unavailable, with the name, if an open file was written to since it was
  // opened: the bytes read may mix two states. A file that another one replaced
  // at the same path is still intact, which is not an error.
  absl::Status CheckUnchanged() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The same for some open files.
  absl::Status CheckUnchanged(const absl::flat_hash_set<FileHandle>& handles)
      const ABSL_LOCKS_EXCLUDED(mutex_);

  // The open file's name, for messages.
  std::string Describe(FileHandle handle) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  FileSystem& fs_;
  const std::string directory_;
  const std::vector<std::string> names_;
  const DirectMode direct_;
  const bool follow_symlinks_;
  struct OpenFile {
    File file;
    FileInfo info;
  };
  absl::StatusOr<OpenFile> OpenAt(const std::string& path);
  absl::Status CheckUnchanged(absl::Span<const OpenFile> opened) const;
  // How many files are opened, or examined, at the same time.
  uint32_t NumAtOnce() const;

  mutable absl::Mutex mutex_;
  std::vector<OpenFile> files_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<FileHandle, uint32_t> by_handle_ ABSL_GUARDED_BY(mutex_);
};

// The numbers of `count` files.
std::vector<uint32_t> AllFiles(size_t count);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_SOURCE_FILES_H_
