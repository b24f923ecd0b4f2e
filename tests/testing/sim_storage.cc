// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_storage.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/io/posix_error.h"
#include "tests/testing/sim_queue.h"

namespace dcp::testing {
namespace {

// The unit that a disk writes completely or not at all.
constexpr uint64_t kSectorBytes = 512;

// After the machine has died, every operation fails with this; before, none
// does.
constexpr int kDead = ESHUTDOWN;

absl::Status Failed(int error, absl::string_view what) {
  if (error != kDead) return PosixError(error, what);
  return absl::UnavailableError(absl::StrCat(what, ": crashed"));
}

bool IsAligned(const IoRequest& request, uint64_t alignment) {
  const uint64_t mixed = request.offset | request.length |
                         reinterpret_cast<uint64_t>(request.data);
  return mixed % alignment == 0;
}

}  // namespace

SimStorage::SimStorage(const Options& options)
    : options_(options), random_(options.seed) {}

uint64_t SimStorage::num_operations() const {
  absl::MutexLock lock(&mutex_);
  return num_operations_;
}

uint64_t SimStorage::num_mutations() const {
  absl::MutexLock lock(&mutex_);
  return num_mutations_;
}

uint64_t SimStorage::num_open_files() const {
  absl::MutexLock lock(&mutex_);
  return open_files_.size();
}

uint64_t SimStorage::most_queue_bytes() const {
  absl::MutexLock lock(&mutex_);
  return most_queue_bytes_;
}

bool SimStorage::crashed() const {
  absl::MutexLock lock(&mutex_);
  return crashed_;
}

void SimStorage::FailOperation(uint64_t num_before, int error) {
  absl::MutexLock lock(&mutex_);
  failures_[num_operations_ + num_before] = error;
}

void SimStorage::CallBeforeOperation(uint64_t num_before,
                                     std::function<void()> hook) {
  absl::MutexLock lock(&mutex_);
  hooks_[num_operations_ + num_before] = std::move(hook);
}

void SimStorage::CrashAfter(uint64_t num_before) {
  absl::MutexLock lock(&mutex_);
  crash_at_ = num_mutations_ + num_before;
}

void SimStorage::Reboot() {
  absl::MutexLock lock(&mutex_);
  disk_.Crash(options_.survival, random_);
  open_files_.clear();
  crash_at_.reset();
  crashed_ = false;
}

SimStorage::Fate SimStorage::Begin(bool mutates) {
  if (crashed_) return {.error = kDead};
  if (const auto hook = hooks_.find(num_operations_); hook != hooks_.end()) {
    hook->second();
  }
  const auto failure = failures_.find(num_operations_++);
  const uint64_t mutation = mutates ? num_mutations_++ : UINT64_MAX;
  if (crash_at_ == mutation) {
    crashed_ = true;
    return {.error = kDead, .dying = true};
  }
  return {.error = failure == failures_.end() ? 0 : failure->second};
}

bool SimStorage::Chance(uint32_t percent) { return random_() % 100 < percent; }

absl::Status SimStorage::Change(Fate fate, std::vector<SimDisk::Change> changes,
                                absl::string_view what) {
  if (!fate.dying || Chance(50)) disk_.Apply(std::move(changes));
  return fate.dying ? Failed(kDead, what) : absl::OkStatus();
}

SimStorage::OpenFile* SimStorage::Lookup(FileHandle handle) {
  const auto found = open_files_.find(handle);
  return found == open_files_.end() ? nullptr : &found->second;
}

File SimStorage::Open(SimDisk::NodePtr node, bool writable, DirectMode direct) {
  const uint64_t size = node->data.size();
  const bool is_direct =
      direct == DirectMode::kOn ||
      (direct == DirectMode::kAuto && size >= kMinDirectFileBytes);
  const uint64_t alignment = is_direct ? options_.alignment : 1;
  open_files_[next_handle_] = {std::move(node), alignment, writable};
  return {.handle = next_handle_++, .alignment = alignment, .size = size};
}

uint64_t SimStorage::Unused() const {
  return options_.capacity_bytes -
         std::min(options_.capacity_bytes, disk_.UsedBytes());
}

absl::StatusOr<uint64_t> SimStorage::FreeBytes(absl::string_view path) {
  absl::MutexLock lock(&mutex_);
  const std::string what = absl::StrCat(path, ": free bytes");
  const Fate fate = Begin(/*mutates=*/false);
  if (fate.error != 0) return Failed(fate.error, what);
  if (disk_.Find(path) == nullptr) return Failed(ENOENT, what);
  return Unused();
}

absl::StatusOr<File> SimStorage::OpenForRead(absl::string_view path,
                                             DirectMode direct,
                                             bool /*follow_symlinks*/) {
  absl::MutexLock lock(&mutex_);
  const std::string what = absl::StrCat(path, ": open");
  const Fate fate = Begin(/*mutates=*/false);
  if (fate.error != 0) return Failed(fate.error, what);
  SimDisk::NodePtr node = disk_.Find(path);
  if (node == nullptr) return Failed(ENOENT, what);
  if (node->is_directory) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is not a regular file"));
  }
  return Open(std::move(node), /*writable=*/false, direct);
}

absl::StatusOr<File> SimStorage::Create(absl::string_view path, uint64_t size,
                                        DirectMode direct) {
  absl::MutexLock lock(&mutex_);
  const std::string what = absl::StrCat("create ", path);
  const Fate fate = Begin(/*mutates=*/true);
  if (fate.refused()) return Failed(fate.error, what);
  const std::optional<Dentry> dentry = disk_.FindDentry(path);
  if (!dentry.has_value()) return Failed(ENOENT, what);
  if (dentry->node() != nullptr) return Failed(EEXIST, what);
  if (size > Unused()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ": ", size, " bytes needed, ", Unused(), " free"));
  }
  SimDisk::NodePtr node = disk_.NewNode(/*is_directory=*/false);
  SimDisk::Resize(*node, size);
  DCP_RETURN_IF_ERROR(Change(fate, {{*dentry, node}}, what));
  return Open(std::move(node), /*writable=*/true, direct);
}

absl::StatusOr<File> SimStorage::OpenShared(absl::string_view path,
                                            uint64_t size, DirectMode direct) {
  absl::MutexLock lock(&mutex_);
  const std::string what = absl::StrCat("open ", path);
  const Fate fate = Begin(/*mutates=*/true);
  if (fate.refused()) return Failed(fate.error, what);
  const std::optional<Dentry> dentry = disk_.FindDentry(path);
  if (!dentry.has_value()) return Failed(ENOENT, what);
  SimDisk::NodePtr node = dentry->node();
  if (node == nullptr) {
    node = disk_.NewNode(/*is_directory=*/false);
    DCP_RETURN_IF_ERROR(Change(fate, {{*dentry, node}}, what));
  } else if (fate.dying) {
    return Failed(kDead, what);
  }
  if (node->data.size() != size) {
    if (size > Unused()) {
      return absl::ResourceExhaustedError(
          absl::StrCat(what, ": ", size, " bytes needed, ", Unused(), " free"));
    }
    SimDisk::Resize(*node, size);
  }
  return Open(std::move(node), /*writable=*/true, direct);
}

absl::Status SimStorage::Close(File file) {
  absl::MutexLock lock(&mutex_);
  if (crashed_) return Failed(kDead, "close");
  if (open_files_.erase(file.handle) == 0) return Failed(EBADF, "close");
  return absl::OkStatus();
}

absl::Status SimStorage::Read(const File& file, uint64_t offset,
                              MutableByteSpan data) {
  absl::MutexLock lock(&mutex_);
  const Fate fate = Begin(/*mutates=*/false);
  if (fate.error != 0) return Failed(fate.error, "read");
  const OpenFile* open = Lookup(file.handle);
  if (open == nullptr) return Failed(EBADF, "read");
  const std::vector<uint8_t>& content = open->node->data;
  if (offset > content.size() || data.size() > content.size() - offset) {
    return absl::OutOfRangeError(absl::StrCat("read [", offset, ", +",
                                              data.size(), "): file ends at ",
                                              content.size()));
  }
  std::copy_n(content.begin() + static_cast<int64_t>(offset), data.size(),
              data.begin());
  return absl::OkStatus();
}

absl::Status SimStorage::Write(const File& file, uint64_t offset,
                               ByteSpan data) {
  absl::MutexLock lock(&mutex_);
  const Fate fate = Begin(/*mutates=*/true);
  if (fate.refused()) return Failed(fate.error, "write");
  OpenFile* open = Lookup(file.handle);
  if (open == nullptr || !open->writable) return Failed(EBADF, "write");
  const int64_t moved = WriteSome(*open->node, fate, offset, data);
  if (moved < 0) return Failed(static_cast<int>(-moved), "write");
  if (static_cast<uint64_t>(moved) < data.size()) {
    return Failed(ENOSPC, "write");
  }
  return absl::OkStatus();
}

int64_t SimStorage::WriteSome(SimDisk::Node& node, Fate fate, uint64_t offset,
                              ByteSpan data) {
  if (fate.dying) {
    // The sectors up to some place are on their way to the disk, so that the
    // page with that place is torn.
    const uint64_t num_sectors = data.size() / kSectorBytes + 1;
    const uint64_t torn = random_() % num_sectors * kSectorBytes;
    SimDisk::Write(node, offset, data.first(torn));
    return -kDead;
  }
  const uint64_t held = AlignUp(node.data.size(), SimDisk::kPageBytes);
  const uint64_t free = Unused();
  const uint64_t end = free > UINT64_MAX - held ? UINT64_MAX : held + free;
  if (offset >= end) return -ENOSPC;
  data = data.first(std::min<uint64_t>(data.size(), end - offset));
  SimDisk::Write(node, offset, data);
  return static_cast<int64_t>(data.size());
}

absl::Status SimStorage::Truncate(const File& file, uint64_t size) {
  absl::MutexLock lock(&mutex_);
  const Fate fate = Begin(/*mutates=*/true);
  if (fate.refused()) return Failed(fate.error, "truncate");
  OpenFile* open = Lookup(file.handle);
  if (open == nullptr || !open->writable) return Failed(EBADF, "truncate");
  if (!fate.dying || Chance(50)) SimDisk::Resize(*open->node, size);
  return fate.dying ? Failed(kDead, "truncate") : absl::OkStatus();
}

absl::Status SimStorage::Sync(const File& file) {
  absl::MutexLock lock(&mutex_);
  const Fate fate = Begin(/*mutates=*/true);
  if (fate.error != 0) return Failed(fate.error, "fsync");
  OpenFile* open = Lookup(file.handle);
  if (open == nullptr) return Failed(EBADF, "fsync");
  SimDisk::SyncFile(*open->node);
  return absl::OkStatus();
}

absl::Status SimStorage::SyncDirectory(absl::string_view path) {
  absl::MutexLock lock(&mutex_);
  const std::string what = absl::StrCat("fsync ", path);
  const Fate fate = Begin(/*mutates=*/true);
  if (fate.error != 0) return Failed(fate.error, what);
  const SimDisk::NodePtr node = disk_.Find(path);
  if (node == nullptr) return Failed(ENOENT, what);
  if (!node->is_directory) return Failed(ENOTDIR, what);
  disk_.SyncDirectory(*node);
  return absl::OkStatus();
}

absl::Status SimStorage::Rename(absl::string_view from, absl::string_view to) {
  return Move(from, to, /*exclusive=*/false);
}

absl::Status SimStorage::RenameExclusive(absl::string_view from,
                                         absl::string_view to) {
  return Move(from, to, /*exclusive=*/true);
}

absl::Status SimStorage::Move(absl::string_view from, absl::string_view to,
                              bool exclusive) {
  absl::MutexLock lock(&mutex_);
  const std::string what = absl::StrCat("rename ", from, " to ", to);
  const Fate fate = Begin(/*mutates=*/true);
  if (fate.refused()) return Failed(fate.error, what);
  const std::optional<Dentry> source = disk_.FindDentry(from);
  const std::optional<Dentry> target = disk_.FindDentry(to);
  if (!source.has_value() || !target.has_value()) return Failed(ENOENT, what);
  const SimDisk::NodePtr node = source->node();
  if (node == nullptr) return Failed(ENOENT, what);
  if (const SimDisk::NodePtr old = target->node(); old != nullptr) {
    if (exclusive) return Failed(EEXIST, what);
    if (old == node) return absl::OkStatus();
    if (old->is_directory && !node->is_directory) return Failed(EISDIR, what);
    if (!old->is_directory && node->is_directory) return Failed(ENOTDIR, what);
    if (!old->entries.empty()) return Failed(ENOTEMPTY, what);
  }
  return Change(fate, {{*source, nullptr}, {*target, node}}, what);
}

absl::Status SimStorage::Exchange(absl::string_view a, absl::string_view b) {
  absl::MutexLock lock(&mutex_);
  const std::string what = absl::StrCat("exchange ", a, " and ", b);
  const Fate fate = Begin(/*mutates=*/true);
  if (fate.refused()) return Failed(fate.error, what);
  const std::optional<Dentry> first = disk_.FindDentry(a);
  const std::optional<Dentry> second = disk_.FindDentry(b);
  if (!first.has_value() || first->node() == nullptr || !second.has_value() ||
      second->node() == nullptr) {
    return Failed(ENOENT, what);
  }
  return Change(fate, {{*first, second->node()}, {*second, first->node()}},
                what);
}

absl::Status SimStorage::Remove(absl::string_view path) {
  return Unlink(path, /*is_directory=*/false);
}

absl::Status SimStorage::RemoveDirectory(absl::string_view path) {
  return Unlink(path, /*is_directory=*/true);
}

absl::Status SimStorage::Unlink(absl::string_view path, bool is_directory) {
  absl::MutexLock lock(&mutex_);
  const std::string what = absl::StrCat("remove ", path);
  const Fate fate = Begin(/*mutates=*/true);
  if (fate.refused()) return Failed(fate.error, what);
  const std::optional<Dentry> dentry = disk_.FindDentry(path);
  if (!dentry.has_value() || dentry->node() == nullptr) {
    return Failed(ENOENT, what);
  }
  if (dentry->node()->is_directory != is_directory) {
    return Failed(is_directory ? ENOTDIR : EISDIR, what);
  }
  if (!dentry->node()->entries.empty()) return Failed(ENOTEMPTY, what);
  return Change(fate, {{*dentry, nullptr}}, what);
}

absl::Status SimStorage::MakeDirectory(absl::string_view path) {
  absl::MutexLock lock(&mutex_);
  const std::string what = absl::StrCat("create ", path);
  const Fate fate = Begin(/*mutates=*/true);
  if (fate.refused()) return Failed(fate.error, what);
  const std::optional<Dentry> dentry = disk_.FindDentry(path);
  if (!dentry.has_value()) return Failed(ENOENT, what);
  if (dentry->node() != nullptr) return Failed(EEXIST, what);
  return Change(fate, {{*dentry, disk_.NewNode(/*is_directory=*/true)}}, what);
}

absl::StatusOr<FileInfo> SimStorage::Stat(absl::string_view path) {
  absl::MutexLock lock(&mutex_);
  const Fate fate = Begin(/*mutates=*/false);
  if (fate.error != 0) return Failed(fate.error, path);
  const SimDisk::NodePtr node = disk_.Find(path);
  if (node == nullptr) return Failed(ENOENT, path);
  return FileInfo{
      .kind = node->is_directory ? FileKind::kDirectory : FileKind::kFile,
      .size = node->data.size(),
      .inode = node->number};
}

absl::StatusOr<FileInfo> SimStorage::Stat(const File& file) {
  absl::MutexLock lock(&mutex_);
  const Fate fate = Begin(/*mutates=*/false);
  if (fate.error != 0) return Failed(fate.error, "stat");
  const OpenFile* const open = Lookup(file.handle);
  if (open == nullptr) return Failed(EBADF, "stat");
  return FileInfo{.size = open->node->data.size(), .inode = open->node->number};
}

absl::StatusOr<std::vector<DirectoryEntry>> SimStorage::List(
    absl::string_view path) {
  absl::MutexLock lock(&mutex_);
  const std::string what = absl::StrCat("list ", path);
  const Fate fate = Begin(/*mutates=*/false);
  if (fate.error != 0) return Failed(fate.error, what);
  const SimDisk::NodePtr directory = disk_.Find(path);
  if (directory == nullptr) return Failed(ENOENT, what);
  if (!directory->is_directory) return Failed(ENOTDIR, what);
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, node] : directory->entries) {
    entries.push_back(
        {name, node->is_directory ? FileKind::kDirectory : FileKind::kFile});
  }
  return entries;
}

absl::StatusOr<FileLock> SimStorage::Lock(absl::string_view path,
                                          absl::string_view note) {
  absl::MutexLock lock(&mutex_);
  const std::string what = absl::StrCat("lock ", path);
  const Fate fate = Begin(/*mutates=*/true);
  if (fate.refused()) return Failed(fate.error, what);
  const std::optional<Dentry> dentry = disk_.FindDentry(path);
  if (!dentry.has_value()) return Failed(ENOENT, what);
  SimDisk::NodePtr node = dentry->node();
  const bool is_new = node == nullptr;
  if (is_new) {
    node = disk_.NewNode(/*is_directory=*/false);
    DCP_RETURN_IF_ERROR(Change(fate, {{*dentry, node}}, what));
  }
  if (fate.dying) return Failed(fate.error, what);
  FileLock taken;
  taken.text.assign(node->data.begin(), node->data.end());
  for (const auto& [handle, open] : open_files_) {
    if (open.locked && open.node == node) return taken;
  }
  if (!options_.has_locks && !is_new) {
    taken.by_existence = true;
    return taken;
  }
  SimDisk::Resize(*node, 0);
  SimDisk::Write(*node, 0, AsBytes(absl::StrCat(kLockFileMagic, note)));
  taken.file = Open(std::move(node), /*writable=*/true, DirectMode::kOff);
  open_files_[taken.file.handle].locked = true;
  return taken;
}

absl::Status SimStorage::Unlock(absl::string_view path, File file) {
  absl::MutexLock lock(&mutex_);
  const std::string what = absl::StrCat("unlock ", path);
  const auto open = open_files_.find(file.handle);
  if (!crashed_ && open == open_files_.end()) return Failed(EBADF, what);
  const SimDisk::NodePtr node = crashed_ ? nullptr : open->second.node;
  if (!crashed_) open_files_.erase(open);
  const Fate fate = Begin(/*mutates=*/true);
  if (fate.refused()) return Failed(fate.error, what);
  const std::optional<Dentry> dentry = disk_.FindDentry(path);
  if (!dentry.has_value() || dentry->node() != node) return absl::OkStatus();
  return Change(fate, {{*dentry, nullptr}}, what);
}

absl::StatusOr<std::unique_ptr<IoQueue>> SimStorage::NewQueue(
    uint32_t depth, std::span<uint8_t> memory) {
  absl::MutexLock lock(&mutex_);
  if (crashed_) return Failed(kDead, "new queue");
  queue_bytes_ += memory.size();
  most_queue_bytes_ = std::max(most_queue_bytes_, queue_bytes_);
  return std::make_unique<SimQueue>(*this, depth, memory.size(), random_());
}

void SimStorage::EndQueue(uint64_t memory_bytes) {
  absl::MutexLock lock(&mutex_);
  queue_bytes_ -= memory_bytes;
}

int64_t SimStorage::Perform(const IoRequest& request) {
  absl::MutexLock lock(&mutex_);
  const Fate fate = Begin(request.op == IoRequest::Op::kWrite);
  if (fate.refused()) return -fate.error;
  OpenFile* file = Lookup(request.file);
  if (file == nullptr) return -EBADF;
  return PerformOn(*file, request, fate);
}

int64_t SimStorage::PerformOn(OpenFile& file, const IoRequest& request,
                              Fate fate) {
  if (!IsAligned(request, file.alignment)) return -EINVAL;
  if (!fate.dying && Chance(options_.percent_interrupted)) {
    return Chance(50) ? -EINTR : -EAGAIN;
  }
  uint64_t length = request.length;
  if (!fate.dying && length > 1 && Chance(options_.percent_short)) {
    length = 1 + random_() % (length - 1);
  }
  if (request.op == IoRequest::Op::kWrite) {
    if (!file.writable) return -EBADF;
    return WriteSome(*file.node, fate, request.offset,
                     ByteSpan(request.data, length));
  }
  const std::vector<uint8_t>& content = file.node->data;
  if (request.offset >= content.size()) return 0;
  length = std::min<uint64_t>(length, content.size() - request.offset);
  std::copy_n(content.begin() + static_cast<int64_t>(request.offset), length,
              request.data);
  return static_cast<int64_t>(length);
}

}  // namespace dcp::testing
