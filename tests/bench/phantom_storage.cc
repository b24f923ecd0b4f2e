// SPDX-License-Identifier: Apache-2.0

#include "tests/bench/phantom_storage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "dcp/base/check.h"
#include "dcp/base/status.h"
#include "dcp/tensor/placement.h"

namespace dcp::bench {
namespace {

// Larger files have no bytes.
constexpr uint64_t kLargeBytes = uint64_t{1} << 30;

}  // namespace

// Requests are carried out when they are submitted.
class PhantomStorage::Queue final : public IoQueue {
 public:
  Queue(PhantomStorage& storage, uint32_t depth)
      : storage_(storage), depth_(depth) {}

  uint32_t depth() const override { return depth_; }
  uint32_t in_flight() const override {
    return static_cast<uint32_t>(ended_.size());
  }

  absl::Status Submit(IoRequest* request) override {
    const Large* const large = storage_.FindOpen(request->file);
    DCP_CHECK(large != nullptr && request->op == IoRequest::Op::kRead);
    {
      absl::MutexLock lock(&storage_.mutex_);
      ++(large->in_store ? storage_.counts_.num_store_reads
                         : storage_.counts_.num_reads);
      storage_.counts_.bytes_read += request->length;
    }
    storage_.Fill(*large, request->offset,
                  MutableByteSpan(request->data, request->length));
    request->result = request->length;
    ended_.push_back(request);
    return absl::OkStatus();
  }

  absl::Status Reap(std::vector<IoRequest*>& done) override {
    done.insert(done.end(), ended_.begin(), ended_.end());
    ended_.clear();
    return absl::OkStatus();
  }

 private:
  PhantomStorage& storage_;
  const uint32_t depth_;
  std::vector<IoRequest*> ended_;
};

void PhantomStorage::Count(absl::string_view path) {
  absl::Duration latency;
  {
    absl::MutexLock lock(&mutex_);
    const bool in_store = absl::StartsWith(path, kStore);
    ++(in_store ? counts_.num_store_calls : counts_.num_calls);
    latency = in_store ? store_latency_ : disk_latency_;
  }
  absl::Notification answer;  // which never comes
  answer.WaitForNotificationWithTimeout(latency);
}

void PhantomStorage::SetLatency(absl::Duration of_disk,
                                absl::Duration of_store) {
  absl::MutexLock lock(&mutex_);
  disk_latency_ = of_disk;
  store_latency_ = of_store;
}

PhantomStorage::Counts PhantomStorage::TakeCounts() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(counts_, {});
}

const PhantomStorage::Large* PhantomStorage::Find(absl::string_view path) {
  absl::MutexLock lock(&mutex_);
  const auto found = large_.find(path);
  return found == large_.end() ? nullptr : &found->second;
}

const PhantomStorage::Large* PhantomStorage::FindOpen(FileHandle handle) {
  absl::MutexLock lock(&mutex_);
  const auto found = open_.find(handle);
  return found == open_.end() ? nullptr : found->second;
}

File PhantomStorage::Opened(File file, const Large* large) {
  if (large == nullptr) return file;
  file.size = large->size;
  absl::MutexLock lock(&mutex_);
  open_[file.handle] = large;
  return file;
}

// An image's literals are made when they are read.
void PhantomStorage::Fill(const Large& large, uint64_t offset,
                          MutableByteSpan data) {
  std::memset(data.data(), 0, data.size());
  if (large.image == nullptr) return;
  const std::vector<LayoutPart>& parts = large.image->layout.parts();
  size_t i =
      static_cast<size_t>(std::partition_point(parts.begin(), parts.end(),
                                               [&](const LayoutPart& part) {
                                                 return part.end() <= offset;
                                               }) -
                          parts.begin());
  const uint64_t end = offset + data.size();
  absl::MutexLock lock(&mutex_);
  crcs_.resize(std::max(crcs_.size(), parts.size()));
  for (; i < parts.size() && parts[i].offset < end; ++i) {
    const uint64_t begin = std::max(offset, parts[i].offset);
    const uint64_t stop = std::min(end, parts[i].payload_offset());
    if (begin >= stop) continue;
    const std::string literal = large.image->literal(i, crcs_);
    std::memcpy(data.data() + (begin - offset),
                literal.data() + (begin - parts[i].offset), stop - begin);
  }
}

absl::Status PhantomStorage::AddImage(const std::string& path,
                                      OutputFile& image) {
  DCP_RETURN_IF_ERROR(WriteFile(disk_, path, {}));
  absl::MutexLock lock(&mutex_);
  large_[path] = {.size = image.layout.size(),
                  .image = &image,
                  .in_store = absl::StartsWith(path, kStore)};
  return absl::OkStatus();
}

FileSystemTraits PhantomStorage::TraitsAt(absl::string_view path) {
  if (!absl::StartsWith(path, kStore)) return {};
  return {.has_rename = false,
          .block_bytes = kObjectBlockBytes,
          .max_blocks = kMaxObjectParts};
}

absl::StatusOr<File> PhantomStorage::OpenForRead(absl::string_view path,
                                                 DirectMode,
                                                 bool follow_symlinks) {
  Count(path);
  DCP_ASSIGN_OR_RETURN(
      const File file,
      disk_.OpenForRead(path, DirectMode::kOff, follow_symlinks));
  return Opened(file, Find(path));
}

absl::StatusOr<File> PhantomStorage::Create(absl::string_view path,
                                            uint64_t size, DirectMode) {
  Count(path);
  return disk_.Create(path, size, DirectMode::kOff);
}

absl::StatusOr<File> PhantomStorage::OpenShared(absl::string_view path,
                                                uint64_t size, DirectMode) {
  Count(path);
  const bool is_large = size >= kLargeBytes;
  DCP_ASSIGN_OR_RETURN(
      const File file,
      disk_.OpenShared(path, is_large ? 0 : size, DirectMode::kOff));
  if (!is_large) return file;
  {
    absl::MutexLock lock(&mutex_);
    large_[std::string(path)].size = size;
  }
  return Opened(file, Find(path));
}

absl::Status PhantomStorage::Close(File file) {
  {
    absl::MutexLock lock(&mutex_);
    open_.erase(file.handle);
  }
  return disk_.Close(file);
}

absl::Status PhantomStorage::Read(const File& file, uint64_t offset,
                                  MutableByteSpan data) {
  const Large* const large = FindOpen(file.handle);
  Count(large != nullptr && large->in_store ? kStore : "");
  {
    absl::MutexLock lock(&mutex_);
    counts_.bytes_read += data.size();
  }
  if (large == nullptr) return disk_.Read(file, offset, data);
  Fill(*large, offset, data);
  return absl::OkStatus();
}

absl::Status PhantomStorage::Write(const File& file, uint64_t offset,
                                   ByteSpan data) {
  Count("");
  {
    absl::MutexLock lock(&mutex_);
    counts_.bytes_written += data.size();
  }
  if (FindOpen(file.handle) != nullptr) return absl::OkStatus();
  return disk_.Write(file, offset, data);
}

absl::Status PhantomStorage::Truncate(const File& file, uint64_t size) {
  Count("");
  return disk_.Truncate(file, size);
}

absl::Status PhantomStorage::Sync(const File& file) {
  Count("");
  return disk_.Sync(file);
}

absl::Status PhantomStorage::SyncDirectory(absl::string_view path) {
  Count(path);
  return disk_.SyncDirectory(path);
}

absl::Status PhantomStorage::Rename(absl::string_view from,
                                    absl::string_view to) {
  Count(to);
  return disk_.Rename(from, to);
}

absl::Status PhantomStorage::RenameExclusive(absl::string_view from,
                                             absl::string_view to) {
  Count(to);
  return disk_.RenameExclusive(from, to);
}

absl::Status PhantomStorage::Exchange(absl::string_view a,
                                      absl::string_view b) {
  Count(a);
  return disk_.Exchange(a, b);
}

absl::Status PhantomStorage::Remove(absl::string_view path) {
  Count(path);
  {
    absl::MutexLock lock(&mutex_);
    large_.erase(std::string(path));
  }
  return disk_.Remove(path);
}

absl::Status PhantomStorage::MakeDirectory(absl::string_view path) {
  Count(path);
  return disk_.MakeDirectory(path);
}

absl::Status PhantomStorage::RemoveDirectory(absl::string_view path) {
  Count(path);
  return disk_.RemoveDirectory(path);
}

absl::StatusOr<FileInfo> PhantomStorage::Stat(absl::string_view path) {
  Count(path);
  DCP_ASSIGN_OR_RETURN(FileInfo info, disk_.Stat(path));
  const Large* const large = Find(path);
  if (large != nullptr) info.size = large->size;
  return info;
}

absl::StatusOr<FileInfo> PhantomStorage::Stat(const File& file) {
  DCP_ASSIGN_OR_RETURN(FileInfo info, disk_.Stat(file));
  info.size = std::max(info.size, file.size);
  return info;
}

absl::StatusOr<std::vector<DirectoryEntry>> PhantomStorage::List(
    absl::string_view path) {
  Count(path);
  return disk_.List(path);
}

absl::StatusOr<uint64_t> PhantomStorage::FreeBytes(absl::string_view) {
  return UINT64_MAX;
}

absl::StatusOr<FileLock> PhantomStorage::Lock(absl::string_view path,
                                              absl::string_view note) {
  Count(path);
  return disk_.Lock(path, note);
}

absl::Status PhantomStorage::Unlock(absl::string_view path, File file) {
  Count(path);
  return disk_.Unlock(path, file);
}

absl::StatusOr<std::unique_ptr<IoQueue>> PhantomStorage::NewQueue(
    uint32_t depth, std::span<uint8_t>) {
  return std::make_unique<Queue>(*this, depth);
}

Output OutputByRows(const std::vector<OutputEntry>& entries, SourceFiles& files,
                    int64_t num_ranks) {
  const std::vector<EntryLayout> layouts(
      entries.size(), {.placements = *ParsePlacements("S(0)")});
  const auto ranks = ChunksForMeshes(
      entries, {*ParseMesh(absl::StrCat("shard=", num_ranks))}, layouts);
  DCP_CHECK(ranks.ok(), ranks.status().message());
  absl::StatusOr<Output> output = BuildDcpOutput(
      entries, files, *ranks, {.save_id = "source"},
      [](int64_t rank) { return absl::StrCat("__", rank, "_0.distcp"); });
  DCP_CHECK(output.ok(), output.status().message());
  return *std::move(output);
}

}  // namespace dcp::bench
