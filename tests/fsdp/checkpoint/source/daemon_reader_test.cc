// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/source/daemon_reader.h"

#include <algorithm>
#include <cstdint>
#include <stop_token>
#include <vector>

#include "ATen/ops/arange.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/source/daemon_source.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/checkpoint/test_daemon.h"
#include "tests/testing/denied_calls.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::WithoutNewThreads;
using ::fsdp::testing::TestDaemon;
using ::testing::HasSubstr;

// The row-major indices of a box's elements in a tensor with that shape.
std::vector<int64_t> ElementIndices(const dcp::Box& box,
                                    const dcp::Dims& shape) {
  const dcp::Dims strides = dcp::RowMajorStrides(shape);
  std::vector<int64_t> elements{0};
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<int64_t> next;
    for (const int64_t element : elements) {
      for (int64_t i = 0; i < box.sizes[d]; ++i) {
        next.push_back(element + (box.offsets[d] + i) * strides[d]);
      }
    }
    elements = std::move(next);
  }
  return elements;
}

TEST(DaemonReader, RunsCoverABoxInRowMajorOrder) {
  const dcp::Dims shape{4, 3, 5, 2};
  const std::vector<dcp::Box> boxes{
      dcp::WholeBox(shape),
      {.offsets = {1, 0, 2, 0}, .sizes = {3, 2, 3, 2}},
      {.offsets = {0, 1, 0, 1}, .sizes = {4, 2, 5, 1}},
      {.offsets = {3, 2, 4, 1}, .sizes = {1, 1, 1, 1}},
  };
  for (const dcp::Box& box : boxes) {
    for (uint64_t most = 1; most <= 130; ++most) {
      SCOPED_TRACE(absl::StrCat(dcp::ToString(box), " by ", most));
      std::vector<int64_t> elements;
      const auto num = static_cast<uint64_t>(dcp::Volume(box.sizes));
      while (elements.size() < num) {
        const dcp::Box run = NextRun(box, elements.size(), most);
        const std::vector<int64_t> more = ElementIndices(run, shape);
        ASSERT_GT(more.size(), 0u);
        ASSERT_LE(more.size(), most);
        elements.insert(elements.end(), more.begin(), more.end());
      }
      EXPECT_EQ(elements, ElementIndices(box, shape));
    }
  }
  EXPECT_EQ(NextRun({}, 0, 1), dcp::Box());
}

// Compares placed bytes with a tensor of ascending numbers.
class CountingSink final : public dcp::TensorSink {
 public:
  explicit CountingSink(uint64_t fails_at) : fails_at_(fails_at) {}

  absl::Status Place(uint64_t offset, dcp::ByteSpan src) override {
    EXPECT_EQ(offset, num_placed_);
    if (offset + src.size() > fails_at_) {
      return absl::ResourceExhaustedError("the sink is full");
    }
    const auto* numbers = reinterpret_cast<const int64_t*>(src.data());
    for (uint64_t i = 0; i < src.size() / 8; ++i) {
      if (numbers[i] != static_cast<int64_t>(offset / 8 + i)) ++num_wrong_;
    }
    num_placed_ += src.size();
    return absl::OkStatus();
  }
  absl::Status Flush() override { return absl::OkStatus(); }

  uint64_t num_placed() const { return num_placed_; }
  uint64_t num_wrong() const { return num_wrong_; }

 private:
  const uint64_t fails_at_;
  uint64_t num_placed_ = 0;
  uint64_t num_wrong_ = 0;
};

TEST(DaemonReader, PlacesAllInOrderThroughSmallWindows) {
  const TestDaemon daemon;
  const int64_t rows = 1001;
  const int64_t columns = 517;
  const auto num_bytes = static_cast<uint64_t>(rows * columns * 8);
  ASSERT_OK(save({{"a", at::arange(rows * columns).view({rows, columns})},
                  {"b", at::arange(7)}},
                 daemon.Path("c")));
  ASSERT_OK_AND_ASSIGN(const auto source,
                       DaemonSource::Open(daemon.Url("c"), {}, {}, {}));
  const auto read = [&](CountingSink& a, CountingSink& b) {
    dcp::TransferStats stats;
    const dcp::Dims shape{rows, columns};
    const absl::Status status = source->ReadTensors(
        {{.fqn = "a",
          .dtype = dcp::DType::kInt64,
          .shape = shape,
          .box = dcp::WholeBox(shape),
          .sink = &a},
         {.fqn = "b",
          .dtype = dcp::DType::kInt64,
          .shape = {7},
          .box = dcp::WholeBox({7}),
          .sink = &b}},
        {.memory_bytes = 4 << 20, .stop = {}, .stats = &stats});
    EXPECT_GE(stats.num_reads, 2u);
    return status;
  };
  CountingSink a(UINT64_MAX);
  CountingSink b(UINT64_MAX);
  ASSERT_OK(read(a, b));
  EXPECT_EQ(a.num_placed(), num_bytes);
  EXPECT_EQ(b.num_placed(), 56u);
  EXPECT_EQ(a.num_wrong() + b.num_wrong(), 0u);

  // One window after the other.
  WithoutNewThreads([&] {
    CountingSink c(UINT64_MAX);
    CountingSink d(UINT64_MAX);
    EXPECT_OK(read(c, d));
    EXPECT_EQ(c.num_placed(), num_bytes);
    EXPECT_EQ(c.num_wrong(), 0u);
  });

  CountingSink full(num_bytes / 2);
  CountingSink other(UINT64_MAX);
  EXPECT_THAT(read(full, other), StatusIs(absl::StatusCode::kResourceExhausted,
                                          HasSubstr("the sink is full")));
  EXPECT_EQ(other.num_placed(), 0u);
}

class StoppingSink final : public dcp::TensorSink {
 public:
  explicit StoppingSink(std::stop_source& stop) : stop_(stop) {}

  absl::Status Place(uint64_t offset, dcp::ByteSpan src) override {
    num_placed_ = offset + src.size();
    stop_.request_stop();
    return absl::OkStatus();
  }
  absl::Status Flush() override { return absl::OkStatus(); }

  uint64_t num_placed() const { return num_placed_; }

 private:
  std::stop_source& stop_;
  uint64_t num_placed_ = 0;
};

TEST(DaemonReader, StopsOnRequest) {
  const TestDaemon daemon;
  const int64_t num_elements = int64_t{1} << 20;
  ASSERT_OK(save({{"a", at::arange(num_elements)}}, daemon.Path("c")));
  ASSERT_OK_AND_ASSIGN(const auto source,
                       DaemonSource::Open(daemon.Url("c"), {}, {}, {}));
  std::stop_source stop;
  StoppingSink sink(stop);
  EXPECT_THAT(source->ReadTensors({{.fqn = "a",
                                    .dtype = dcp::DType::kInt64,
                                    .shape = {num_elements},
                                    .box = dcp::WholeBox({num_elements}),
                                    .sink = &sink}},
                                  {.memory_bytes = 4 << 20,
                                   .stop = stop.get_token(),
                                   .stats = nullptr}),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_GT(sink.num_placed(), 0u);
  EXPECT_LT(sink.num_placed(), static_cast<uint64_t>(num_elements) * 8);
}

}  // namespace
}  // namespace fsdp
