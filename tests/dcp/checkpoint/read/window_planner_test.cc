// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/read/window_planner.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dcp/base/bytes.h"
#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/mapped/mapped_tensor.h"
#include "dcp/tensor/element.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/mapped_model.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;

// A tensor in two files: the upper rows after 10 bytes in the first, the lower
// ones transposed in the second.
class WindowPlannerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Box upper{{0, 0}, {2, 6}};
    const Box lower{{2, 0}, {3, 6}};
    std::string transposed;
    for (int64_t column = 0; column < 6; ++column) {
      transposed += sample_.BytesOf({{2, column}, {3, 1}});
    }
    ASSERT_OK(
        WriteFile(fs_, "/a", std::string(10, 'x') + sample_.BytesOf(upper)));
    ASSERT_OK(WriteFile(fs_, "/b", transposed));
    tensor_.dtype = sample_.dtype;
    tensor_.shape = sample_.shape;
    tensor_.boxes = {upper, lower};
    tensor_.locations.resize(2);
    tensor_.locations[0].located = true;
    tensor_.locations[0].payload_offset = 10;
    tensor_.locations[1].located = true;
    tensor_.locations[1].item.file = 1;
    tensor_.locations[1].strides = {1, 3};
  }

  // Carries out the reads in `batch` in reverse order; returns their bytes.
  uint64_t Read(Batch& batch) {
    uint64_t total = 0;
    for (size_t i = batch.reads.size(); i-- > 0;) {
      const PlannedRead& read = batch.reads[i];
      std::string data(read.length, '\0');
      EXPECT_OK(
          fs_.Read(read.file, read.offset,
                   {reinterpret_cast<uint8_t*>(data.data()), data.size()}));
      EXPECT_OK(batch.on_read(i, AsBytes(data)));
      total += read.length;
    }
    return total;
  }

  SimStorage fs_;
  const SampleTensor sample_{"w", DType::kInt32, {5, 6}};
  TensorEntry tensor_;
  SourceFiles files_{fs_, "/", {"a", "b"}, DirectMode::kOff, true};
};

TEST_F(WindowPlannerTest, GathersAWindowFromAllChunks) {
  const Box box{{1, 1}, {3, 4}};
  const std::string expected = sample_.BytesOf(box);
  for (uint64_t first = 0; first < 12; ++first) {
    for (uint64_t num = 1; num <= 12 - first; ++num) {
      WindowPlanner planner;
      std::vector<uint8_t> dst(num * 4);
      planner.Add(tensor_, files_, box, DType::kInt32, first, num, dst.data());
      Batch batch;
      ASSERT_OK(planner.Finish(batch, kBlockBytes));
      Read(batch);
      EXPECT_EQ(AsText(dst), expected.substr(first * 4, num * 4))
          << first << " +" << num;
    }
  }
}

TEST_F(WindowPlannerTest, ReadsSharedBytesOnce) {
  WindowPlanner planner;
  std::vector<std::vector<uint8_t>> columns(6, std::vector<uint8_t>(5 * 4));
  for (int64_t i = 0; i < 6; ++i) {
    planner.Add(tensor_, files_, {{0, i}, {5, 1}}, DType::kInt32, 0, 5,
                columns[static_cast<size_t>(i)].data());
  }
  Batch batch;
  ASSERT_OK(planner.Finish(batch, kBlockBytes));
  EXPECT_EQ(Read(batch), sample_.bytes.size());
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(AsText(columns[static_cast<size_t>(i)]),
              sample_.BytesOf({{0, i}, {5, 1}}));
  }
}

TEST_F(WindowPlannerTest, SwapsBytesOnTheWay) {
  for (ChunkLocation& location : tensor_.locations) location.swap_bytes = true;
  WindowPlanner planner;
  std::vector<uint8_t> dst(sample_.bytes.size());
  planner.Add(tensor_, files_, WholeBox(sample_.shape), DType::kInt32, 0, 30,
              dst.data());
  Batch batch;
  ASSERT_OK(planner.Finish(batch, kBlockBytes));
  Read(batch);
  for (size_t i = 0; i < dst.size(); i += 4) {
    std::swap(dst[i], dst[i + 3]);
    std::swap(dst[i + 1], dst[i + 2]);
  }
  EXPECT_EQ(AsText(dst), sample_.bytes);
}

TEST_F(WindowPlannerTest, PlansNothingWithoutWindows) {
  WindowPlanner planner;
  planner.Add(tensor_, files_, WholeBox(sample_.shape), DType::kInt32, 3, 0,
              nullptr);
  Batch batch;
  ASSERT_OK(planner.Finish(batch, kBlockBytes));
  EXPECT_TRUE(batch.reads.empty());
}

TEST_F(WindowPlannerTest, BlamesTheSourceForAMissingFile) {
  ASSERT_OK(fs_.Remove("/b"));
  WindowPlanner planner;
  std::vector<uint8_t> dst(sample_.bytes.size());
  planner.Add(tensor_, files_, WholeBox(sample_.shape), DType::kInt32, 0, 30,
              dst.data());
  Batch batch;
  const absl::Status status = planner.Finish(batch, kBlockBytes);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(StatusSide(status), ErrorSide::kSource);
}

// Carries out a read as the pipeline does, with the margin behind it.
void CarryOut(SimStorage& fs, Batch& batch, size_t i) {
  const PlannedRead& read = batch.reads[i];
  std::string data(
      std::min(read.length + kReadMarginBytes, read.file.size - read.offset),
      '\0');
  EXPECT_OK(fs.Read(read.file, read.offset,
                    {reinterpret_cast<uint8_t*>(data.data()), data.size()}));
  EXPECT_OK(batch.on_read(i, AsBytes(data)));
}

// Carries out the reads for one window in a mapped tensor.
std::string MappedWindow(testing::MappedModel& model, SimStorage& fs,
                         const testing::MappedModel::Made& made, const Box& box,
                         uint64_t first, uint64_t num_elements) {
  WindowPlanner planner;
  const DType dtype = made.mapped->entry().dtype;
  std::string dst(num_elements * ElementSize(dtype), '?');
  planner.Add(made.mapped->entry(), model.files(), box, dtype, first,
              num_elements, reinterpret_cast<uint8_t*>(dst.data()));
  Batch batch;
  EXPECT_OK(planner.Finish(batch, kBlockBytes));
  for (size_t i = 0; i < batch.reads.size(); ++i) CarryOut(fs, batch, i);
  return dst;
}

TEST(MappedWindows, EqualAnElementwiseLoop) {
  std::mt19937_64 random(static_cast<uint64_t>(GTEST_FLAG_GET(random_seed)));
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
  };
  for (const testing::StoredCut& cut :
       {testing::StoredCut{}, testing::StoredCut{.rows_per_chunk = 1},
        testing::StoredCut{.rows_per_chunk = 4, .in_columns = true}}) {
    SimStorage fs;
    testing::MappedModel model(fs, DType::kInt16, cut);
    model.AddEveryKind();
    model.Write();
    for (const testing::MappedModel::Made& made : model.made()) {
      SCOPED_TRACE(made.fqn);
      const Dims& shape = made.mapped->entry().shape;
      for (int round = 0; round < 30; ++round) {
        Box box = WholeBox(shape);
        for (size_t d = 0; d < shape.size() && round > 10; ++d) {
          box.offsets[d] = below(shape[d]);
          box.sizes[d] = 1 + below(shape[d] - box.offsets[d]);
        }
        const int64_t volume = Volume(box.sizes);
        const int64_t first = below(volume);
        const int64_t num_elements = 1 + below(volume - first);
        const std::string expected =
            made.BytesOf(box).substr(static_cast<size_t>(first) * 2,
                                     static_cast<size_t>(num_elements) * 2);
        ASSERT_TRUE(
            MappedWindow(model, fs, made, box, static_cast<uint64_t>(first),
                         static_cast<uint64_t>(num_elements)) == expected)
            << ToString(box) << " from " << first << " +" << num_elements;
      }
    }
  }
}

TEST(MappedWindows, CountTheExtentsOfTheirPlan) {
  SimStorage fs;
  testing::MappedModel model(fs, DType::kComplex128, {});
  // Rows that lie further apart than the gaps that are read.
  model.AddTransposed("w", {8, 5000});
  model.Write();
  const TensorEntry& entry = model.made().front().mapped->entry();
  WindowPlanner planner;
  std::vector<uint8_t> dst(640);
  planner.Add(entry, model.files(), WholeBox(entry.shape), DType::kComplex128,
              0, 40, dst.data());
  EXPECT_EQ(planner.num_nest_extents(), 8u);
  Batch batch;
  ASSERT_OK(planner.Finish(batch, kBlockBytes));
  EXPECT_EQ(batch.reads.size(), 8u);
  EXPECT_EQ(planner.num_nest_extents(), 0u);
}

// Windows that continue each other, and windows in another box in between.
TEST(MappedWindows, AreJoinedWhenTheyContinueEachOther) {
  SimStorage fs;
  testing::MappedModel model(fs, DType::kComplex128, {});
  model.AddTransposed("w", {8, 10'000});
  model.Write();
  const testing::MappedModel::Made& made = model.made().front();
  const Box boxes[] = {{{0, 0}, {5000, 8}}, {{5000, 0}, {5000, 8}}};
  WindowPlanner planner;
  std::string copied[2];
  constexpr uint64_t kElements[] = {40, 13, 1, 100};
  for (std::string& bytes : copied) bytes.resize(154 * 16);
  uint64_t first = 0;
  for (const uint64_t num_elements : kElements) {
    for (size_t i = 0; i < 2; ++i) {
      // Backwards in memory.
      uint8_t* const end =
          reinterpret_cast<uint8_t*>(copied[i].data()) + copied[i].size();
      planner.Add(made.mapped->entry(), model.files(), boxes[i],
                  DType::kComplex128, 3 + first, num_elements,
                  end - (first + num_elements) * 16);
    }
    first += num_elements;
  }
  // A first and a last row in the destination that are not whole.
  EXPECT_LE(planner.num_nest_extents(), 2u * (8 + 5 + 5));
  Batch batch;
  ASSERT_OK(planner.Finish(batch, kBlockBytes));
  EXPECT_EQ(batch.reads.size(), 16u);
  for (size_t i = 0; i < batch.reads.size(); ++i) CarryOut(fs, batch, i);
  for (size_t i = 0; i < 2; ++i) {
    std::string expected;
    first = 3;
    for (const uint64_t num_elements : kElements) {
      expected.insert(
          0, made.BytesOf(boxes[i]).substr(first * 16, num_elements * 16));
      first += num_elements;
    }
    EXPECT_TRUE(copied[i] == expected) << i;
  }
}

// Elements [first, + num_elements) in a transposed matrix, as type `to`. The
// reads complete in this order: every `step`-th, then those behind them, ...
std::string InStripes(SimStorage& fs, testing::MappedModel& model, DType to,
                      uint64_t first, uint64_t num_elements, size_t step) {
  const TensorEntry& entry = model.made().front().mapped->entry();
  WindowPlanner planner;
  std::string dst(num_elements * ElementSize(to), '?');
  planner.Add(entry, model.files(), WholeBox(entry.shape), to, first,
              num_elements, reinterpret_cast<uint8_t*>(dst.data()));
  Batch batch;
  EXPECT_OK(planner.Finish(batch, kBlockBytes));
  EXPECT_GE(batch.reads.size(), static_cast<uint64_t>(entry.shape[1]));
  for (size_t begin = 0; begin < step; ++begin) {
    for (size_t i = begin; i < batch.reads.size(); i += step) {
      CarryOut(fs, batch, i);
    }
  }
  return dst;
}

TEST(MappedWindows, AreCollectedFromManyRows) {
  SimStorage fs;
  testing::MappedModel model(fs, DType::kFloat64, {});
  constexpr uint64_t kRows = 40;
  model.AddTransposed("w", {kRows, 8'600});
  model.Write();
  const std::string& all = model.made().front().bytes;
  // Whole rows in the destination, and parts of the first and the last.
  for (const auto& [first, num_elements] :
       {std::pair{100 * kRows, 50 * kRows}, {7 * kRows + 9, 20 * kRows}}) {
    const std::string expected = all.substr(first * 8, num_elements * 8);
    for (const size_t step : {1, 2, 16, 64}) {
      EXPECT_TRUE(InStripes(fs, model, DType::kFloat64, first, num_elements,
                            step) == expected);
      std::string cast(num_elements * 4, '?');
      TransformElements({.from = DType::kFloat64, .to = DType::kFloat32},
                        reinterpret_cast<const uint8_t*>(expected.data()),
                        reinterpret_cast<uint8_t*>(cast.data()), num_elements);
      EXPECT_TRUE(InStripes(fs, model, DType::kFloat32, first, num_elements,
                            step) == cast);
    }
  }
}

// Rows have 214 KB, so that four are collected at once, and the first in each
// four come first.
TEST(MappedWindows, CollectOnlyAFewGroupsAtOnce) {
  SimStorage fs;
  testing::MappedModel model(fs, DType::kComplex128, {});
  model.AddTransposed("w", {24, 17'500});
  model.Write();
  const std::string& all = model.made().front().bytes;
  constexpr uint64_t kElements = 13'400 * 24;
  for (const size_t step : {1, 3, 4, 23}) {
    EXPECT_TRUE(InStripes(fs, model, DType::kComplex128, 600, kElements,
                          step) == all.substr(600 * 16, kElements * 16));
  }
}

// Two pieces make the same elements, and none makes others. The sum is right.
TEST(MappedWindows, AreRefusedWhenOnlyPartlyMade) {
  SimStorage fs;
  testing::MappedModel model(fs, DType::kInt16, {});
  model.AddTransposed("w", {4, 4});
  model.Write();
  const std::vector<const TensorEntry*> sources;
  const StridedPiece half{.src = StridedPiece::kZeros,
                          .dst = 0,
                          .src_base = {},
                          .dst_base = {0},
                          .loops = {{.count = 5}}};
  ASSERT_OK_AND_ASSIGN(
      const auto mapped,
      MappedTensor::Make(DType::kInt16, {10}, {half, half}, sources));
  WindowPlanner planner;
  std::vector<uint8_t> dst(10);
  planner.Add(mapped->entry(), model.files(), {{0}, {10}}, DType::kInt16, 5, 5,
              dst.data());
  Batch batch;
  EXPECT_THAT(planner.Finish(batch, kBlockBytes),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("make 0 of the 5")));
  // The next batch is not affected.
  EXPECT_OK(planner.Finish(batch, kBlockBytes));
}

}  // namespace
}  // namespace dcp
