// SPDX-License-Identifier: Apache-2.0

#include "server/reading/window_readers.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "dcp/base/checksum.h"
#include "dcp/base/error_place.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/hooked_file_system.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kReaderMiB = uint64_t{1} << 20;

// Counts a stream's wake-ups, and waits for windows.
class Waker {
 public:
  std::function<void()> wake() {
    return [this] {
      absl::MutexLock lock(&mutex_);
      changed_.SignalAll();
    };
  }
  void WaitFor(const SharedWindow& window) {
    absl::MutexLock lock(&mutex_);
    while (!window.ready()) changed_.Wait(&mutex_);
  }

 private:
  absl::Mutex mutex_;
  absl::CondVar changed_;
};

class WindowReadersTest : public ::testing::Test {
 protected:
  WindowReadersTest()
      : fs_(NewPosixFileSystem()),
        tasks_(
            std::make_shared<TaskQueue>(TaskQueue::Limits{.max_waiting = 100})),
        tensor_("w", DType::kFloat32, {1024, 256}) {
    SampleState state;
    state.Add(tensor_);
    SingleProcessCoordinator coordinator;
    path_ = dir_.Join("checkpoint");
    EXPECT_OK(Save(*fs_, path_, state.state(), coordinator, {}));
    shared_ = Open(*fs_, tasks_);
  }

  // Data that is dropped from now on is closed at once.
  ~WindowReadersTest() override { tasks_->Stop(); }

  std::shared_ptr<SharedCheckpoint> Open(
      FileSystem& fs, const std::shared_ptr<TaskQueue>& tasks) const {
    absl::StatusOr<std::unique_ptr<Checkpoint>> opened =
        Checkpoint::Open(fs, path_, OpenOptions());
    EXPECT_OK(opened);
    EXPECT_OK((*opened)->LocateAll());
    return SharedCheckpoint::Make(
        tasks,
        std::make_unique<RootedFileSystem>(
            fs,
            Client("me", {{.path = dir_.path(), .real_path = dir_.path()}})),
        *std::move(opened), {.etag = "etag", .file_sizes = {}}, OpenOptions(),
        std::make_shared<std::atomic<uint64_t>>(0));
  }

  std::unique_ptr<WindowReaders> NewReaders(
      uint64_t idle_bytes, absl::Duration idle_time = absl::Hours(1),
      int64_t num_per_root = 2) {
    auto readers = std::make_unique<WindowReaders>(
        *fs_, budget_, metrics_,
        WindowReadersOptions{.num_readers = 2,
                             .num_readers_per_root = num_per_root,
                             .blocks_per_reader = 4,
                             .idle_bytes = idle_bytes,
                             .idle_time = idle_time});
    EXPECT_OK(readers->Start());
    return readers;
  }

  WindowKey Rows(int64_t first, int64_t num) const {
    return {.checkpoint = shared_,
            .entry = 0,
            .dtype = DType::kFloat32,
            .box = {{first, 0}, {num, 256}}};
  }
  std::string BytesOf(int64_t first, int64_t num) const {
    return tensor_.bytes.substr(static_cast<size_t>(first) * 1024,
                                static_cast<size_t>(num) * 1024);
  }

  const TempDir dir_;
  const std::unique_ptr<FileSystem> fs_;
  const std::shared_ptr<TaskQueue> tasks_;
  MemoryBudget budget_{256 * kReaderMiB};
  Metrics metrics_;
  const SampleTensor tensor_;
  std::string path_;
  std::shared_ptr<SharedCheckpoint> shared_;
  Waker waker_;
};

TEST_F(WindowReadersTest, ReadsRequestedWindows) {
  const auto readers = NewReaders(0);
  WindowUser user(*readers, waker_.wake());
  std::vector<std::shared_ptr<const SharedWindow>> windows;
  for (int64_t row = 0; row < 1000; row += 7) {
    windows.push_back(user.Want(Rows(row, 7), 7 * 1024));
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    waker_.WaitFor(*windows[i]);
    ASSERT_OK(windows[i]->status());
    EXPECT_EQ(AsText(windows[i]->bytes()),
              BytesOf(static_cast<int64_t>(i) * 7, 7));
  }
}

TEST_F(WindowReadersTest, WindowsComputeChecksumsOfAnyPiece) {
  const auto readers = NewReaders(0);
  WindowUser user(*readers, waker_.wake());
  for (const int64_t num_rows : {1024, 100}) {
    const auto num_bytes = static_cast<uint64_t>(num_rows) * 1024;
    const auto window = user.Want(Rows(0, num_rows), num_bytes);
    waker_.WaitFor(*window);
    // The CRC for a whole window is remembered and must not be returned for a
    // part.
    for (int i = 0; i < 2; ++i) {
      for (const uint64_t begin : {uint64_t{0}, uint64_t{1000}}) {
        for (const uint64_t left_out :
             {uint64_t{0}, uint64_t{1}, uint64_t{5000}}) {
          const uint64_t length = num_bytes - begin - left_out;
          EXPECT_EQ(window->Crc32c(begin, length),
                    ExtendCrc32c(0, window->bytes().subspan(begin, length)));
        }
      }
      EXPECT_EQ(window->Crc32c(0, 0), 0u);
    }
  }
}

TEST_F(WindowReadersTest, UsersShareReadyAndPendingWindows) {
  const auto readers = NewReaders(0);
  WindowUser first(*readers, waker_.wake());
  WindowUser second(*readers, waker_.wake());
  const auto a = first.Want(Rows(0, 512), 512 * 1024);
  const auto b = second.Want(Rows(0, 512), 512 * 1024);
  EXPECT_EQ(a, b);
  waker_.WaitFor(*a);
  WindowUser third(*readers, waker_.wake());
  EXPECT_EQ(third.Want(Rows(0, 512), 512 * 1024), a);
  // Other rows are another window.
  EXPECT_NE(third.Want(Rows(0, 511), 511 * 1024), a);
}

TEST_F(WindowReadersTest, KeepsIdleWindowsWithinTheLimit) {
  const auto readers = NewReaders(2 * kReaderMiB);
  const uint64_t readers_bytes = 2 * 4 * kBlockBytes;
  std::weak_ptr<const SharedWindow> oldest;
  std::weak_ptr<const SharedWindow> newest;
  {
    WindowUser user(*readers, waker_.wake());
    for (int64_t i = 0; i < 6; ++i) {
      const auto window = user.Want(Rows(100 * i, 512), 512 * 1024);
      waker_.WaitFor(*window);
      if (i == 0) oldest = window;
      newest = window;
      user.LetGo();
    }
  }
  EXPECT_EQ(budget_.used_bytes(), readers_bytes + 2 * kReaderMiB);
  EXPECT_TRUE(oldest.expired());
  EXPECT_FALSE(newest.expired());
  {
    WindowUser user(*readers, waker_.wake());
    const auto again = user.Want(Rows(500, 512), 512 * 1024);
    EXPECT_EQ(again, newest.lock());
    EXPECT_TRUE(again->ready());
    // The user's own memory holds this window now.
    EXPECT_EQ(budget_.used_bytes(), readers_bytes + 3 * kReaderMiB / 2);
  }
  readers->DropIdle();
  EXPECT_TRUE(newest.expired());
  EXPECT_EQ(budget_.used_bytes(), readers_bytes);
}

TEST_F(WindowReadersTest, IdleWindowsYieldMemory) {
  const auto readers = NewReaders(100 * kReaderMiB);
  WindowUser user(*readers, waker_.wake());
  std::weak_ptr<const SharedWindow> window;
  {
    const auto wanted = user.Want(Rows(0, 512), 512 * 1024);
    waker_.WaitFor(*wanted);
    window = wanted;
  }
  Reservation all;
  ASSERT_OK(budget_.Request(
      MemoryUse::kCall, budget_.limit_bytes() - budget_.used_bytes(),
      [&](Reservation memory) { all = std::move(memory); }));
  user.LetGo();
  EXPECT_EQ(budget_.num_waiting(), 0u);
  // The window was not kept.
  EXPECT_NE(user.Want(Rows(0, 512), 512 * 1024), window.lock());
}

// A hanging file system leaves a reader for the other root.
TEST_F(WindowReadersTest, RootsDoNotWaitForEachOther) {
  HookedFileSystem hung_fs;
  const auto tasks =
      std::make_shared<TaskQueue>(TaskQueue::Limits{.max_waiting = 100});
  const auto hung = Open(hung_fs, tasks);
  absl::Notification answers;
  hung_fs.SetHook([&](absl::string_view operation, absl::string_view) {
    if (operation == "StatFile") answers.WaitForNotification();
  });
  const auto readers = NewReaders(0, absl::Hours(1), /*num_per_root=*/1);
  std::vector<std::unique_ptr<WindowUser>> users;
  std::vector<std::shared_ptr<const SharedWindow>> windows;
  for (int64_t i = 0; i < 4; ++i) {
    users.push_back(std::make_unique<WindowUser>(*readers, waker_.wake()));
    WindowKey key = Rows(100 * i, 100);
    key.checkpoint = hung;
    windows.push_back(users.back()->Want(key, 100 * 1024));
  }
  WindowUser other(*readers, waker_.wake());
  const auto sound = other.Want(Rows(0, 100), 100 * 1024);
  waker_.WaitFor(*sound);
  EXPECT_OK(sound->status());
  EXPECT_FALSE(windows[0]->ready());
  answers.Notify();
  for (const auto& window : windows) {
    waker_.WaitFor(*window);
    EXPECT_OK(window->status());
  }
  tasks->Stop();
}

TEST_F(WindowReadersTest, IdleWindowsExpire) {
  const auto readers = NewReaders(100 * kReaderMiB, absl::Milliseconds(1));
  WindowUser user(*readers, waker_.wake());
  std::weak_ptr<const SharedWindow> window;
  {
    const auto wanted = user.Want(Rows(0, 512), 512 * 1024);
    waker_.WaitFor(*wanted);
    window = wanted;
  }
  user.LetGo();
  while (!window.expired()) std::this_thread::yield();
}

TEST_F(WindowReadersTest, LeavingUsersDoNotDisturbOthers) {
  const auto readers = NewReaders(0);
  for (int round = 0; round < 10; ++round) {
    auto leaving = std::make_unique<WindowUser>(*readers, waker_.wake());
    WindowUser staying(*readers, waker_.wake());
    std::vector<std::shared_ptr<const SharedWindow>> windows;
    for (int64_t i = 0; i < 20; ++i) {
      const WindowKey key = Rows(i * 50, 50);
      leaving->Want(key, 50 * 1024);
      if (i % 2 == 0) windows.push_back(staying.Want(key, 50 * 1024));
    }
    leaving = nullptr;
    for (size_t i = 0; i < windows.size(); ++i) {
      waker_.WaitFor(*windows[i]);
      ASSERT_OK(windows[i]->status());
      EXPECT_EQ(AsText(windows[i]->bytes()),
                BytesOf(static_cast<int64_t>(i) * 100, 50));
    }
    // A window that is no longer needed can be requested again.
    const auto anew = staying.Want(Rows(50, 50), 50 * 1024);
    waker_.WaitFor(*anew);
    ASSERT_OK(anew->status());
  }
}

TEST_F(WindowReadersTest, AnErrorFailsOneWindowAndIsRetried) {
  const auto readers = NewReaders(0);
  for (const auto& file : std::filesystem::directory_iterator(path_)) {
    if (file.path().extension() != ".distcp") continue;
    std::filesystem::resize_file(file.path(), 512 * 1024);
  }
  WindowUser user(*readers, waker_.wake());
  const auto there = user.Want(Rows(0, 10), 10 * 1024);
  const auto damaged = user.Want(Rows(1000, 10), 10 * 1024);
  waker_.WaitFor(*there);
  waker_.WaitFor(*damaged);
  // The file was written to, so even the data that is still there is refused.
  EXPECT_THAT(there->status(),
              StatusIs(absl::StatusCode::kUnavailable, Not("")));
  EXPECT_THAT(damaged->status(),
              StatusIs(absl::StatusCode::kUnavailable, Not("")));
  EXPECT_EQ(StatusPlace(damaged->status()).tensor, "w");
  EXPECT_EQ(StatusPlace(damaged->status()).path, path_);
  EXPECT_NE(user.Want(Rows(1000, 10), 10 * 1024), damaged);
}

TEST_F(WindowReadersTest, ChangedFileFailsInsteadOfMixing) {
  const auto readers = NewReaders(0);
  WindowUser user(*readers, waker_.wake());
  const auto before = user.Want(Rows(0, 10), 10 * 1024);
  waker_.WaitFor(*before);
  EXPECT_OK(before->status());
  for (const auto& file : std::filesystem::directory_iterator(path_)) {
    if (file.path().extension() != ".distcp") continue;
    std::filesystem::last_write_time(
        file.path(), file.last_write_time() + std::chrono::seconds(1));
  }
  const auto after = user.Want(Rows(10, 10), 10 * 1024);
  waker_.WaitFor(*after);
  EXPECT_THAT(after->status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("changed while it was read")));
}

}  // namespace
}  // namespace dcp::server
