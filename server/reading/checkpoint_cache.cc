// SPDX-License-Identifier: Apache-2.0

#include "server/reading/checkpoint_cache.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "dcp/base/error_place.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/lens/model_config.h"
#include "dcp/checkpoint/read/tie_check.h"
#include "proto/error_detail.h"
#include "proto/messages/map_messages.h"
#include "proto/rpc_status.h"
#include "server/access/disk_timeout.h"
#include "server/process/refusal.h"
#include "server/reading/checkpoint_state.h"

namespace dcp::server {
namespace {

// Attempts to open a checkpoint that is replaced while it is opened.
constexpr int kMaxOpens = 3;

// For a client that found the index memory in use or a checkpoint being
// replaced; neither takes long.
constexpr int64_t kRetryAfterOpeningMs = 1000;

// For comparing the tensors that a mapping declares equal.
constexpr uint64_t kTieCheckBytes = 2 * kMinMemoryBytes;

}  // namespace

// A call that waits for a checkpoint.
struct CheckpointCache::Waiter {
  Waiter(const Admission::Caller& caller, const SourceSpec& the_source,
         std::shared_ptr<Answer> the_answer)
      : client(*caller.client),
        account(caller.account),
        source(the_source),
        answer(std::move(the_answer)) {}

  const Client client;
  const std::shared_ptr<ClientAccount> account;
  const SourceSpec source;
  const std::shared_ptr<Answer> answer;  // owners: this, and the alarm
  // Guarded by the cache's mutex, as is the next member.
  bool is_gone = false;
  OpeningPtr opening;  // set when it joins
  // Declared last: the destructor waits for Leave, so it must not run under the
  // lock.
  std::optional<std::stop_callback<std::function<void()>>> on_stop;
};

// An opening on behalf of all waiters. Guarded by the cache's mutex.
struct CheckpointCache::Opening {
  std::vector<WaiterPtr> waiting;
  bool had_late = false;  // a waiter was told of the timeout
  std::stop_source stop;

  bool AreAllGone() const {
    return !had_late &&
           std::all_of(waiting.begin(), waiting.end(),
                       [](const WaiterPtr& waiter) { return waiter->is_gone; });
  }
  // Removes the waiters that have their answer. They must be destroyed without
  // the lock.
  std::vector<WaiterPtr> TakeAnswered() {
    const auto answered = std::stable_partition(
        waiting.begin(), waiting.end(),
        [](const WaiterPtr& waiter) { return !waiter->answer->given(); });
    std::vector<WaiterPtr> taken(answered, waiting.end());
    waiting.erase(answered, waiting.end());
    for (const WaiterPtr& waiter : taken) had_late |= !waiter->is_gone;
    return taken;
  }
};

void CheckpointCache::Open(const Admission::Caller& caller,
                           const SourceSpec& source, std::stop_token stop,
                           Opened opened) {
  const Client& client = *caller.client;
  const auto waiter = std::make_shared<Waiter>(
      caller, source,
      Answer::Start(limits_.disk_timeout,
                    DiskTimeoutError(client, source.path, limits_.disk_timeout),
                    std::move(opened)));
  waiter->on_stop.emplace(std::move(stop),
                          [this, &waiter = *waiter] { Leave(waiter); });
  RootThreads& threads = source.map == nullptr ? threads_ : map_threads_;
  const absl::Status posted =
      threads.QueueFor(client, source.path)
          ->Post(caller.account->name(),
                 [this, waiter] { OpenOnThread(waiter); });
  if (!posted.ok()) {
    waiter->answer->Give(WithRetryAfter(posted, kRetryAfterOpeningMs));
  }
}

void CheckpointCache::OpenOnThread(const WaiterPtr& waiter) {
  if (waiter->answer->given()) return;  // the timeout came first
  const std::string& asked = waiter->source.path;
  const absl::StatusOr<std::string> path = waiter->client.CheckRead(asked);
  if (!path.ok()) {
    return waiter->answer->Give(WithPlace(path.status(), {.path = asked}));
  }
  const Key key{.path = *path,
                .rank = waiter->source.open.rank,
                .dialect = waiter->source.open.dialect,
                .map = waiter->source.map == nullptr
                           ? ""
                           : StableBytes(*waiter->source.map),
                .reach = waiter->client.Reach()};
  OpeningPtr opening;
  std::vector<WaiterPtr> answered;
  {
    absl::MutexLock lock(&mutex_);
    OpeningPtr& known = opening_[key];
    const bool is_new = known == nullptr;
    if (is_new) known = std::make_shared<Opening>();
    answered = known->TakeAnswered();
    known->waiting.push_back(waiter);
    waiter->opening = known;
    if (is_new) opening = known;
  }
  if (opening != nullptr) Serve(key, opening);
}

void CheckpointCache::Serve(const Key& key, const OpeningPtr& opening) {
  std::stop_token stop;
  while (const WaiterPtr next = NextWaiter(key, opening, stop)) {
    // All but the first waiter usually find the checkpoint open.
    absl::StatusOr<std::shared_ptr<SharedCheckpoint>> found =
        Find(*next, key, stop);
    {
      absl::MutexLock lock(&mutex_);
      std::erase(opening->waiting, next);
      // If this attempt was stopped, the next one serves those who have joined
      // since.
      if (found.ok() || !stop.stop_requested()) EndJoining(key, opening);
    }
    next->answer->Give(std::move(found));
  }
}

CheckpointCache::WaiterPtr CheckpointCache::NextWaiter(
    const Key& key, const OpeningPtr& opening, std::stop_token& stop) {
  std::vector<WaiterPtr> answered;
  absl::MutexLock lock(&mutex_);
  answered = opening->TakeAnswered();
  if (opening->waiting.empty()) {
    EndJoining(key, opening);
    return nullptr;
  }
  opening->stop = std::stop_source();
  stop = opening->stop.get_token();
  return opening->waiting.front();
}

void CheckpointCache::EndJoining(const Key& key, const OpeningPtr& opening) {
  const auto it = opening_.find(key);
  if (it != opening_.end() && it->second == opening) opening_.erase(it);
}

void CheckpointCache::Leave(Waiter& waiter) {
  Answer::Answered answered;
  std::stop_source stop(std::nostopstate);
  {
    absl::MutexLock lock(&mutex_);
    answered = waiter.answer->Take();
    if (answered == nullptr) return;
    waiter.is_gone = true;
    if (waiter.opening != nullptr && waiter.opening->AreAllGone()) {
      stop = waiter.opening->stop;
    }
  }
  stop.request_stop();
  answered(absl::CancelledError("the call was cancelled"));
}

std::shared_ptr<SharedCheckpoint> CheckpointCache::FindOpen(const Key& key) {
  absl::MutexLock lock(&mutex_);
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    if (it->first != key) continue;
    kept_.splice(kept_.begin(), kept_, it);
    return it->second;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<SharedCheckpoint>> CheckpointCache::Find(
    const Waiter& waiter, const Key& key, const std::stop_token& stop) {
  const ErrorPlace place{.path = key.path};
  std::shared_ptr<SharedCheckpoint> kept = FindOpen(key);
  if (kept != nullptr) {
    const absl::StatusOr<bool> current = kept->IsCurrent(stop);
    if (current.ok() && *current) return kept;
    kept = nullptr;
  }
  for (int i = 0; i < kMaxOpens; ++i) {
    absl::StatusOr<std::shared_ptr<SharedCheckpoint>> opened =
        OpenFresh(waiter, key, stop);
    if (!opened.ok()) return WithPlace(opened.status(), place);
    if (*opened != nullptr) return opened;
  }
  return WithRetryAfter(
      WithPlace(absl::UnavailableError(
                    absl::StrCat(key.path, " is being replaced: try again")),
                place),
      kRetryAfterOpeningMs);
}

// Null if the checkpoint was replaced or written to while it was opened.
absl::StatusOr<std::shared_ptr<SharedCheckpoint>> CheckpointCache::OpenFresh(
    const Waiter& waiter, const Key& key, const std::stop_token& stop) {
  // Other clients with the same rights share the open checkpoint, also if this
  // one is revoked.
  auto fs = std::make_unique<RootedFileSystem>(fs_, waiter.client.Unrevoked());
  OpenOptions open;
  open.rank = key.rank;
  open.dialect = key.dialect;
  open.locate_memory_bytes = kMinMemoryBytes;
  open.check_index = false;  // Verify and Inspect show the damage
  CallMemory memory;
  const std::string field = absl::StrCat(waiter.source.field, ".map");
  const tessera::v1::MapSpec* const map = waiter.source.map.get();
  if (map != nullptr) {
    DCP_ASSIGN_OR_RETURN(memory, MapMemory(waiter));
    DCP_ASSIGN_OR_RETURN(MapSpec spec, MapFromProto(*map, field));
    open.map = std::make_shared<const MapSpec>(std::move(spec));
  }
  // Before config.json is read, because the text includes the state of that
  // file.
  DCP_ASSIGN_OR_RETURN(const std::string before,
                       IndexState(*fs, key.path, open, stop));
  DCP_RETURN_IF_ERROR(AddModelConfig(*fs, key.path, open));
  absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint =
      Checkpoint::Open(*fs, key.path, open, stop);
  if (!checkpoint.ok()) {
    return map == nullptr ? checkpoint.status()
                          : BlameField(checkpoint.status(), field);
  }
  DCP_RETURN_IF_ERROR(CheckTies(
      *fs, **checkpoint, {.memory_bytes = kTieCheckBytes, .stop = stop}));
  DCP_ASSIGN_OR_RETURN(FilesState files, LookAtFiles(*fs, **checkpoint, stop));
  DCP_ASSIGN_OR_RETURN(const std::string now,
                       IndexState(*fs, key.path, open, stop));
  if (now != before || files.text.empty()) {
    return std::shared_ptr<SharedCheckpoint>();
  }
  const std::shared_ptr<SharedCheckpoint> opened = SharedCheckpoint::Make(
      threads_.QueueFor(key.path), std::move(fs), *std::move(checkpoint),
      {.digest = CombinedDigest(now, files.text),
       .etag = CombinedDigest(key.map, CombinedDigest(now, files.text)),
       .file_sizes = std::move(files.sizes)},
      open, index_bytes_);
  DCP_RETURN_IF_ERROR(Keep(key, opened));
  return opened;
}

absl::StatusOr<CallMemory> CheckpointCache::MapMemory(const Waiter& waiter) {
  struct Asked {
    absl::Notification done;
    absl::StatusOr<CallMemory> memory = absl::UnknownError("not answered");
  };
  // Owners: this and the request, which may return after the notification.
  const auto asked = std::make_shared<Asked>();
  CallMemoryRequest::Ask(waiter.account, budget_,
                         MapMemoryBytes(*waiter.source.map) + kTieCheckBytes,
                         kMaxMemoryWait,
                         [asked](absl::StatusOr<CallMemory> memory) {
                           asked->memory = std::move(memory);
                           asked->done.Notify();
                         });
  asked->done.WaitForNotification();
  return std::move(asked->memory);
}

absl::Status CheckpointCache::Keep(const Key& key,
                                   std::shared_ptr<SharedCheckpoint> opened) {
  // Destroyed without the lock: closing may take long.
  std::list<std::pair<Key, std::shared_ptr<SharedCheckpoint>>> dropped;
  absl::MutexLock lock(&mutex_);
  for (auto it = kept_.begin(); it != kept_.end();) {
    const auto next = std::next(it);
    if (it->first == key) dropped.splice(dropped.end(), kept_, it);
    it = next;
  }
  kept_.emplace_front(key, std::move(opened));
  const auto num_files = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    size_t sum = 0;
    for (const auto& kept : kept_) {
      sum += kept.second->checkpoint().files().names().size();
    }
    return sum;
  };
  uint64_t going_bytes = 0;  // of those that only the cache holds
  while (kept_.size() > 1 &&
         (kept_.size() > limits_.num_checkpoints ||
          index_bytes_->load() - going_bytes > limits_.index_bytes ||
          num_files() > limits_.num_files)) {
    if (kept_.back().second.use_count() == 1) {
      going_bytes += kept_.back().second->index_bytes();
    }
    dropped.splice(dropped.end(), kept_, std::prev(kept_.end()));
  }
  const uint64_t own_bytes = kept_.front().second->index_bytes();
  const uint64_t left_bytes = index_bytes_->load() - going_bytes;
  if (left_bytes > limits_.index_bytes && left_bytes > own_bytes) {
    dropped.splice(dropped.end(), kept_, kept_.begin());
    return LimitReached(
        {.name = "indices",
         .value = limits_.index_bytes,
         .retry_after_ms = kRetryAfterOpeningMs},
        absl::StrCat("the indices of checkpoints in use have ",
                     left_bytes - own_bytes, " bytes, this one has ", own_bytes,
                     ": more than ", limits_.index_bytes, " in all"));
  }
  return absl::OkStatus();
}

size_t CheckpointCache::num_open() const {
  absl::MutexLock lock(&mutex_);
  return kept_.size();
}

}  // namespace dcp::server
