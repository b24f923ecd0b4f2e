// SPDX-License-Identifier: Apache-2.0
// Kills ranks with SIGKILL while they save; the moment and the rank count are
// random. Every checkpoint that was reported durable before must still be
// there, complete and with the right bytes. The one being written is complete
// or not a checkpoint. The other ranks end by themselves, and the next ranks
// save to the same directory. --rounds sets how many rounds.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/tensor_source.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/save/save_plan_cache.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_ranks.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

ABSL_FLAG(int, rounds, 30, "saves that are to be cut short");

namespace dcp {
namespace {

using ::dcp::testing::MemorySink;
using ::dcp::testing::ProcessRanks;
using ::dcp::testing::RandomBytes;
using ::dcp::testing::TempDir;
using ::testing::AnyOf;

constexpr int64_t kNumRanks = 3;
constexpr int kNumSteps = 3;  // for ranks that are started together
constexpr uint64_t kRowBytes = uint64_t{1} << 20;
// Rank 0's rows do not fit in the pool: they stream through.
constexpr int64_t kFirstRow[kNumRanks + 1] = {0, 17, 19, 21};
constexpr int64_t kNumRows = kFirstRow[kNumRanks];

// The bytes for all steps: each step has a different part of them.
const std::string& Pattern() {
  static const std::string& pattern =
      *new std::string(RandomBytes(5, (kNumRows + 1) * kRowBytes));
  return pattern;
}

uint64_t PatternBegin(int64_t step) {
  return static_cast<uint64_t>(step) * 64 % kRowBytes;
}

class PatternSource final : public TensorSource {
 public:
  explicit PatternSource(uint64_t begin) : begin_(begin) {}
  absl::Status Fill(uint64_t offset, MutableByteSpan dst) override {
    std::memcpy(dst.data(), Pattern().data() + begin_ + offset, dst.size());
    return absl::OkStatus();
  }
  absl::Status Flush() override { return absl::OkStatus(); }

 private:
  const uint64_t begin_;
};

absl::Status SaveStep(FileSystem& fs, const std::string& path, int64_t step,
                      Coordinator& coordinator, const SaveOptions& options) {
  const int64_t first = kFirstRow[coordinator.rank()];
  const int64_t last = kFirstRow[coordinator.rank() + 1];
  PatternSource rows(PatternBegin(step) +
                     static_cast<uint64_t>(first) * kRowBytes);
  PatternSource whole(PatternBegin(step));  // every rank has it
  const auto row_bytes = static_cast<int64_t>(kRowBytes);
  SaveState state;
  state.tensors = {{.fqn = "rows",
                    .dtype = DType::kUInt8,
                    .shape = {kNumRows, row_bytes},
                    .box = {{first, 0}, {last - first, row_bytes}},
                    .source = &rows},
                   {.fqn = "replica",
                    .dtype = DType::kUInt8,
                    .shape = {1000},
                    .box = WholeBox({1000}),
                    .source = &whole}};
  state.objects = {{.fqn = "step", .value = Value::Int(step)}};
  return Save(fs, path, state, coordinator, options);
}

// A trainer that only saves checkpoints: each to another directory, or each
// over the previous one.
bool SaveSteps(const std::string& run, bool overwrite, int64_t first_step,
               Coordinator& coordinator, const ProcessRanks::Report& report) {
  const auto fs = NewPosixFileSystem();
  BlockPool pool(kMinBlocks);
  SavePlanCache cache;
  for (int64_t step = first_step; step < first_step + kNumSteps; ++step) {
    const absl::Status status =
        SaveStep(*fs,
                 overwrite ? absl::StrCat(run, "/latest")
                           : absl::StrCat(run, "/step-", step),
                 step, coordinator, {.pool = &pool, .plan_cache = &cache});
    if (!status.ok()) return false;
    if (coordinator.rank() == 0) report(0);
  }
  return true;
}

// Checks that the checkpoint is sound; returns which step it has, or -1.
int64_t StepAt(FileSystem& fs, const std::string& path) {
  VerifyOptions verify;
  verify.memory_bytes = kMinMemoryBytes;
  const auto report = VerifyCheckpoint(fs, path, std::move(verify));
  EXPECT_OK(report);
  if (!report.ok()) return -1;
  for (const VerifyFinding& finding : report->findings) {
    ADD_FAILURE() << path << ": " << finding.name << ": " << finding.problem;
  }
  const auto checkpoint = Checkpoint::Open(fs, path, {});
  EXPECT_OK(checkpoint);
  EXPECT_OK((*checkpoint)->LocateAll());
  int64_t step = -1;
  for (const CheckpointEntry& entry : (*checkpoint)->entries()) {
    if (entry.fqn == "step") step = entry.object()->value.int_value();
  }
  MemorySink sink(kNumRows * kRowBytes, /*direct=*/true);
  const Dims shape = {kNumRows, static_cast<int64_t>(kRowBytes)};
  EXPECT_OK(Load(fs, **checkpoint,
                 {{.fqn = "rows",
                   .dtype = DType::kUInt8,
                   .shape = shape,
                   .box = WholeBox(shape),
                   .sink = &sink}},
                 {.memory_bytes = kMinMemoryBytes}));
  EXPECT_TRUE(absl::string_view(Pattern()).substr(
                  PatternBegin(step), sink.bytes().size()) == sink.bytes())
      << path;
  return step;
}

class KillTest : public ::testing::Test {
 protected:
  // Starts ranks and kills one after `microseconds`, unless they have ended.
  // Returns whether they had.
  bool Run(bool overwrite, int64_t microseconds, int64_t victim) {
    ProcessRanks ranks(kNumRanks, [&](Coordinator& coordinator,
                                      const ProcessRanks::Report& report) {
      return SaveSteps(run_.path(), overwrite, next_step_, coordinator, report);
    });
    const bool ended = ranks.WaitFor(microseconds);
    if (!ended) ranks.Kill(victim);
    ranks.Wait();
    for (int64_t rank = 0; rank < kNumRanks; ++rank) {
      const std::string& ending = ranks.endings()[static_cast<size_t>(rank)];
      if (ended) {
        EXPECT_EQ(ending, "exit 0");
      } else if (rank != victim) {
        EXPECT_THAT(ending, AnyOf("exit 0", "exit 1")) << "rank " << rank;
      }
    }
    const auto num_durable = static_cast<int64_t>(ranks.reports().size());
    if (overwrite) {
      ExpectLatest(num_durable);
    } else {
      ExpectSteps(num_durable);
    }
    next_step_ += kNumSteps;
    return ended;
  }

  bool HasIndex(const std::string& path) {
    return fs_->Stat(JoinPath(path, ".metadata")).ok();
  }

  // Saved over the previous one: it has the last durable step or the one after
  // it.
  void ExpectLatest(int64_t num_durable) {
    const std::string path = run_.Join("latest");
    const int64_t durable =
        num_durable > 0 ? next_step_ + num_durable - 1 : latest_;
    if (durable < 0 && !HasIndex(path)) return;
    const int64_t step = StepAt(*fs_, path);
    if (step != durable) {
      EXPECT_EQ(step, next_step_ + num_durable);
      ++num_unreported_;
    }
    latest_ = step;
  }

  // Saved to separate directories: the checkpoints that were durable before,
  // those that have become durable, and perhaps one more.
  void ExpectSteps(int64_t num_durable) {
    for (int64_t i = 0; i < num_durable; ++i) steps_.push_back(next_step_ + i);
    const int64_t torn = next_step_ + num_durable;
    if (HasIndex(StepPath(torn))) {
      ++num_unreported_;
      steps_.push_back(torn);
    } else {
      std::filesystem::remove_all(StepPath(torn));
    }
    for (const int64_t step : steps_) {
      EXPECT_EQ(StepAt(*fs_, StepPath(step)), step);
    }
    while (steps_.size() > 1) {
      std::filesystem::remove_all(StepPath(steps_.front()));
      steps_.erase(steps_.begin());
    }
  }

  std::string StepPath(int64_t step) const {
    return run_.Join(absl::StrCat("step-", step));
  }

  const TempDir run_;
  const std::unique_ptr<FileSystem> fs_ = NewPosixFileSystem();
  int64_t next_step_ = 1;
  int64_t latest_ = -1;         // in "latest"; -1: nothing yet
  std::vector<int64_t> steps_;  // in directories, rising
  int num_unreported_ = 0;      // durable, but killed before it was reported
};

TEST_F(KillTest, LosesNothingDurable) {
  SetLogSink([](LogSeverity, absl::string_view) {});  // about files left behind
  using Clock = std::chrono::steady_clock;
  const auto seed = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed));
  SCOPED_TRACE(absl::StrCat("--gtest_random_seed=", seed));
  std::mt19937_64 random(seed);
  Pattern();
  int64_t microseconds = 0;  // that undisturbed ranks need
  for (const bool overwrite : {false, true}) {
    const auto begin = Clock::now();
    EXPECT_TRUE(Run(overwrite, int64_t{1} << 40, 0));
    microseconds = std::chrono::duration_cast<std::chrono::microseconds>(
                       Clock::now() - begin)
                       .count();
  }
  const int rounds = absl::GetFlag(FLAGS_rounds);
  int num_cut = 0;
  for (int round = 0; num_cut < rounds && round < 4 * rounds; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const auto after =
        static_cast<int64_t>(random() % static_cast<uint64_t>(microseconds));
    const auto victim = static_cast<int64_t>(random() % kNumRanks);
    if (!Run(random() % 2 == 0, after, victim)) ++num_cut;
    if (HasFailure()) return;
  }
  EXPECT_EQ(num_cut, rounds);
  std::cout << num_cut << " times a rank was killed in a save; "
            << num_unreported_ << " of those saves were durable already\n";
}

}  // namespace
}  // namespace dcp

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  absl::ParseCommandLine(argc, argv);
  return RUN_ALL_TESTS();
}
