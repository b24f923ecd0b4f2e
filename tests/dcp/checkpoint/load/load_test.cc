// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/load/load.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/io/block_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::MemorySink;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Saves `tensor` with two rows per chunk and opens it.
std::unique_ptr<Checkpoint> Stored(SimStorage& fs, const SampleTensor& tensor) {
  SampleState state;
  for (int64_t row = 0; row < tensor.shape[0]; row += 2) {
    Box box = WholeBox(tensor.shape);
    box.offsets[0] = row;
    box.sizes[0] = std::min<int64_t>(2, tensor.shape[0] - row);
    state.Add(tensor, box);
  }
  state.AddObject("lr", Value::Float(0.1));
  SingleProcessCoordinator coordinator;
  EXPECT_OK(Save(fs, "/c", state.state(), coordinator, {}));
  auto checkpoint = Checkpoint::Open(fs, "/c", {});
  EXPECT_OK(checkpoint);
  return *std::move(checkpoint);
}

LoadTensor Want(const SampleTensor& tensor, const Box& box, MemorySink& sink) {
  return {.fqn = tensor.fqn,
          .dtype = tensor.dtype,
          .shape = tensor.shape,
          .box = box,
          .sink = &sink};
}

TEST(Load, FillsAnyBoxFromOtherBoxes) {
  SimStorage fs({.percent_short = 30, .percent_interrupted = 30});
  const SampleTensor tensor("w", DType::kFloat32, {7, 6, 3});
  const auto checkpoint = Stored(fs, tensor);
  for (const Box& box : {WholeBox(tensor.shape), Box{{1, 0, 0}, {3, 6, 3}},
                         Box{{0, 2, 1}, {7, 3, 2}}, Box{{6, 5, 2}, {1, 1, 1}},
                         Box{{7, 0, 0}, {0, 6, 3}}}) {
    const std::string expected = tensor.BytesOf(box);
    MemorySink sink(expected.size());
    ASSERT_OK(Load(fs, *checkpoint, {Want(tensor, box, sink)},
                   {.memory_bytes = kMinMemoryBytes}));
    EXPECT_EQ(sink.bytes(), expected) << ToString(box);
    EXPECT_EQ(sink.num_placed_bytes(), expected.size());
    EXPECT_EQ(sink.num_pending(), 0u);
  }
}

// An item that is read whole is compared with the CRC; one that is read in part
// cannot be.
TEST(Load, FindsAFlippedBitInWholeItems) {
  SimStorage fs;
  const SampleTensor tensor("w", DType::kFloat32, {4, 1000});
  Stored(fs, tensor);
  const std::string path = "/c/__0_0.distcp";
  std::string bytes = *ReadFile(fs, path, 1 << 20, /*follow_symlinks=*/false);
  const std::string second_rows = tensor.BytesOf(Box{{2, 0}, {2, 1000}});
  const size_t place = bytes.find(second_rows);
  ASSERT_NE(place, std::string::npos);
  bytes[place] = static_cast<char>(bytes[place] ^ 1);
  ASSERT_OK(fs.Remove(path));
  ASSERT_OK(WriteFile(fs, path, bytes));
  const auto checkpoint = Checkpoint::Open(fs, "/c", {});
  ASSERT_OK(checkpoint);
  const auto load = [&](const Box& box, bool verify) {
    MemorySink sink(tensor.BytesOf(box).size());
    return Load(fs, **checkpoint, {Want(tensor, box, sink)},
                {.verify = verify});
  };
  EXPECT_THAT(load(WholeBox(tensor.shape), true),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("w: "), HasSubstr(path))));
  EXPECT_OK(load(WholeBox(tensor.shape), false));
  EXPECT_OK(load(Box{{0, 0}, {2, 1000}}, true));
  EXPECT_OK(load(Box{{3, 0}, {1, 1000}}, true));
}

TEST(Load, FillsATensorOfManyBlocks) {
  SimStorage fs;
  const SampleTensor tensor("w", DType::kFloat32, {6, 1000, 1001});
  const auto checkpoint = Stored(fs, tensor);
  const Box columns{{0, 0, 0}, {6, 1000, 700}};
  MemorySink sink(6 * 1000 * 700 * 4);
  TransferStats stats;
  ASSERT_OK(Load(fs, *checkpoint, {Want(tensor, columns, sink)},
                 {.memory_bytes = kMinMemoryBytes, .stats = &stats}));
  EXPECT_TRUE(sink.bytes() == tensor.BytesOf(columns));
  EXPECT_LE(static_cast<double>(stats.bytes_read.load()),
            1.2 * static_cast<double>(tensor.bytes.size()));
}

// One copy, from the read's block to the destination.
TEST(Load, WritesDirectlyToASinksMemory) {
  SimStorage fs({.percent_short = 30, .percent_interrupted = 30});
  const SampleTensor tensor("w", DType::kComplex128, {6, 300, 1301});
  const auto checkpoint = Stored(fs, tensor);
  BlockPool pool(kMinBlocks);
  for (const Box& box :
       {WholeBox(tensor.shape), Box{{1, 0, 0}, {4, 300, 1301}},
        Box{{0, 0, 7}, {6, 300, 500}}, Box{{6, 0, 0}, {0, 300, 1301}}}) {
    const std::string expected = tensor.BytesOf(box);
    MemorySink direct(expected.size(), /*direct=*/true);
    MemorySink direct_too(expected.size(), /*direct=*/true);
    MemorySink placed(expected.size());
    ASSERT_OK(
        Load(fs, *checkpoint, {Want(tensor, box, direct)}, {.pool = &pool}));
    EXPECT_TRUE(direct.bytes() == expected) << ToString(box);
    EXPECT_EQ(direct.num_placed_bytes(), 0u);
    // Together with a sink that does not expose memory.
    ASSERT_OK(Load(fs, *checkpoint,
                   {Want(tensor, box, placed), Want(tensor, box, direct_too)},
                   {.pool = &pool}));
    EXPECT_TRUE(direct_too.bytes() == expected) << ToString(box);
    EXPECT_TRUE(placed.bytes() == expected) << ToString(box);
    EXPECT_EQ(placed.num_placed_bytes(), expected.size());
    EXPECT_EQ(pool.num_free(), pool.num_blocks());
  }
}

TEST(Load, ReusesTheCallersLane) {
  SimStorage fs;
  const SampleTensor tensor("w", DType::kFloat32, {7, 6, 3});
  const auto checkpoint = Stored(fs, tensor);
  BlockPool pool(kMinBlocks);
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<IoQueue> queue,
                       fs.NewQueue(2 * kQueueDepth, pool.memory()));
  Lane lane{.index = 0, .pool = pool, .queue = std::move(queue)};
  for (int64_t row = 0; row < 7; ++row) {
    const Box box{{row, 0, 0}, {1, 6, 3}};
    MemorySink sink(6 * 3 * 4, /*direct=*/true);
    ASSERT_OK(
        Load(fs, *checkpoint, {Want(tensor, box, sink)}, {.lane = &lane}));
    EXPECT_EQ(sink.bytes(), tensor.BytesOf(box));
  }
  EXPECT_EQ(pool.num_free(), pool.num_blocks());
}

TEST(Load, ConvertsTypes) {
  SimStorage fs;
  SampleTensor tensor("w", DType::kFloat32, {3});
  const float values[3] = {1.0f, -2.5f, 0.0f};
  std::memcpy(tensor.bytes.data(), values, sizeof(values));
  const auto checkpoint = Stored(fs, tensor);
  for (const bool direct : {false, true}) {
    MemorySink sink(3 * 8, direct);
    LoadTensor wanted = Want(tensor, WholeBox(tensor.shape), sink);
    wanted.dtype = DType::kFloat64;
    ASSERT_OK(Load(fs, *checkpoint, {wanted}, {}));
    double loaded[3];
    std::memcpy(loaded, sink.bytes().data(), sizeof(loaded));
    EXPECT_THAT(loaded, ::testing::ElementsAre(1.0, -2.5, 0.0));
  }
}

// Their numbers mean something only with the scales.
TEST(Load, DoesNotConvertCodes) {
  SimStorage fs;
  const SampleTensor tensor("m.weight_packed", DType::kBFloat16, {3});
  const auto checkpoint = Stored(fs, tensor);
  MemorySink sink(3 * 4);
  LoadTensor wanted = Want(tensor, WholeBox(tensor.shape), sink);
  EXPECT_OK(Load(fs, *checkpoint, {wanted}, {}));
  wanted.dtype = DType::kFloat32;
  EXPECT_THAT(Load(fs, *checkpoint, {wanted}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("m.weight_packed is stored as bfloat16 and is "
                                 "a part of a quantized tensor")));
}

TEST(Load, ListsAllMismatchesBeforeItReads) {
  SimStorage fs;
  const SampleTensor tensor("w", DType::kFloat32, {4, 3});
  const auto checkpoint = Stored(fs, tensor);
  MemorySink sink(1000);
  const LoadTensor good = Want(tensor, WholeBox(tensor.shape), sink);
  LoadTensor shape = good;
  shape.shape = {3, 4};
  LoadTensor box = good;
  box.box = {{3, 0}, {2, 3}};
  LoadTensor type = good;
  type.dtype = DType::kInt32;
  LoadTensor object = good;
  object.fqn = "lr";
  EXPECT_THAT(
      Load(fs, *checkpoint, {good, shape, box, type, object}, {}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("stored as [4, 3], but requested as [3, 4]"),
                     HasSubstr("is not inside"), HasSubstr("int32"),
                     HasSubstr("lr is not a tensor"))));
  LoadTensor one = good;
  one.fqn = "missing.one";
  LoadTensor two = good;
  two.fqn = "missing.two";
  EXPECT_THAT(Load(fs, *checkpoint, {one, good, two}, {}),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("missing.one, missing.two"),
                             Not(HasSubstr("w,")))));
  EXPECT_EQ(sink.num_placed_bytes(), 0u);
}

TEST(Load, FlushesSinksAfterAnError) {
  SimStorage fs;
  const SampleTensor tensor("w", DType::kFloat32, {4, 3});
  const auto checkpoint = Stored(fs, tensor);
  MemorySink good(48);
  MemorySink bad(48);
  bad.Fail(absl::AbortedError("unplugged"));
  const Box whole = WholeBox(tensor.shape);
  EXPECT_THAT(Load(fs, *checkpoint,
                   {Want(tensor, whole, good), Want(tensor, whole, bad)}, {}),
              StatusIs(absl::StatusCode::kAborted, "unplugged"));
  EXPECT_EQ(good.num_pending(), 0u);
}

TEST(Load, ReportsReadErrors) {
  SimStorage fs;
  const SampleTensor tensor("w", DType::kFloat32, {4, 3});
  const auto checkpoint = Stored(fs, tensor);
  ASSERT_OK(checkpoint->LocateAll());
  MemorySink sink(48);
  const LoadTensor wanted = Want(tensor, WholeBox(tensor.shape), sink);
  fs.FailOperation(0, EIO);
  const absl::Status status = Load(fs, *checkpoint, {wanted}, {});
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(".distcp [")));
  EXPECT_EQ(StatusSide(status), ErrorSide::kSource);
  EXPECT_OK(Load(fs, *checkpoint, {wanted}, {}));
  EXPECT_EQ(sink.bytes(), tensor.bytes);
}

TEST(Load, Stops) {
  SimStorage fs;
  const SampleTensor tensor("w", DType::kFloat32, {4, 3});
  const auto checkpoint = Stored(fs, tensor);
  MemorySink sink(48);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(
      Load(fs, *checkpoint, {Want(tensor, WholeBox(tensor.shape), sink)},
           {.stop = stop.get_token()}),
      StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace dcp
