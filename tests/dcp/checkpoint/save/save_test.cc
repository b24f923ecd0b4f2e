// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/save/save.h"

#include <cerrno>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/verify/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/thread_coordinator.h"

namespace dcp {
namespace {

using ::dcp::testing::MemorySink;
using ::dcp::testing::MemorySource;
using ::dcp::testing::RunRanks;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

SaveOptions Small() { return {.memory_bytes = kMinMemoryBytes}; }

// Two rows for each rank.
Box RankRows(const SampleTensor& tensor, int64_t rank) {
  Box box = WholeBox(tensor.shape);
  box.offsets[0] = 2 * rank;
  box.sizes[0] = 2;
  return box;
}

std::string LoadBytes(FileSystem& fs, absl::string_view path,
                      const SampleTensor& tensor, const Box& box) {
  auto checkpoint = Checkpoint::Open(fs, path, {});
  EXPECT_OK(checkpoint);
  if (!checkpoint.ok()) return "";
  MemorySink sink(static_cast<uint64_t>(Volume(box.sizes)) *
                  ElementSize(tensor.dtype));
  EXPECT_OK(Load(fs, **checkpoint,
                 {{.fqn = tensor.fqn,
                   .dtype = tensor.dtype,
                   .shape = tensor.shape,
                   .box = box,
                   .sink = &sink}},
                 {.memory_bytes = kMinMemoryBytes}));
  return sink.bytes();
}

void ExpectSound(FileSystem& fs, absl::string_view path) {
  VerifyOptions options;
  options.memory_bytes = kMinMemoryBytes;
  const auto report = VerifyCheckpoint(fs, path, std::move(options));
  ASSERT_OK(report);
  for (const VerifyFinding& finding : report->findings) {
    ADD_FAILURE() << finding.name << ": " << finding.problem;
  }
}

TEST(Save, KeepsTensorsAndObjects) {
  SimStorage fs;
  SampleState state;
  const SampleTensor a("a", DType::kFloat32, {3, 4});
  const SampleTensor scalar("scalar", DType::kInt64, {});
  const SampleTensor none("none", DType::kFloat16, {0, 4});
  state.Add(a);
  state.Add(scalar);
  state.Add(none);
  state.AddObject("lr", Value::Float(0.5));
  SingleProcessCoordinator coordinator;
  ASSERT_OK(Save(fs, "/c", state.state(), coordinator, Small()));
  ExpectSound(fs, "/c");
  for (const SampleTensor* tensor : {&a, &scalar, &none}) {
    EXPECT_EQ(LoadBytes(fs, "/c", *tensor, WholeBox(tensor->shape)),
              tensor->bytes);
  }
  ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(fs, "/c", {}));
  ASSERT_OK(checkpoint->LocateAll());
  for (const CheckpointEntry& entry : checkpoint->entries()) {
    if (entry.fqn != "lr") continue;
    ASSERT_NE(entry.object(), nullptr);
    EXPECT_EQ(entry.object()->value.float_value(), 0.5);
  }
}

TEST(Save, FillsManyBlocksFromASource) {
  SimStorage fs({.percent_short = 10, .percent_interrupted = 10});
  SampleState state;
  const SampleTensor big("big", DType::kFloat32, {3, 1000, 1001});
  const MemorySource& source = state.Add(big);
  SingleProcessCoordinator coordinator;
  TransferStats stats;
  SaveOptions options = Small();
  options.stats = &stats;
  ASSERT_OK(Save(fs, "/c", state.state(), coordinator, options));
  EXPECT_EQ(source.num_filled_bytes(), big.bytes.size());
  EXPECT_GT(stats.bytes_written.load(), big.bytes.size());
  EXPECT_EQ(stats.bytes_read.load(), 0u);
  ExpectSound(fs, "/c");
  EXPECT_TRUE(LoadBytes(fs, "/c", big, WholeBox(big.shape)) == big.bytes);
}

TEST(Save, RefusesAnExistingCheckpointWithoutOverwrite) {
  SimStorage fs;
  SampleState state;
  state.Add(SampleTensor("a", DType::kFloat32, {3, 4}));
  SingleProcessCoordinator coordinator;
  SaveOptions options = Small();
  options.overwrite = false;
  ASSERT_OK(Save(fs, "/c", state.state(), coordinator, options));
  EXPECT_THAT(Save(fs, "/c", state.state(), coordinator, options),
              StatusIs(absl::StatusCode::kAlreadyExists));
  ExpectSound(fs, "/c");
}

TEST(Save, RefusesAStateThatContradictsItself) {
  const SampleTensor a("a", DType::kFloat32, {4, 4});
  const Box low{{0, 0}, {2, 4}};
  const Box high{{2, 0}, {2, 4}};
  const std::vector<std::pair<std::string, std::function<void(SampleState&)>>>
      bad = {
          {"not inside",
           [&](SampleState& state) {
             state.Add(a, low);
             state.state().tensors[0].box = {{3, 0}, {2, 4}};
           }},
          {"listed as",
           [&](SampleState& state) {
             state.Add(a, low);
             state.Add(a, high);
             state.state().tensors[1].dtype = DType::kInt32;
           }},
          {"listed as",
           [&](SampleState& state) {
             state.Add(a, low);
             state.Add(a, high);
             state.state().tensors[1].shape = {5, 4};
           }},
          {"8 of 16 elements", [&](SampleState& state) { state.Add(a, low); }},
          {"two parts begin",
           [&](SampleState& state) {
             state.Add(a);
             state.Add(a, low);
           }},
          {"listed twice",
           [&](SampleState& state) {
             state.Add(a);
             state.AddObject("a", Value::Int(1));
           }},
      };
  for (const auto& [message, make] : bad) {
    SimStorage fs;
    SampleState state;
    make(state);
    SingleProcessCoordinator coordinator;
    EXPECT_THAT(Save(fs, "/c", state.state(), coordinator, Small()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("a"), HasSubstr(message))));
    EXPECT_THAT(fs.Stat("/c"), StatusIs(absl::StatusCode::kNotFound));
  }
}

TEST(Save, RanksWriteTheirPartsAndShareReplicas) {
  constexpr int64_t kNumRanks = 4;
  SimStorage fs;
  const SampleTensor sharded("sharded", DType::kFloat32, {8, 5});
  std::vector<SampleTensor> replicas;
  for (int i = 0; i < 8; ++i) {
    replicas.emplace_back(absl::StrCat("replica", i), DType::kFloat32,
                          Dims{100});
  }
  std::vector<std::unique_ptr<SampleState>> states;
  for (int64_t rank = 0; rank < kNumRanks; ++rank) {
    SampleState& state = *states.emplace_back(std::make_unique<SampleState>());
    state.Add(sharded, RankRows(sharded, rank));
    for (const SampleTensor& replica : replicas) state.Add(replica);
    state.AddObject("step", Value::Int(7));
  }
  for (const absl::Status& status :
       RunRanks(kNumRanks, [&](Coordinator& coordinator) {
         return Save(fs, "/c",
                     states[static_cast<size_t>(coordinator.rank())]->state(),
                     coordinator, Small());
       })) {
    EXPECT_OK(status);
  }
  ExpectSound(fs, "/c");
  EXPECT_EQ(LoadBytes(fs, "/c", sharded, WholeBox(sharded.shape)),
            sharded.bytes);
  for (const auto& state : states) {
    // This rank's rows, and two of the eight replicas.
    uint64_t filled = 0;
    for (const auto& source : state->sources()) {
      filled += source->num_filled_bytes();
    }
    EXPECT_EQ(filled, 2 * 5 * 4 + 2 * 400u);
  }
  ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(fs, "/c", {}));
  EXPECT_EQ(checkpoint->files().names().size(), 4u);
  EXPECT_EQ(checkpoint->entries().size(), 1 + 8 + 1u);
}

// Rank 1 offers something different from rank 0.
void ExpectDisagreement(const SampleTensor& first, const SampleTensor& second,
                        absl::string_view message) {
  SimStorage fs;
  SampleState states[2];
  states[0].Add(first);
  states[1].Add(second);
  EXPECT_THAT(RunRanks(2,
                       [&](Coordinator& coordinator) {
                         return Save(fs, "/c",
                                     states[coordinator.rank()].state(),
                                     coordinator, Small());
                       }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            HasSubstr(std::string(message)))));
  EXPECT_THAT(fs.Stat("/c"), StatusIs(absl::StatusCode::kNotFound));
}

TEST(Save, ReportsDisagreementOnAllRanks) {
  ExpectDisagreement(SampleTensor("w", DType::kFloat32, {4, 4}),
                     SampleTensor("w", DType::kFloat32, {4, 5}), "on another");
  ExpectDisagreement(SampleTensor("w", DType::kFloat32, {4, 4}),
                     SampleTensor("w", DType::kInt32, {4, 4}), "int32");
}

// One rank's error reaches all; files that the others wrote are removed.
TEST(Save, ReturnsOneRanksErrorOnAllRanks) {
  SimStorage fs;
  const SampleTensor tensor("w", DType::kFloat32, {6, 5});
  for (int64_t bad = 0; bad < 3; ++bad) {
    SampleState states[3];
    for (int64_t rank = 0; rank < 3; ++rank) {
      MemorySource& source = states[rank].Add(tensor, RankRows(tensor, rank));
      if (rank == bad) {
        source.FailAfter(0, absl::ResourceExhaustedError("device is gone"));
      }
    }
    EXPECT_THAT(RunRanks(3,
                         [&](Coordinator& coordinator) {
                           return Save(fs, "/c",
                                       states[coordinator.rank()].state(),
                                       coordinator, Small());
                         }),
                Each(StatusIs(absl::StatusCode::kResourceExhausted,
                              AllOf(HasSubstr(absl::StrCat("rank ", bad)),
                                    HasSubstr("device is gone")))));
    EXPECT_THAT(fs.Stat("/c"), StatusIs(absl::StatusCode::kNotFound));
    EXPECT_EQ(fs.num_open_files(), 0u);
  }
}

// Each operation in a save by two ranks fails once. Whatever the error, all
// ranks return it, and the destination holds a complete checkpoint or none.
TEST(Save, LeavesNoHalfCheckpointAfterADiskFault) {
  const SampleTensor tensor("w", DType::kFloat32, {4, 5});
  bool finished = false;
  for (uint64_t n = 0; !finished; ++n) {
    SCOPED_TRACE(absl::StrCat("operation ", n));
    ASSERT_LT(n, 200u);
    SimStorage fs;
    const uint64_t before = fs.num_operations();
    fs.FailOperation(n, EIO);
    SampleState states[2];
    for (int64_t rank = 0; rank < 2; ++rank) {
      states[rank].Add(tensor, RankRows(tensor, rank));
    }
    const std::vector<absl::Status> statuses =
        RunRanks(2, [&](Coordinator& coordinator) {
          return Save(fs, "/c", states[coordinator.rank()].state(), coordinator,
                      Small());
        });
    finished = fs.num_operations() - before <= n;
    EXPECT_EQ(statuses[0].code(), statuses[1].code());
    if (finished) break;  // the fault is still to come
    if (fs.Stat("/c").ok()) {
      ExpectSound(fs, "/c");
      EXPECT_EQ(LoadBytes(fs, "/c", tensor, WholeBox(tensor.shape)),
                tensor.bytes);
    } else {
      EXPECT_FALSE(statuses[0].ok());
    }
    EXPECT_EQ(fs.num_open_files(), 0u);
  }
}

// No copy may still be running into blocks that are freed.
TEST(Save, FlushesSourcesAfterAnError) {
  SimStorage fs;
  SampleState state;
  const SampleTensor big("big", DType::kFloat32, {6, 1 << 20});
  MemorySource& source = state.Add(big);
  source.FailAfter(uint64_t{13} << 20, absl::AbortedError("unplugged"));
  SingleProcessCoordinator coordinator;
  EXPECT_THAT(Save(fs, "/c", state.state(), coordinator, Small()),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("unplugged")));
  EXPECT_GT(source.num_filled_bytes(), 0u);
  EXPECT_EQ(source.num_pending(), 0u);
  EXPECT_THAT(fs.Stat("/c"), StatusIs(absl::StatusCode::kNotFound));
}

TEST(Save, StopsWithoutLitter) {
  SimStorage fs;
  SampleState state;
  state.Add(SampleTensor("a", DType::kFloat32, {3, 4}));
  SingleProcessCoordinator coordinator;
  std::stop_source stop;
  stop.request_stop();
  SaveOptions options = Small();
  options.stop = stop.get_token();
  EXPECT_THAT(Save(fs, "/c", state.state(), coordinator, options),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(fs.Stat("/c"), StatusIs(absl::StatusCode::kNotFound));
}

// A peer that sends malformed messages causes an error, not the end of the
// process.
class BabblingCoordinator final : public Coordinator {
 public:
  explicit BabblingCoordinator(std::string order) : order_(std::move(order)) {}
  int64_t rank() const override { return 1; }
  int64_t num_ranks() const override { return 2; }
  absl::StatusOr<std::vector<std::string>> Gather(std::string mine) override {
    last_ = std::move(mine);
    return std::vector<std::string>();
  }
  absl::StatusOr<std::string> Scatter(std::vector<std::string>) override {
    switch (++num_calls_) {
      case 1:
        return std::string("anew");
      case 2:
        return order_;
      default:  // this rank's own verdict
        return last_;
    }
  }

 private:
  const std::string order_;
  std::string last_;
  int num_calls_ = 0;
};

TEST(Save, RefusesOrdersThatItCannotCarryOut) {
  for (const std::string order :
       {"order __1_0.distcp\nid\n5", "order __1_0.distcp\nid\nx",
        "order __1_0.distcp", "__1_0.distcp\nid\n0", ""}) {
    SimStorage fs;
    SampleState state;
    state.Add(SampleTensor("a", DType::kFloat32, {3, 4}));
    BabblingCoordinator coordinator(order);
    EXPECT_THAT(Save(fs, "/c", state.state(), coordinator, Small()),
                StatusIs(absl::StatusCode::kDataLoss,
                         ::testing::ContainsRegex("item|an order")))
        << order;
  }
}

}  // namespace
}  // namespace dcp
