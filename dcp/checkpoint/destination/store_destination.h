// SPDX-License-Identifier: Apache-2.0
// StoreDestination: a Destination in an object store, which has no rename and
// no locks. Data files have names that no other writer chooses, or stay hidden
// until the commit. The commit is one put, on condition that the object there
// has not changed since the writer began. store_destination.cc describes the
// protocol. Used by one thread.
#ifndef DCP_CHECKPOINT_DESTINATION_STORE_DESTINATION_H_
#define DCP_CHECKPOINT_DESTINATION_STORE_DESTINATION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/destination_path.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/io/file_system.h"

namespace dcp {

class StoreDestination final : public Destination {
 public:
  // As in Destination. Nothing is changed, so this also serves as Look. A
  // directory of safetensors replaces nothing.
  static absl::StatusOr<std::unique_ptr<Destination>> Plan(
      FileSystem& fs, const DestinationPath& path, Kind kind, bool overwrite,
      const OwnFiles& own);
  static std::unique_ptr<Destination> Attach(FileSystem& fs,
                                             const DestinationPath& path);
  // Whether the commit of the conversion `own` was complete. Not for DCP
  // directories.
  static absl::StatusOr<bool> HasAppeared(FileSystem& fs,
                                          absl::string_view path, Kind kind,
                                          const OwnFiles& own);

  ~StoreDestination() override;

  std::string NextDataFileName(int64_t rank) override;
  absl::Status CheckSpace(uint64_t) override { return absl::OkStatus(); }
  absl::Status Begin(const absl::flat_hash_set<std::string>& kept,
                     const std::vector<std::string>& folders) override;
  bool exists() const override { return seen_.has_value(); }
  std::string FilePath(absl::string_view name) const override;
  absl::StatusOr<File> CreateFile(absl::string_view name,
                                  const DataFile& file) override;
  void Created(absl::string_view name) override;
  absl::Status Commit(absl::string_view index_name, absl::string_view index,
                      absl::string_view digests_name,
                      const std::vector<ChunkDigest>& digests) override;
  absl::Status SyncStaging() override { return absl::OkStatus(); }
  absl::Status FinishCommit() override;
  void Discard() override;
  // Only objects survive the process that made them; uploads that are hidden
  // are removed.
  void Keep() override { committed_ = committed_ || is_dcp(); }

 private:
  StoreDestination(FileSystem& fs, const DestinationPath& path, Kind kind)
      : fs_(fs), path_(path.path()), parent_(path.parent()), kind_(kind) {}

  absl::Status Inspect(bool overwrite);
  absl::Status InspectDcp(bool overwrite,
                          absl::Span<const DirectoryEntry> entries);
  absl::Status InspectDirectory(absl::Span<const DirectoryEntry> entries);
  absl::StatusOr<bool> IsOwn(absl::string_view name) const;
  absl::Status RemoveEarlier(const absl::flat_hash_set<std::string>& kept);
  bool is_dcp() const { return kind_ == Kind::kDcpDirectory; }
  absl::Status CheckAccepts();
  absl::Status PublishAll();
  absl::Status PutIndex(absl::string_view path, absl::string_view index);
  bool WasRefused(absl::string_view path, const absl::Status& put) const;
  void RemoveStale();
  void RemoveCreated();
  void WarnIfLeft(const absl::Status& status) const;

  FileSystem& fs_;
  const std::string path_;
  const std::string parent_;  // the directory that it is in
  const Kind kind_;
  // Whether a file that has appeared in the meantime may be replaced.
  bool replaces_ = false;
  OwnFiles own_;
  std::string id_;  // from this run, or from the resumed conversion
  // The index, or the file, that is replaced.
  std::optional<FileInfo> seen_;
  std::map<int64_t, uint64_t> num_files_;  // of each rank
  std::vector<std::string> stale_;         // of the checkpoint to be replaced
  std::vector<std::string> created_;       // paths
  std::string digests_path_;  // of digests that appeared before the files
  bool committed_ = false;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DESTINATION_STORE_DESTINATION_H_
