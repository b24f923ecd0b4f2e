// SPDX-License-Identifier: Apache-2.0

#include "server/reading/shared_checkpoint.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "dcp/base/error_place.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/mapped/mapped_tensor.h"
#include "proto/rpc_status.h"
#include "server/reading/checkpoint_state.h"

namespace dcp::server {
namespace {

// Memory, rounded up, for an entry (sizeof(CheckpointEntry) and a slot in the
// table by name), a chunk (a Box and a ChunkLocation), a mapped tensor (with
// lists of sources) and a piece of one (with bounds).
constexpr uint64_t kBytesPerEntry = sizeof(CheckpointEntry) + 64;
constexpr uint64_t kBytesPerChunk = sizeof(Box) + sizeof(ChunkLocation) + 32;
constexpr uint64_t kBytesPerMapped = sizeof(MappedTensor) + 128;
constexpr uint64_t kBytesPerPiece = sizeof(StridedPiece) + sizeof(Box) + 32;

uint64_t IndexBytes(absl::Span<const CheckpointEntry> entries) {
  uint64_t num_bytes = 0;
  for (const CheckpointEntry& entry : entries) {
    num_bytes += kBytesPerEntry + 2 * entry.fqn.size();
    if (entry.tensor() != nullptr) {
      num_bytes += entry.tensor()->boxes.size() * kBytesPerChunk;
    }
  }
  return num_bytes;
}

uint64_t IndexBytes(const Checkpoint& checkpoint) {
  const uint64_t num_bytes = IndexBytes(checkpoint.stored_entries());
  if (checkpoint.mapped() == nullptr) return num_bytes;
  const MappedEntries& mapped = *checkpoint.mapped();
  uint64_t num_pieces = mapped.ties.size() + mapped.report.paddings.size();
  for (const auto& tensor : mapped.tensors) {
    num_pieces += tensor->pieces().size();
  }
  return num_bytes + IndexBytes(mapped.entries) +
         mapped.tensors.size() * kBytesPerMapped + num_pieces * kBytesPerPiece;
}

}  // namespace

std::shared_ptr<SharedCheckpoint> SharedCheckpoint::Make(
    std::shared_ptr<TaskQueue> tasks, std::unique_ptr<RootedFileSystem> fs,
    std::unique_ptr<Checkpoint> checkpoint, CheckpointState state,
    OpenOptions open, std::shared_ptr<std::atomic<uint64_t>> index_bytes) {
  const auto close = [tasks](SharedCheckpoint* shared) {
    // If the queue takes no more tasks, the checkpoint is closed here.
    std::unique_ptr<SharedCheckpoint> last(shared);
    last->all_index_bytes_->fetch_sub(last->index_bytes_);
    tasks->Post(kNoClient, [last = std::move(last)] {}).IgnoreError();
  };
  return std::shared_ptr<SharedCheckpoint>(
      new SharedCheckpoint(std::move(tasks), std::move(fs),
                           std::move(checkpoint), std::move(state),
                           std::move(open), std::move(index_bytes)),
      close);
}

SharedCheckpoint::SharedCheckpoint(
    std::shared_ptr<TaskQueue> tasks, std::unique_ptr<RootedFileSystem> fs,
    std::unique_ptr<Checkpoint> checkpoint, CheckpointState state,
    OpenOptions open, std::shared_ptr<std::atomic<uint64_t>> index_bytes)
    : tasks_(std::move(tasks)),
      fs_(std::move(fs)),
      checkpoint_(std::move(checkpoint)),
      state_(std::move(state)),
      open_(std::move(open)),
      index_bytes_(IndexBytes(*checkpoint_)),
      all_index_bytes_(std::move(index_bytes)),
      located_(checkpoint_->entries().size()) {
  all_index_bytes_->fetch_add(index_bytes_);
}

absl::StatusOr<bool> SharedCheckpoint::IsCurrent(
    const std::stop_token& stop) const {
  DCP_ASSIGN_OR_RETURN(const std::string index,
                       IndexState(*fs_, checkpoint_->path(), open_, stop));
  DCP_ASSIGN_OR_RETURN(const FilesState files,
                       LookAtFiles(*fs_, *checkpoint_, stop));
  return !files.text.empty() &&
         CombinedDigest(index, files.text) == state_.digest;
}

bool SharedCheckpoint::AreLocated(const std::vector<uint32_t>& entries) const {
  for (const uint32_t entry : entries) {
    if (!located_[entry]) return false;
  }
  return true;
}

void SharedCheckpoint::Locate(const std::string& client,
                              std::vector<uint32_t> entries, Located done) {
  bool known = false;
  bool begin = false;
  {
    absl::MutexLock lock(&mutex_);
    known = AreLocated(entries);
    if (!known) {
      requests_.push_back({std::move(entries), std::move(done)});
      begin = !std::exchange(serving_, true);
    }
  }
  if (known) return done(absl::OkStatus());
  if (!begin) return;
  const absl::Status posted = tasks_->Post(
      client, [self = shared_from_this()] { self->ServeRequests(); });
  if (posted.ok()) return;
  std::vector<LocateRequest> requests;
  {
    absl::MutexLock lock(&mutex_);
    requests.swap(requests_);
    serving_ = false;
  }
  for (LocateRequest& request : requests) request.done(posted);
}

// Runs on one thread at a time, guarded by `serving_`.
void SharedCheckpoint::ServeRequests() {
  while (true) {
    std::vector<LocateRequest> requests;
    {
      absl::MutexLock lock(&mutex_);
      requests.swap(requests_);
      if (requests.empty()) {
        serving_ = false;
        return;
      }
    }
    std::vector<absl::Status> results = LocateAll(requests);
    {
      absl::MutexLock lock(&mutex_);
      for (size_t i = 0; i < requests.size(); ++i) {
        if (!results[i].ok()) continue;
        for (const uint32_t entry : requests[i].entries) located_[entry] = true;
      }
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].done(std::move(results[i]));
    }
  }
}

std::vector<absl::Status> SharedCheckpoint::LocateAll(
    const std::vector<LocateRequest>& requests) {
  std::vector<uint32_t> all;
  for (const LocateRequest& request : requests) {
    all.insert(all.end(), request.entries.begin(), request.entries.end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::vector<absl::Status> results(requests.size());
  if (checkpoint_->Locate(all).ok()) return results;
  // Damage to some entries must not fail the requests for others.
  for (size_t i = 0; i < requests.size(); ++i) {
    results[i] = WithPlace(checkpoint_->Locate(requests[i].entries),
                           {.path = checkpoint_->path()});
  }
  return results;
}

// The files of a DCP checkpoint are opened when their payload is located. They
// match the index only if the index is still the same.
absl::Status UnlessReplaced(const SharedCheckpoint& checkpoint,
                            const absl::Status& status) {
  if (!status.ok() && !absl::IsDataLoss(status)) return status;
  const absl::StatusOr<bool> current = checkpoint.IsCurrent();
  if (current.ok() && *current) return status;
  const std::string& path = checkpoint.checkpoint().path();
  return WithRetryAfter(WithPlace(absl::UnavailableError(absl::StrCat(
                                      path, " is being replaced: try again")),
                                  {.path = path}),
                        /*milliseconds=*/1000);
}

}  // namespace dcp::server
