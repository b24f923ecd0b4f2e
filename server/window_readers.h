// WindowReaders: reads windows of tensors for all streams, each window once for
// all who want it at about the same time. A fixed number of threads read, in
// turn for each stream. Knows no client and no message. Thread-safe; calls
// nobody while it holds its lock.
#ifndef SERVER_WINDOW_READERS_H_
#define SERVER_WINDOW_READERS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/base/bytes.h"
#include "dcp/io/file_system.h"
#include "dcp/io/lane.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "server/checkpoint_cache.h"
#include "server/memory_budget.h"
#include "server/metrics.h"
#include "server/tensor_parts.h"

namespace dcp::server {

// Which elements, as which type.
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

// The bytes of a window. Owners: the readers, the streams that want it, and
// what is on its way to a client.
class Window {
 public:
  const uint64_t num_bytes;

  // Whether it was read or failed; status and bytes are there then and stay.
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  const absl::Status& status() const { return status_; }
  ByteSpan bytes() const { return ByteSpan(data_.get(), num_bytes); }

  // CRC-32C of these bytes. Streams cut a window at the same places, so that of
  // whole pieces of kCrcBytes is found once for all of them.
  uint32_t Crc32c(uint64_t begin, uint64_t length) const;

  Window(WindowKey window_key, uint64_t size)
      : num_bytes(size), key(std::move(window_key)) {}

 private:
  friend class WindowReaders;
  friend class WindowUser;
  struct Batch;

  static constexpr uint64_t kCrcBytes = uint64_t{1} << 20;

  const WindowKey key;
  std::atomic<bool> ready_{false};
  absl::Status status_;
  std::unique_ptr<uint8_t[]> data_;
  // Of the pieces from kCrcBytes * i on, with kKnown; 0 where it is not known.
  static constexpr uint64_t kKnown = uint64_t{1} << 32;
  mutable std::array<std::atomic<uint64_t>, kWindowBytes / kCrcBytes> crcs_{};

  // Guarded by the readers' lock.
  std::vector<class WindowUser*> users;
  std::shared_ptr<Batch> batch;  // that reads it; owners: its windows, a thread
  // While nobody uses it.
  Reservation reservation;
  absl::Time idle_since;
  std::list<std::shared_ptr<Window>>::iterator idle_place;
};

class WindowReaders;

// One stream as the readers see it. Thread-compatible. The memory of what it
// wants and has not let go of is its own to reserve, before it wants it.
class WindowUser {
 public:
  // `wake` is called on any thread when a window is ready.
  WindowUser(WindowReaders& readers, std::function<void()> wake)
      : readers_(readers), wake_(std::move(wake)) {}
  // Lets go of all.
  ~WindowUser();
  WindowUser(const WindowUser&) = delete;
  WindowUser& operator=(const WindowUser&) = delete;

  std::shared_ptr<const Window> Want(const WindowKey& key, uint64_t num_bytes);
  // Of the one that was wanted first, of those that are held; it is ready.
  void LetGo();

 private:
  friend class WindowReaders;

  WindowReaders& readers_;
  const std::function<void()> wake_;
  // Guarded by the readers' lock.
  std::deque<std::shared_ptr<Window>> held_;
  std::deque<std::shared_ptr<Window>> queue_;  // to be read
};

struct WindowReadersOptions {
  int64_t num_readers = 4;
  // That read below one root at a time.
  int64_t num_readers_per_root = 4;
  uint64_t blocks_per_reader = 8;
  // Of windows that nobody wants any more but may want soon.
  uint64_t idle_bytes = 0;
  absl::Duration idle_time = absl::Seconds(10);
};

class WindowReaders {
 public:
  // All must outlive this. The memory of the readers' blocks is kept of
  // `budget`, which has it.
  WindowReaders(FileSystem& fs, MemoryBudget& budget, Metrics& metrics,
                const WindowReadersOptions& options);
  // All users are gone.
  ~WindowReaders();
  WindowReaders(const WindowReaders&) = delete;
  WindowReaders& operator=(const WindowReaders&) = delete;

  // Gives back the memory of windows that nobody wants.
  void DropIdle();

  uint64_t num_idle_bytes() const;

 private:
  friend class WindowUser;
  using WindowPtr = std::shared_ptr<Window>;
  using Windows = std::vector<WindowPtr>;

  WindowPtr Want(WindowUser& user, const WindowKey& key, uint64_t num_bytes);
  // Takes the window from the user; adds it to `unused` when it was the last.
  void Leave(WindowUser& user, const WindowPtr& window, Windows& unused)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LetGo(WindowUser& user, bool all);
  // Takes the window out of the table, unless another one took its place.
  void Forget(const Window& window) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepOrDrop(const Windows& unused);
  std::optional<Reservation> ReserveIdle(uint64_t num_bytes);
  void TakeIdle(absl::Time before, uint64_t keep_bytes, Windows& taken)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enqueue(WindowUser& user, const WindowPtr& window)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void RunReader();
  bool NextBatch(Windows& batch);
  // The user whose turn it is: the first whose root has a reader left.
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

  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  // Wanted, being read, read, or idle.
  absl::flat_hash_map<WindowKey, WindowPtr> windows_ ABSL_GUARDED_BY(mutex_);
  // Users with something to read, in turn.
  std::deque<WindowUser*> turns_ ABSL_GUARDED_BY(mutex_);
  // How many read below each root, by the root's threads.
  absl::flat_hash_map<const TaskQueue*, int64_t> num_reading_
      ABSL_GUARDED_BY(mutex_);
  // Idle windows, the one that was used last at the end.
  std::list<WindowPtr> idle_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_idle_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::jthread> threads_;  // last: they use the rest
};

}  // namespace dcp::server

#endif  // SERVER_WINDOW_READERS_H_
