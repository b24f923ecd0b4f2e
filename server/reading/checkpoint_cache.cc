#include "server/reading/checkpoint_cache.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/error_place.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/open/dcp_opener.h"
#include "dcp/checkpoint/open/model_files.h"
#include "proto/rpc_status.h"
#include "server/access/disk_timeout.h"
#include "server/process/refusal.h"

namespace dcp::server {
namespace {

// Attempts to open a checkpoint that is replaced while it is opened.
constexpr int kMaxOpens = 3;

// For a client that found the index memory in use or a checkpoint being
// replaced; neither takes long.
constexpr int64_t kRetryAfterMs = 1000;

// Memory of an entry (sizeof(CheckpointEntry) and its slot in the table of
// names) and of a chunk (a Box and a ChunkLocation), rounded up.
constexpr uint64_t kBytesPerEntry = sizeof(CheckpointEntry) + 64;
constexpr uint64_t kBytesPerChunk = sizeof(Box) + sizeof(ChunkLocation) + 32;

uint64_t IndexBytes(const Checkpoint& checkpoint) {
  uint64_t num_bytes = 0;
  for (const CheckpointEntry& entry : checkpoint.entries()) {
    num_bytes += kBytesPerEntry + 2 * entry.fqn.size();
    if (entry.tensor() != nullptr) {
      num_bytes += entry.tensor()->boxes.size() * kBytesPerChunk;
    }
  }
  return num_bytes;
}

// Whether a file in a directory affects which files belong to a model.
bool IsPartOfModel(absl::string_view name) {
  return absl::EndsWith(name, ".safetensors") || absl::EndsWith(name, ".bin") ||
         IsWeightIndexName(name);
}

// Appends text that changes when the file at `path` is replaced or written to.
absl::Status AddFile(RootedFileSystem& fs, const std::string& path,
                     absl::string_view name, std::string& text) {
  DCP_ASSIGN_OR_RETURN(const FileInfo info, fs.StatTarget(path));
  absl::StrAppend(&text, name, "\n", info.device, " ", info.inode, " ",
                  info.size, " ", info.modified_ns, "\n");
  return absl::OkStatus();
}

// The name of a DCP checkpoint's index, found as Checkpoint::Open finds it;
// empty if there is none.
absl::StatusOr<std::string> DcpIndexName(FileSystem& fs,
                                         const std::string& path,
                                         int64_t rank) {
  for (const std::string& name :
       {std::string(kDcpMetadataName),
        RankMetadataName(std::max<int64_t>(rank, 0))}) {
    const absl::Status status = fs.Stat(JoinPath(path, name)).status();
    if (status.ok()) return name;
    if (!absl::IsNotFound(status)) return status;
  }
  return std::string();
}

// Text that changes when the index is replaced: for DCP it describes one file,
// for shards of safetensors or .bin the listing of the directory.
absl::StatusOr<std::string> IndexState(RootedFileSystem& fs,
                                       const std::string& path, int64_t rank,
                                       const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const FileInfo info, fs.Stat(path));
  std::string text = absl::StrCat(rank, "\n");
  if (info.kind != FileKind::kDirectory) {
    DCP_RETURN_IF_ERROR(AddFile(fs, path, "", text));
    return text;
  }
  DCP_ASSIGN_OR_RETURN(const std::string name, DcpIndexName(fs, path, rank));
  if (!name.empty()) {
    DCP_RETURN_IF_ERROR(AddFile(fs, JoinPath(path, name), name, text));
    return text;
  }
  DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                       fs.List(path));
  for (const DirectoryEntry& entry : entries) {
    if (!IsPartOfModel(entry.name)) continue;
    DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
    DCP_RETURN_IF_ERROR(
        AddFile(fs, JoinPath(path, entry.name), entry.name, text));
  }
  return text;
}

// The state of the files that the index names.
struct FilesState {
  std::string text;  // empty if a file was replaced after it was opened
  std::vector<std::optional<uint64_t>> sizes;
};

absl::StatusOr<FilesState> LookAtFiles(RootedFileSystem& fs,
                                       const Checkpoint& checkpoint,
                                       const std::stop_token& stop) {
  const SourceFiles& files = checkpoint.files();
  FilesState state;
  std::string text;
  for (uint32_t i = 0; i < files.names().size(); ++i) {
    DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
    const absl::StatusOr<FileInfo> info = fs.StatTarget(files.PathOf(i));
    // A checkpoint that lacks a file can still be inspected.
    if (absl::IsNotFound(info.status())) {
      absl::StrAppend(&text, "none\n");
      state.sizes.push_back(std::nullopt);
      continue;
    }
    DCP_RETURN_IF_ERROR(info.status());
    const std::optional<FileInfo> opened = files.OpenedAs(i);
    if (opened.has_value() && MayHaveChanged(*opened, *info)) {
      return FilesState();
    }
    absl::StrAppend(&text, info->device, " ", info->inode, " ", info->size, " ",
                    info->modified_ns, "\n");
    state.sizes.push_back(info->size);
  }
  state.text = absl::StrCat("files ", files.names().size(), "\n", text);
  return state;
}

std::string EtagOf(absl::string_view index_state,
                   absl::string_view files_state) {
  return absl::StrFormat(
      "%016x", Digest64Of(AsBytes(absl::StrCat(index_state, files_state))));
}

}  // namespace

std::shared_ptr<SharedCheckpoint> SharedCheckpoint::Make(
    std::shared_ptr<TaskQueue> tasks, std::unique_ptr<RootedFileSystem> fs,
    std::unique_ptr<Checkpoint> checkpoint, CheckpointState state, int64_t rank,
    std::shared_ptr<std::atomic<uint64_t>> index_bytes) {
  const auto close = [tasks](SharedCheckpoint* shared) {
    // If the queue takes no more tasks, the checkpoint is closed here.
    std::unique_ptr<SharedCheckpoint> last(shared);
    tasks->Post([last = std::move(last)] {}).IgnoreError();
  };
  return std::shared_ptr<SharedCheckpoint>(
      new SharedCheckpoint(std::move(tasks), std::move(fs),
                           std::move(checkpoint), std::move(state), rank,
                           std::move(index_bytes)),
      close);
}

SharedCheckpoint::SharedCheckpoint(
    std::shared_ptr<TaskQueue> tasks, std::unique_ptr<RootedFileSystem> fs,
    std::unique_ptr<Checkpoint> checkpoint, CheckpointState state, int64_t rank,
    std::shared_ptr<std::atomic<uint64_t>> index_bytes)
    : tasks_(std::move(tasks)),
      fs_(std::move(fs)),
      checkpoint_(std::move(checkpoint)),
      state_(std::move(state)),
      rank_(rank),
      index_bytes_(IndexBytes(*checkpoint_)),
      all_index_bytes_(std::move(index_bytes)),
      located_(checkpoint_->entries().size()) {
  all_index_bytes_->fetch_add(index_bytes_);
}

SharedCheckpoint::~SharedCheckpoint() {
  all_index_bytes_->fetch_sub(index_bytes_);
}

absl::StatusOr<bool> SharedCheckpoint::IsCurrent(
    const std::stop_token& stop) const {
  DCP_ASSIGN_OR_RETURN(const std::string index,
                       IndexState(*fs_, checkpoint_->path(), rank_, stop));
  DCP_ASSIGN_OR_RETURN(const FilesState files,
                       LookAtFiles(*fs_, *checkpoint_, stop));
  return !files.text.empty() && EtagOf(index, files.text) == state_.etag;
}

bool SharedCheckpoint::AreLocated(const std::vector<uint32_t>& entries) const {
  return std::all_of(entries.begin(), entries.end(),
                     [this](uint32_t entry) { return located_[entry]; });
}

void SharedCheckpoint::Locate(std::vector<uint32_t> entries, Located done) {
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
  const absl::Status posted =
      tasks_->Post([self = shared_from_this()] { self->ServeRequests(); });
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
  // The damage of some entries must not fail the requests for others.
  for (size_t i = 0; i < requests.size(); ++i) {
    results[i] = WithPlace(checkpoint_->Locate(requests[i].entries),
                           {.path = checkpoint_->path()});
  }
  return results;
}

// A call that waits for a checkpoint.
struct CheckpointCache::Waiter {
  Waiter(const Client& the_client, const SourceSpec& the_source,
         std::shared_ptr<Answer> the_answer)
      : client(the_client), source(the_source), answer(std::move(the_answer)) {}

  const Client client;
  const SourceSpec source;
  const std::shared_ptr<Answer> answer;  // owners: this, and the alarm
  // Guarded by the cache's mutex, as is the next member.
  bool is_gone = false;
  OpeningPtr opening;  // set when it joins
  // Declared last: its destructor waits for Leave, so it must not run under the
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

void CheckpointCache::Open(const Client& client, const SourceSpec& source,
                           std::stop_token stop, Opened opened) {
  const auto waiter = std::make_shared<Waiter>(
      client, source,
      Answer::Start(limits_.disk_timeout,
                    DiskTimeoutError(client, source.path, limits_.disk_timeout),
                    std::move(opened)));
  waiter->on_stop.emplace(std::move(stop),
                          [this, &waiter = *waiter] { Leave(waiter); });
  const absl::Status posted =
      threads_.QueueOf(client, source.path)->Post([this, waiter] {
        OpenOnThread(waiter);
      });
  if (!posted.ok()) {
    waiter->answer->Give(WithRetryAfter(posted, kRetryAfterMs));
  }
}

void CheckpointCache::OpenOnThread(const WaiterPtr& waiter) {
  if (waiter->answer->given()) return;  // the timeout came before its turn
  const std::string& asked = waiter->source.path;
  const absl::StatusOr<std::string> path = waiter->client.CheckRead(asked);
  if (!path.ok()) {
    return waiter->answer->Give(WithPlace(path.status(), {.path = asked}));
  }
  const Key key{.path = *path,
                .rank = waiter->source.open.rank,
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
  while (const WaiterPtr next = NextOf(key, opening, stop)) {
    // All but the first waiter usually find the checkpoint open.
    absl::StatusOr<std::shared_ptr<SharedCheckpoint>> found =
        Find(next->client, key, stop);
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

CheckpointCache::WaiterPtr CheckpointCache::NextOf(const Key& key,
                                                   const OpeningPtr& opening,
                                                   std::stop_token& stop) {
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

std::shared_ptr<SharedCheckpoint> CheckpointCache::Kept(const Key& key) {
  absl::MutexLock lock(&mutex_);
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    if (it->first != key) continue;
    kept_.splice(kept_.begin(), kept_, it);
    return it->second;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<SharedCheckpoint>> CheckpointCache::Find(
    const Client& client, const Key& key, const std::stop_token& stop) {
  const ErrorPlace place{.path = key.path};
  std::shared_ptr<SharedCheckpoint> kept = Kept(key);
  if (kept != nullptr) {
    const absl::StatusOr<bool> current = kept->IsCurrent(stop);
    if (current.ok() && *current) return kept;
    kept = nullptr;
  }
  for (int i = 0; i < kMaxOpens; ++i) {
    absl::StatusOr<std::shared_ptr<SharedCheckpoint>> opened =
        OpenAnew(client, key, stop);
    if (!opened.ok()) return WithPlace(opened.status(), place);
    if (*opened != nullptr) return opened;
  }
  return WithRetryAfter(
      WithPlace(absl::UnavailableError(
                    absl::StrCat(key.path, " is being replaced: try again")),
                place),
      kRetryAfterMs);
}

// Null if the checkpoint was replaced or written to while it was opened.
absl::StatusOr<std::shared_ptr<SharedCheckpoint>> CheckpointCache::OpenAnew(
    const Client& client, const Key& key, const std::stop_token& stop) {
  auto fs = std::make_unique<RootedFileSystem>(fs_, client);
  DCP_ASSIGN_OR_RETURN(const std::string before,
                       IndexState(*fs, key.path, key.rank, stop));
  DCP_ASSIGN_OR_RETURN(
      std::unique_ptr<Checkpoint> checkpoint,
      Checkpoint::Open(
          *fs, key.path,
          {.rank = key.rank, .locate_memory_bytes = kMinMemoryBytes}, stop));
  DCP_ASSIGN_OR_RETURN(FilesState files, LookAtFiles(*fs, *checkpoint, stop));
  DCP_ASSIGN_OR_RETURN(const std::string now,
                       IndexState(*fs, key.path, key.rank, stop));
  if (now != before || files.text.empty()) {
    return std::shared_ptr<SharedCheckpoint>();
  }
  const std::shared_ptr<SharedCheckpoint> opened = SharedCheckpoint::Make(
      threads_.QueueOf(key.path), std::move(fs), std::move(checkpoint),
      {.etag = EtagOf(now, files.text), .file_sizes = std::move(files.sizes)},
      key.rank, index_bytes_);
  DCP_RETURN_IF_ERROR(Keep(key, opened));
  return opened;
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
         .retry_after_ms = kRetryAfterMs},
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
