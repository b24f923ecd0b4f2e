// SPDX-License-Identifier: Apache-2.0
// The life of a window:
//
//   requested by a first user -> in that user's queue -> taken by a reader when
//   it is the user's turn -> read -> ready -> released by the last user -> idle
//   -> dropped
//
// [Note: memory] Each user reserves memory for a window before requesting it,
// so all windows in use never exceed the memory that their users have reserved;
// sharing only reduces the memory. A window that becomes idle needs a separate
// reservation, and is dropped if that is not available at once.
//
// [Note: users that leave] A queued window belongs to all users that requested
// it. When a user leaves, each window in the user's queue moves to the queue of
// another user of that window. A batch without any users is stopped.
#include "server/reading/window_readers.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "dcp/base/check.h"
#include "dcp/base/checksum.h"
#include "dcp/base/error_place.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/pipeline.h"
#include "server/reading/stream_parts.h"

namespace dcp::server {
namespace {

// Small windows are read together, up to the bytes of one large window and the
// number that one reader can have in flight.
constexpr uint64_t kBatchBytes = kWindowBytes;
constexpr size_t kBatchWindows = 64;

// Receives the elements directly in the window's memory.
class DirectSink final : public TensorSink {
 public:
  explicit DirectSink(MutableByteSpan bytes) : bytes_(bytes) {}
  MutableByteSpan DirectSpan() override { return bytes_; }
  absl::Status Place(uint64_t offset, ByteSpan src) override {
    std::memcpy(bytes_.data() + offset, src.data(), src.size());
    return absl::OkStatus();
  }
  absl::Status Flush() override { return absl::OkStatus(); }

 private:
  const MutableByteSpan bytes_;
};

}  // namespace

struct SharedWindow::Batch {
  std::stop_source stop;
  size_t num_wanted = 0;  // windows that have users
};

uint32_t SharedWindow::Crc32c(uint64_t begin, uint64_t length) const {
  const ByteSpan piece = bytes().subspan(begin, length);
  const uint64_t index = begin / kCrcBytes;
  if (begin % kCrcBytes != 0 || length == 0 || index >= crcs_.size() ||
      length != std::min(kCrcBytes, num_bytes - begin)) {
    return ExtendCrc32c(0, piece);
  }
  // Two threads may compute it at the same time, with the same result.
  uint64_t crc = crcs_[index].load(std::memory_order_relaxed);
  if (crc == 0) {
    crc = kKnown | ExtendCrc32c(0, piece);
    crcs_[index].store(crc, std::memory_order_relaxed);
  }
  return static_cast<uint32_t>(crc);
}

WindowUser::~WindowUser() { readers_.LetGo(*this, /*all=*/true); }

std::shared_ptr<const SharedWindow> WindowUser::Want(const WindowKey& key,
                                                     uint64_t num_bytes) {
  return readers_.Want(*this, key, num_bytes);
}

void WindowUser::LetGo() { readers_.LetGo(*this, /*all=*/false); }

WindowReaders::WindowReaders(FileSystem& fs, MemoryBudget& budget,
                             Metrics& metrics,
                             const WindowReadersOptions& options)
    : fs_(fs),
      budget_(budget),
      metrics_(metrics),
      options_(options),
      blocks_(budget.Keep(static_cast<uint64_t>(options.num_readers) *
                          options.blocks_per_reader * kBlockBytes)) {}

absl::Status WindowReaders::Start() {
  for (int64_t i = 0; i < options_.num_readers; ++i) {
    DCP_ASSIGN_OR_RETURN(Thread thread, Thread::Start([this] { RunReader(); }));
    threads_.push_back(std::move(thread));
  }
  return absl::OkStatus();
}

WindowReaders::~WindowReaders() {
  {
    absl::MutexLock lock(&mutex_);
    DCP_CHECK(turns_.empty());
    ending_ = true;
    changed_.SignalAll();
  }
  threads_.clear();  // joins
  DropIdle();
}

WindowReaders::WindowPtr WindowReaders::Want(WindowUser& user,
                                             const WindowKey& key,
                                             uint64_t num_bytes) {
  Reservation freed;  // returned without the lock
  WindowPtr window;
  bool shared = false;
  {
    absl::MutexLock lock(&mutex_);
    WindowPtr& known = windows_[key];
    // A window in a batch that is being stopped will not be read.
    shared = known != nullptr &&
             (known->batch == nullptr || !known->batch->stop.stop_requested());
    if (!shared) known = std::make_shared<SharedWindow>(key, num_bytes);
    window = known;
    if (window->users.empty() && window->batch != nullptr) {
      ++window->batch->num_wanted;
    }
    if (window->reservation.bytes() > 0) {
      freed = std::move(window->reservation);
      num_idle_bytes_ -= window->num_bytes;
      idle_.erase(window->idle_place);
    }
    window->users.push_back(&user);
    user.held_.push_back(window);
    if (!shared) Enqueue(user, window);
  }
  if (shared) metrics_.CountBytes("shared", num_bytes);
  return window;
}

void WindowReaders::Enqueue(WindowUser& user, const WindowPtr& window) {
  if (user.queue_.empty()) turns_.push_back(&user);
  user.queue_.push_back(window);
  changed_.Signal();
}

void WindowReaders::LetGo(WindowUser& user, bool all) {
  Windows unused;
  {
    absl::MutexLock lock(&mutex_);
    while (!user.held_.empty()) {
      const WindowPtr window = std::move(user.held_.front());
      user.held_.pop_front();
      Leave(user, window, unused);
      if (!all) break;
    }
    if (all) {
      // See [Note: users that leave].
      std::erase(turns_, &user);
      for (const WindowPtr& window : user.queue_) {
        if (!window->users.empty()) Enqueue(*window->users[0], window);
      }
      user.queue_.clear();
    }
  }
  KeepOrDrop(unused);
}

void WindowReaders::Leave(WindowUser& user, const WindowPtr& window,
                          Windows& unused) {
  // Erases only one, because a user may have requested the window twice.
  window->users.erase(
      std::find(window->users.begin(), window->users.end(), &user));
  if (!window->users.empty()) return;
  if (window->batch != nullptr) {
    // The reader drops windows without users after the batch.
    if (--window->batch->num_wanted == 0) window->batch->stop.request_stop();
  } else if (window->ready()) {
    unused.push_back(window);
  } else {
    // It is in the queue of this user, which is being destroyed, so nobody else
    // may find it.
    Forget(*window);
  }
}

void WindowReaders::Forget(const SharedWindow& window) {
  const auto it = windows_.find(window.key);
  if (it != windows_.end() && it->second.get() == &window) windows_.erase(it);
}

// See [Note: memory].
void WindowReaders::KeepOrDrop(const Windows& unused) {
  Windows garbage;
  for (const WindowPtr& window : unused) {
    std::optional<Reservation> reservation;
    if (window->ready() && window->status().ok() &&
        window->num_bytes <= options_.idle_bytes) {
      reservation = ReserveIdle(window->num_bytes);
    }
    absl::MutexLock lock(&mutex_);
    // It was requested again, or another thread has handled it.
    if (!window->users.empty() || window->reservation.bytes() > 0) continue;
    const auto it = windows_.find(window->key);
    if (it == windows_.end() || it->second != window) continue;
    if (!reservation.has_value()) {
      Forget(*window);
      continue;
    }
    window->reservation = *std::move(reservation);
    window->idle_since = SteadyNow();
    window->idle_place = idle_.insert(idle_.end(), window);
    num_idle_bytes_ += window->num_bytes;
    TakeIdle(absl::ZeroDuration(), options_.idle_bytes, garbage);
    if (idle_.size() == 1) changed_.Signal();  // it begins to expire
  }
}

// Reserves memory only if it is available at once.
std::optional<Reservation> WindowReaders::ReserveIdle(uint64_t num_bytes) {
  // Owners: this call, and the budget until it has called or destroyed the
  // callback.
  struct Answer {
    absl::Mutex mutex;
    bool late ABSL_GUARDED_BY(mutex) = false;
    std::optional<Reservation> reservation ABSL_GUARDED_BY(mutex);
  };
  auto answer = std::make_shared<Answer>();
  const absl::StatusOr<uint64_t> ticket = budget_.Request(
      MemoryUse::kCall, num_bytes, [answer](Reservation reservation) {
        absl::MutexLock lock(&answer->mutex);
        if (answer->late) return;
        answer->reservation = std::move(reservation);
      });
  if (!ticket.ok()) return std::nullopt;
  std::optional<Reservation> reservation;
  {
    absl::MutexLock lock(&answer->mutex);
    answer->late = true;
    reservation = std::move(answer->reservation);
    answer->reservation.reset();
  }
  if (!reservation.has_value()) budget_.Cancel(*ticket);
  return reservation;
}

// Takes windows that have been idle since before `before`, and then the oldest
// until at most `keep_bytes` are left.
void WindowReaders::TakeIdle(absl::Duration before, uint64_t keep_bytes,
                             Windows& taken) {
  while (!idle_.empty() &&
         (idle_.front()->idle_since < before || num_idle_bytes_ > keep_bytes)) {
    const WindowPtr window = idle_.front();
    idle_.pop_front();
    num_idle_bytes_ -= window->num_bytes;
    windows_.erase(window->key);
    taken.push_back(window);
  }
}

void WindowReaders::DropIdle() {
  Windows taken;  // freed without the lock
  absl::MutexLock lock(&mutex_);
  TakeIdle(absl::InfiniteDuration(), 0, taken);
}

void WindowReaders::RunReader() {
  BlockPool pool(options_.blocks_per_reader);
  Lane lane{.index = 0, .pool = pool, .queue = nullptr};
  Windows batch;
  while (NextBatch(batch)) {
    Read(lane, batch);
    Publish(batch);
  }
}

// Waits for windows to read; returns false at the end.
bool WindowReaders::NextBatch(Windows& batch) {
  while (true) {
    Windows taken;  // freed without the lock
    absl::MutexLock lock(&mutex_);
    while (NextTurn() == turns_.end() && !ending_ && taken.empty()) {
      if (idle_.empty()) {
        changed_.Wait(&mutex_);
        continue;
      }
      const absl::Duration now = SteadyNow();
      const absl::Duration end = idle_.front()->idle_since + options_.idle_time;
      if (end <= now) {
        TakeIdle(now - options_.idle_time + absl::Nanoseconds(1),
                 options_.idle_bytes, taken);
      } else {
        changed_.WaitUntil(&mutex_, end);
      }
    }
    const auto turn = NextTurn();
    if (turn == turns_.end() && ending_) return false;
    if (turn == turns_.end()) continue;
    TakeBatch(turn, batch);
    return true;
  }
}

std::deque<WindowUser*>::iterator WindowReaders::NextTurn() {
  return std::find_if(
      turns_.begin(), turns_.end(),
      [this](const WindowUser* user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        const TaskQueue& root = user->queue_.front()->key.checkpoint->tasks();
        const auto found = num_reading_.find(&root);
        return found == num_reading_.end() ||
               found->second < options_.num_readers_per_root;
      });
}

// The batch belongs to one root, because a user reads one checkpoint.
void WindowReaders::TakeBatch(std::deque<WindowUser*>::iterator turn,
                              Windows& batch) {
  WindowUser& user = **turn;
  turns_.erase(turn);
  auto made = std::make_shared<SharedWindow::Batch>();
  uint64_t num_bytes = 0;
  while (!user.queue_.empty() && batch.size() < kBatchWindows &&
         (batch.empty() ||
          num_bytes + user.queue_.front()->num_bytes <= kBatchBytes)) {
    batch.push_back(std::move(user.queue_.front()));
    user.queue_.pop_front();
    num_bytes += batch.back()->num_bytes;
    batch.back()->batch = made;
  }
  made->num_wanted = batch.size();
  ++num_reading_[&batch[0]->key.checkpoint->tasks()];
  if (!user.queue_.empty()) turns_.push_back(&user);
}

void WindowReaders::Read(Lane& lane, Windows& batch) {
  for (const WindowPtr& window : batch) {
    // Not initialized, because a load writes each byte.
    window->data_.reset(new uint8_t[window->num_bytes]);
  }
  const std::stop_token stop = batch[0]->batch->stop.get_token();
  absl::Status status = Load(lane, batch, stop);
  if (status.ok() || batch.size() == 1) {
    batch[0]->status_ = std::move(status);
    return;
  }
  // Reads the windows one by one, to find out which one fails.
  for (const WindowPtr& window : batch) {
    window->status_ = Load(lane, absl::MakeConstSpan(&window, 1), stop);
  }
}

absl::Status WindowReaders::Load(Lane& lane,
                                 absl::Span<const WindowPtr> windows,
                                 std::stop_token stop) {
  if (lane.queue == nullptr) {
    DCP_ASSIGN_OR_RETURN(lane.queue,
                         fs_.NewQueue(2 * kQueueDepth, lane.pool.memory()));
  }
  SharedCheckpoint& shared = *windows[0]->key.checkpoint;
  std::deque<DirectSink> sinks;
  std::vector<LoadTensor> tensors;
  for (const WindowPtr& window : windows) {
    const WindowKey& key = window->key;
    const CheckpointEntry& entry = shared.checkpoint().entries()[key.entry];
    sinks.emplace_back(MutableByteSpan(window->data_.get(), window->num_bytes));
    tensors.push_back({.fqn = entry.fqn,
                       .dtype = key.dtype,
                       .shape = entry.tensor()->shape,
                       .box = key.box,
                       .sink = &sinks.back()});
  }
  TransferStats stats;
  const absl::Status status =
      dcp::Load(fs_, shared.mutable_checkpoint(), tensors,
                {.lane = &lane,
                 .stop = std::move(stop),
                 .stats = &stats,
                 // Many windows of one checkpoint are loaded.
                 .check_ties = false});
  metrics_.CountBytes("read", stats.bytes_read.load());
  if (status.ok()) return status;
  lane.queue = nullptr;  // after an error the state is unknown
  return WithPlace(
      Annotate(status, tensors[0].fqn),
      {.path = shared.checkpoint().path(), .tensor = tensors[0].fqn});
}

// Wakes the users of the windows, and releases the batch.
void WindowReaders::Publish(Windows& batch) {
  std::vector<std::function<void()>> wakes;
  Windows unused;
  {
    absl::MutexLock lock(&mutex_);
    const auto reading = num_reading_.find(&batch[0]->key.checkpoint->tasks());
    if (--reading->second == 0) num_reading_.erase(reading);
    if (!turns_.empty()) changed_.Signal();  // the root has a free reader again
    for (WindowPtr& window : batch) {
      window->batch = nullptr;
      window->ready_.store(true, std::memory_order_release);
      for (const WindowUser* user : window->users) {
        wakes.push_back(user->wake_);
      }
      // The next request reads it again.
      if (!window->status().ok()) Forget(*window);
      // Destroyed later, without the lock.
      if (window->users.empty()) unused.push_back(std::move(window));
    }
    batch.clear();
  }
  KeepOrDrop(unused);
  unused.clear();
  for (const std::function<void()>& wake : wakes) wake();
}

}  // namespace dcp::server
