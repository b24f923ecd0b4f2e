// SPDX-License-Identifier: Apache-2.0
// Writers race to one destination: two or three processes at once, with every
// verb and format, saves, and a daemon's jobs. At random, one is stopped for a
// while or killed. In every case, those that succeeded exit with 0 and the
// others with a refusal's code; the destination holds a complete checkpoint
// that is, bit for bit, the one that a winner was to write; and no temporary
// file, lock file or digest file is left over. --rounds says how often.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/server_process.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

ABSL_FLAG(int, rounds, 12, "races");
ABSL_FLAG(std::string, save, "", "directory; save a model there, and end");
ABSL_FLAG(uint64_t, model, 0, "which one --save saves");
ABSL_FLAG(bool, overwrite, false, "for --save");

namespace dcp {
namespace {

using ::dcp::server::ServerProcess;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::TempDir;

constexpr uint64_t kNumModels = 4;  // the last one was there before
constexpr int kRefused = 5;         // tools/terminal/exit_code.h
constexpr int kFailed = 1;

absl::Status SaveModel(absl::string_view path, uint64_t model, bool overwrite) {
  SampleState state;
  for (const int i : {0, 1, 2, 3}) {
    state.Add(SampleTensor(absl::StrCat("layer", i, ".weight"), DType::kFloat32,
                           {64 + i, 700}, model));
  }
  SingleProcessCoordinator coordinator;
  return Save(*NewPosixFileSystem(), path, state.state(), coordinator,
              {.overwrite = overwrite, .memory_bytes = kMinMemoryBytes});
}

// Runs when this program is started with --save.
int SaveAndEnd() {
  const absl::Status status =
      SaveModel(absl::GetFlag(FLAGS_save), absl::GetFlag(FLAGS_model),
                absl::GetFlag(FLAGS_overwrite));
  if (status.ok()) return 0;
  std::cerr << status << std::endl;
  return absl::IsFailedPrecondition(status) || absl::IsAlreadyExists(status)
             ? kRefused
             : kFailed;
}

// One way to write a destination: a command's words before the source and after
// the destination; without any words, a save.
struct Way {
  std::vector<std::string> verb = {};
  std::vector<std::string> options = {};
  bool is_job = false;
};

struct Shape {
  std::string name;
  std::vector<Way> ways;
};

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes = {
      {"out.pt", {{{"consolidate"}}, {{"convert"}}, {{"dcp_to_torch"}}}},
      {"out.safetensors", {{{"consolidate"}}, {{"convert"}}}},
      {"out.hf",
       {{{"convert"}, {"--to", "safetensors"}},
        {{"consolidate"},
         {"--to", "safetensors", "--max-shard-size", "300KiB"}}}},
      {"out.dcp",
       {{{"reshard"}, {"--mesh", "shard=3"}},
        {{"convert"}, {"--to", "dcp"}},
        {{"consolidate"}, {"--to", "dcp"}},
        {{}}}}};
  for (Shape& shape : shapes) {
    const std::vector<Way> local = shape.ways;
    for (Way way : local) {
      if (way.verb.empty() || way.verb[0] == "dcp_to_torch") continue;
      way.is_job = true;
      shape.ways.push_back(way);
    }
  }
  // Two kinds of directory under one name.
  shapes.push_back({"out", shapes[2].ways});
  shapes.back().ways.insert(shapes.back().ways.end(), shapes[3].ways.begin(),
                            shapes[3].ways.end());
  return shapes;
}

// The writers to one destination, and how they ended.
struct Round {
  std::string path;
  bool one_kind = true;  // an existing destination may be replaced
  bool existed = false;
  bool overwrite = false;
  std::vector<Way> ways;  // the writer i writes model i
  std::vector<std::unique_ptr<ServerProcess>> writers;
  uint64_t victim = 0;      // which may be stopped or killed at random
  bool was_killed = false;  // the victim, before it ended
  std::vector<int> codes;
};

class RaceTest : public ::testing::Test {
 protected:
  RaceTest() {
    // Bazel's folders have longer names than a socket may have.
    DCP_CHECK(mkdtemp(sockets_.data()) != nullptr);
    listen_ = absl::StrCat("unix:", sockets_, "/s");
    std::filesystem::create_directory(dir_.Join("data"));
    std::filesystem::create_directory(place_);
    for (uint64_t model = 0; model < kNumModels; ++model) {
      EXPECT_OK(SaveModel(Source(model), model + 1, false));
    }
    daemon_ = std::make_unique<ServerProcess>(std::vector<std::string>{
        "tests/testing/programs/dcp-server",
        absl::StrCat("--root=", dir_.Join("data")),
        absl::StrCat("--state-dir=", dir_.Join("state")),
        absl::StrCat("--listen=", listen_)});
    EXPECT_TRUE(daemon_->WaitUntilItSays("event=start "));
  }
  ~RaceTest() override {
    daemon_.reset();
    std::filesystem::remove_all(sockets_);
  }

  std::string Source(uint64_t model) const {
    return dir_.Join(absl::StrCat("data/model-", model));
  }

  std::unique_ptr<ServerProcess> Start(const Way& way, const std::string& path,
                                       uint64_t model, bool overwrite) const {
    if (way.verb.empty()) {
      return std::make_unique<ServerProcess>(std::vector<std::string>{
          "/proc/self/exe", absl::StrCat("--save=", path),
          absl::StrCat("--model=", model + 1),
          absl::StrCat("--overwrite=", overwrite ? "true" : "false")});
    }
    std::vector<std::string> arguments = {"tests/testing/programs/dcp-convert"};
    arguments.insert(arguments.end(), way.verb.begin(), way.verb.end());
    arguments.push_back(Source(model));
    arguments.push_back(path);
    arguments.insert(arguments.end(), way.options.begin(), way.options.end());
    if (way.is_job) {
      arguments.push_back("--server");
      arguments.push_back(listen_);
    }
    if (overwrite) arguments.push_back("--overwrite");
    return std::make_unique<ServerProcess>(std::move(arguments));
  }

  // Which model is at the path, complete; -1 if there is none.
  int64_t ModelAt(const std::string& path) {
    if (!fs_->Stat(path).ok()) return -1;
    VerifyOptions verify;
    verify.memory_bytes = kMinMemoryBytes;
    const auto report = VerifyCheckpoint(*fs_, path, std::move(verify));
    EXPECT_OK(report);
    if (!report.ok()) return -2;
    for (const VerifyFinding& finding : report->findings) {
      ADD_FAILURE() << path << ": " << finding.name << ": " << finding.problem;
    }
    for (uint64_t model = 0; model < kNumModels; ++model) {
      DiffOptions diff;
      diff.memory_bytes = kMinMemoryBytes;
      const auto found =
          DiffCheckpoints(*fs_, Source(model), path, std::move(diff));
      EXPECT_OK(found);
      if (found.ok() && found->findings.empty()) {
        return static_cast<int64_t>(model);
      }
    }
    ADD_FAILURE() << path << " is none of the models";
    return -2;
  }

  // There is nothing but the checkpoint's files.
  void ExpectNoLitter(const std::string& path) {
    for (const auto& entry : std::filesystem::directory_iterator(place_)) {
      EXPECT_EQ(entry.path().string(), path);
    }
    if (!std::filesystem::is_directory(path)) return;
    const auto checkpoint = Checkpoint::Open(*fs_, path, {});
    ASSERT_OK(checkpoint);
    const std::vector<std::string>& names = (*checkpoint)->files().names();
    const std::set<std::string> data(names.begin(), names.end());
    int num_digests = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      const std::string name = entry.path().filename().string();
      if (absl::StartsWith(name, ".digests")) {
        ++num_digests;
      } else if (name != ".metadata" && !absl::EndsWith(name, ".index.json")) {
        EXPECT_TRUE(data.contains(name)) << name << " in " << path;
      }
    }
    EXPECT_EQ(num_digests, 1) << path;
  }

  Round StartRound(const Shape& shape);
  void RunRound(Round& round);
  std::set<int64_t> Winners(const Round& round);
  void ExpectTheWinners(const Round& round);
  void Race(const Shape& shape);

  const TempDir dir_;
  const std::string place_ = dir_.Join("data/place");
  const std::unique_ptr<FileSystem> fs_ = NewPosixFileSystem();
  std::string sockets_ = "/tmp/race-XXXXXX";
  std::string listen_;
  std::unique_ptr<ServerProcess> daemon_;
  std::mt19937_64 random_{static_cast<uint64_t>(GTEST_FLAG_GET(random_seed))};
  int num_won_ = 0;
  int num_refused_ = 0;
  int num_stopped_ = 0;
  int num_killed_ = 0;
};

// Starts the writers to one destination, which may exist before.
Round RaceTest::StartRound(const Shape& shape) {
  Round round;
  round.path = JoinPath(place_, shape.name);
  // One kind of directory does not replace the other.
  round.one_kind = shape.name != "out";
  round.existed = round.one_kind && random_() % 2 == 0;
  round.overwrite = round.one_kind && random_() % 2 == 0;
  const auto any_way = [&] {
    return shape.ways[random_() % shape.ways.size()];
  };
  if (round.existed) {
    Way way = any_way();
    way.is_job = false;
    EXPECT_EQ(Start(way, round.path, kNumModels - 1, false)->Wait(), 0);
  }
  for (uint64_t i = 0; i < 2 + random_() % 2; ++i) {
    round.ways.push_back(any_way());
  }
  for (uint64_t i = 0; i < round.ways.size(); ++i) {
    round.writers.push_back(
        Start(round.ways[i], round.path, i, round.overwrite));
  }
  return round;
}

// Disturbs one writer perhaps, and waits for all.
void RaceTest::RunRound(Round& round) {
  round.victim = random_() % round.ways.size();
  ServerProcess& victim = *round.writers[round.victim];
  // A daemon's client may die while the job continues.
  const uint64_t what = round.ways[round.victim].is_job ? 0 : random_() % 3;
  const bool stops = what == 1;
  const bool kills = what == 2;
  if (stops || kills) {
    victim.LetRun(absl::Microseconds(random_() % 60000));
    victim.Signal(stops ? SIGSTOP : SIGKILL);
  }
  round.codes.resize(round.ways.size());
  for (uint64_t i = 0; i < round.ways.size(); ++i) {
    if (stops && i == round.victim) continue;
    round.codes[i] = round.writers[i]->Wait();
  }
  if (stops) {
    // All others have ended, so the one in the middle continues alone.
    ++num_stopped_;
    victim.Signal(SIGCONT);
    round.codes[round.victim] = victim.Wait();
  }
  round.was_killed = kills && round.codes[round.victim] == -SIGKILL;
}

// The models from the writers that succeeded; the others were refused or
// killed.
std::set<int64_t> RaceTest::Winners(const Round& round) {
  std::set<int64_t> winners;
  for (uint64_t i = 0; i < round.ways.size(); ++i) {
    if (round.codes[i] == 0) {
      ++num_won_;
      winners.insert(static_cast<int64_t>(i));
    } else if (!round.was_killed || i != round.victim) {
      ++num_refused_;
      EXPECT_EQ(round.codes[i], kRefused) << round.writers[i]->said();
    }
  }
  EXPECT_FALSE(round.existed && !round.overwrite && !winners.empty());
  if (!round.overwrite && !round.existed && !round.was_killed) {
    EXPECT_EQ(winners.size(), 1u);
  }
  return winners;
}

// The destination holds a winner's checkpoint; the next run removes files that
// a dead writer left.
void RaceTest::ExpectTheWinners(const Round& round) {
  std::set<int64_t> allowed = Winners(round);
  const bool has_winner = !allowed.empty();
  if (!has_winner) allowed.insert(round.existed ? int64_t{kNumModels} - 1 : -1);
  if (round.was_killed) {
    ++num_killed_;
    // killed after the commit
    allowed.insert(static_cast<int64_t>(round.victim));
  }
  if (round.was_killed && !has_winner && !round.existed &&
      !fs_->Stat(JoinPath(round.path, ".metadata")).ok() &&
      std::filesystem::is_directory(round.path)) {
    // A directory without .metadata is a DCP checkpoint that is still being
    // written, unless it opens as another format.
    if (!Checkpoint::Open(*fs_, round.path, {}).ok()) allowed = {};
  }
  if (!allowed.empty()) {
    EXPECT_TRUE(allowed.contains(ModelAt(round.path)));
  }
  if (round.was_killed && (round.one_kind || !has_winner)) {
    std::unique_ptr<ServerProcess> next =
        Start(round.ways[round.victim], round.path, 0,
              round.overwrite || !allowed.empty());
    EXPECT_EQ(next->Wait(), 0) << next->said();
    EXPECT_EQ(ModelAt(round.path), 0);
  }
  if (!round.was_killed || round.one_kind || !has_winner) {
    ExpectNoLitter(round.path);
  }
}

void RaceTest::Race(const Shape& shape) {
  Round round = StartRound(shape);
  std::vector<std::string> words = {shape.name,
                                    round.existed ? "existed" : "new",
                                    round.overwrite ? "overwrite" : "keep"};
  for (const Way& way : round.ways) {
    words.push_back(
        absl::StrCat(absl::StrJoin(way.verb, ""), way.is_job ? "(job)" : ""));
  }
  SCOPED_TRACE(absl::StrJoin(words, " "));
  if (HasFailure()) return;
  RunRound(round);
  ExpectTheWinners(round);
  std::filesystem::remove_all(place_);
  std::filesystem::create_directory(place_);
}

TEST_F(RaceTest, OneWriterWins) {
  SCOPED_TRACE(
      absl::StrCat("--gtest_random_seed=", GTEST_FLAG_GET(random_seed)));
  const std::vector<Shape> shapes = Shapes();
  const int rounds = absl::GetFlag(FLAGS_rounds);
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    Race(shapes[static_cast<size_t>(round) % shapes.size()]);
    if (HasFailure()) return;
  }
  EXPECT_GT(num_won_, 0);
  EXPECT_GT(num_refused_, 0);
  std::cout << rounds << " races: " << num_won_ << " writers won, "
            << num_refused_ << " were refused, " << num_stopped_
            << " were stopped for a while, " << num_killed_ << " killed\n";
}

}  // namespace
}  // namespace dcp

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  absl::ParseCommandLine(argc, argv);
  if (!absl::GetFlag(FLAGS_save).empty()) return dcp::SaveAndEnd();
  return RUN_ALL_TESTS();
}
