// SPDX-License-Identifier: Apache-2.0
// WindowReaders: reads windows for all streams. A window that several streams
// request at about the same time is read once. A fixed number of threads read,
// and the streams take turns. Knows neither clients nor messages. Thread-safe;
// makes no calls while holding the lock.
#ifndef SERVER_READING_WINDOW_READERS_H_
#define SERVER_READING_WINDOW_READERS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/base/bytes.h"
#include "dcp/base/steady_time.h"
#include "dcp/base/thread.h"
#include "dcp/io/file_system.h"
#include "dcp/io/lane.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "server/memory/memory_budget.h"
#include "server/process/metrics.h"
#include "server/reading/checkpoint_cache.h"
#include "server/reading/stream_parts.h"

namespace dcp::server {

// Identifies a window: which elements, converted to which type.
struct WindowKey {
  std::shared_ptr<SharedCheckpoint> checkpoint;
  uint32_t entry = 0;
  DType dtype = DType::kFloat32;
  Box box;

  friend bool operator==(const WindowKey&, const WindowKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const WindowKey& key) {
    return H::combine(std::move(h), key.checkpoint.get(), key.entry, key.dtype,
                      key.box.offsets, key.box.sizes);
  }
};

// A window's bytes. Owners: the readers, the streams that use it, and messages
// that gRPC is sending.
class SharedWindow {
 public:
  const uint64_t num_bytes;

  // Whether it was read or failed. From then on status and bytes are valid and
  // do not change.
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  const absl::Status& status() const { return status_; }
  ByteSpan bytes() const { return ByteSpan(data_.get(), num_bytes); }

  // CRC-32C of these bytes. All streams cut a window at the same places, so the
  // CRC of each whole piece (kCrcBytes) is computed once for all of them.
  uint32_t Crc32c(uint64_t begin, uint64_t length) const;

  SharedWindow(WindowKey window_key, uint64_t size)
      : num_bytes(size), key(std::move(window_key)) {}

 private:
  friend class WindowReaders;
  friend class WindowUser;
  struct Batch;

  static constexpr uint64_t kCrcBytes = uint64_t{1} << 20;

  const WindowKey key;
  // Release and acquire: a thread that sees it set sees status and bytes.
  std::atomic<bool> ready_{false};
  absl::Status status_;
  std::unique_ptr<uint8_t[]> data_;
  // CRC of the piece at kCrcBytes * i, with the bit kKnown; 0 if it is not
  // known. Relaxed: the number alone is the message.
  static constexpr uint64_t kKnown = uint64_t{1} << 32;
  mutable std::array<std::atomic<uint64_t>, kWindowBytes / kCrcBytes> crcs_{};

  // Guarded by the readers' lock.
  std::vector<class WindowUser*> users;
  // that reads it; owners: the batch's windows, a thread
  std::shared_ptr<Batch> batch;
  // Set while no stream uses the window.
  Reservation reservation;
  absl::Duration idle_since;  // a time of SteadyNow
  std::list<std::shared_ptr<SharedWindow>>::iterator idle_place;
};

class WindowReaders;

// The interface of one stream to the readers. Thread-compatible. The stream
// must reserve memory for each window before Want and keep it until LetGo.
class WindowUser {
 public:
  // `wake` is called on any thread when a window is ready.
  WindowUser(WindowReaders& readers, std::function<void()> wake)
      : readers_(readers), wake_(std::move(wake)) {}
  // Releases all windows.
  ~WindowUser();
  WindowUser(const WindowUser&) = delete;
  WindowUser& operator=(const WindowUser&) = delete;

  std::shared_ptr<const SharedWindow> Want(const WindowKey& key,
                                           uint64_t num_bytes);
  // Releases the first of the held windows, which must be ready.
  void LetGo();

 private:
  friend class WindowReaders;

  WindowReaders& readers_;
  const std::function<void()> wake_;
  // Guarded by the readers' lock.
  std::deque<std::shared_ptr<SharedWindow>> held_;
  std::deque<std::shared_ptr<SharedWindow>> queue_;  // to be read
};

struct WindowReadersOptions {
  int64_t num_readers = 4;
  // The most that read below one root at a time.
  int64_t num_readers_per_root = 4;
  uint64_t blocks_per_reader = 8;
  // The most that unused windows may hold, in case they are soon requested
  // again.
  uint64_t idle_bytes = 0;
  absl::Duration idle_time = absl::Seconds(10);
};

class WindowReaders {
 public:
  // All must outlive this. The memory of the readers' blocks is taken from
  // `budget` with Keep; it must be available.
  WindowReaders(FileSystem& fs, MemoryBudget& budget, Metrics& metrics,
                const WindowReadersOptions& options);
  // All users must have been destroyed.
  ~WindowReaders();
  // Before the first user wants a window; an error if the system starts no
  // thread for each reader.
  absl::Status Start();
  WindowReaders(const WindowReaders&) = delete;
  WindowReaders& operator=(const WindowReaders&) = delete;

  // Releases the windows that no stream uses, and their memory.
  void DropIdle();

 private:
  friend class WindowUser;
  using WindowPtr = std::shared_ptr<SharedWindow>;
  using Windows = std::vector<WindowPtr>;

  WindowPtr Want(WindowUser& user, const WindowKey& key, uint64_t num_bytes);
  // Removes the window from the user's windows; adds it to `unused` if it was
  // the last user.
  void Leave(WindowUser& user, const WindowPtr& window, Windows& unused)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LetGo(WindowUser& user, bool all);
  // Removes the window from the table, unless another has replaced it there.
  void Forget(const SharedWindow& window) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepOrDrop(const Windows& unused);
  std::optional<Reservation> ReserveIdle(uint64_t num_bytes);
  void TakeIdle(absl::Duration before, uint64_t keep_bytes, Windows& taken)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enqueue(WindowUser& user, const WindowPtr& window)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void RunReader();
  bool NextBatch(Windows& batch);
  // The next user to serve: the first with a free reader for the root.
  std::deque<WindowUser*>::iterator NextTurn()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeBatch(std::deque<WindowUser*>::iterator turn, Windows& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Read(Lane& lane, Windows& batch);
  absl::Status Load(Lane& lane, absl::Span<const WindowPtr> windows,
                    std::stop_token stop);
  void Publish(Windows& batch);

  FileSystem& fs_;
  MemoryBudget& budget_;
  Metrics& metrics_;
  const WindowReadersOptions options_;
  const Reservation blocks_;

  absl::Mutex mutex_;
  SteadyCondVar changed_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  // Requested, being read, ready, or idle windows.
  absl::flat_hash_map<WindowKey, WindowPtr> windows_ ABSL_GUARDED_BY(mutex_);
  // Users with windows to read; they take turns.
  std::deque<WindowUser*> turns_ ABSL_GUARDED_BY(mutex_);
  // Number of readers busy below each root; the key is the root's queue.
  absl::flat_hash_map<const TaskQueue*, int64_t> num_reading_
      ABSL_GUARDED_BY(mutex_);
  // Idle windows, the least recently used first.
  std::list<WindowPtr> idle_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_idle_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Thread> threads_;  // last: they use the other members
};

}  // namespace dcp::server

#endif  // SERVER_READING_WINDOW_READERS_H_
