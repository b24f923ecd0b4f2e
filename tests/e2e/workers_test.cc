// SPDX-License-Identifier: Apache-2.0
// dcp-convert processes share a conversion and are killed at random. In every
// case, workers that are started again, in another number, end the work; the
// result is, byte for byte, the same as one worker's, and nothing is left over.
// --rounds says how often.
#include <utime.h>

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/io/file_system.h"
#include "gtest/gtest.h"
#include "tests/server/server_process.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

ABSL_FLAG(int, rounds, 3, "conversions of each kind");

namespace dcp {
namespace {

using ::dcp::server::ServerProcess;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::TempDir;

// tools/terminal/exit_code.h
constexpr int kUsage = 2;
constexpr int kDestination = 4;
constexpr int kRefused = 5;

using Tree = std::map<std::string, std::string>;

struct Kind {
  std::string name;
  std::vector<std::string> options;
};

std::vector<Kind> Kinds() {
  return {{"dcp", {"--to", "dcp", "--mesh", "shard=3"}},
          {"model.pt", {}},
          {"hf", {"--to", "safetensors", "--max-shard-size", "1MB"}}};
}

class WorkersTest : public ::testing::Test {
 protected:
  WorkersTest() {
    SampleState state;
    for (int i = 0; i < 24; ++i) {
      state.Add(SampleTensor(absl::StrCat("layer", i, ".weight"),
                             DType::kFloat32, {64 + i, 500}, 1));
    }
    SingleProcessCoordinator coordinator;
    EXPECT_OK(Save(*fs_, src_, state.state(), coordinator,
                   {.memory_bytes = kMinMemoryBytes}));
  }

  std::string Place(absl::string_view name) const {
    const std::string place = dir_.Join(name);
    std::filesystem::create_directory(place);
    return place;
  }

  std::vector<std::string> Words(const Kind& kind, const std::string& place,
                                 int index, int count) const {
    std::vector<std::string> words = {"tests/testing/programs/dcp-convert",
                                      "convert", src_,
                                      JoinPath(place, kind.name)};
    words.insert(words.end(), kind.options.begin(), kind.options.end());
    for (const char* word : {"--max-memory", "16MiB", "--piece-size", "100KiB",
                             "--progress", "none", "--share"}) {
      words.push_back(word);
    }
    words.push_back(absl::StrCat(index, "/", count));
    return words;
  }

  // All workers; the first `num_victims` are killed at random.
  void RunWorkers(const Kind& kind, const std::string& place, int count,
                  int num_victims) {
    std::vector<std::unique_ptr<ServerProcess>> workers;
    for (int i = 0; i < count; ++i) {
      workers.push_back(
          std::make_unique<ServerProcess>(Words(kind, place, i, count)));
    }
    for (int i = 0; i < num_victims; ++i) {
      workers[static_cast<size_t>(i)]->LetRun(
          absl::Microseconds(std::uniform_int_distribution(0, 60000)(random_)));
      workers[static_cast<size_t>(i)]->Kill();
    }
    for (int i = num_victims; i < count; ++i) {
      EXPECT_EQ(workers[static_cast<size_t>(i)]->Wait(), 0)
          << workers[static_cast<size_t>(i)]->said();
    }
  }

  static Tree Read(const std::string& place) {
    Tree tree;
    const std::unique_ptr<FileSystem> fs = NewPosixFileSystem();
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(place)) {
      const std::string name = entry.path().lexically_relative(place).string();
      // The result's mark, which names its inode; and the lock file from a
      // worker that was killed when everything was done.
      if (name.starts_with(".") && absl::EndsWith(name, ".done")) continue;
      if (absl::EndsWith(name, ".lock")) continue;
      tree[name] = entry.is_directory()
                       ? "directory"
                       : *ReadFile(*fs, entry.path().string(), UINT64_MAX,
                                   /*follow_symlinks=*/false);
    }
    return tree;
  }

  const TempDir dir_;
  const std::string src_ = dir_.Join("model");
  const std::unique_ptr<FileSystem> fs_ = NewPosixFileSystem();
  std::mt19937_64 random_{static_cast<uint64_t>(GTEST_FLAG_GET(random_seed))};
};

TEST_F(WorkersTest, SurviveKillsAndRestartsInAnotherNumber) {
  std::cout << "seed " << GTEST_FLAG_GET(random_seed) << std::endl;
  for (const Kind& kind : Kinds()) {
    const std::string alone = Place(absl::StrCat("alone-", kind.name));
    RunWorkers(kind, alone, 1, 0);
    const Tree expected = Read(alone);
    ASSERT_OK_AND_ASSIGN(
        const DiffReport diff,
        DiffCheckpoints(*fs_, src_, JoinPath(alone, kind.name), {}));
    EXPECT_TRUE(diff.findings.empty());
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      SCOPED_TRACE(absl::StrCat(kind.name, " round ", round));
      const std::string place = Place(absl::StrCat(kind.name, "-", round));
      const int count = std::uniform_int_distribution(1, 7)(random_);
      RunWorkers(kind, place, count,
                 std::uniform_int_distribution(1, count)(random_));
      RunWorkers(kind, place, std::uniform_int_distribution(1, 7)(random_), 0);
      // The worker that held the commit's lock may have been killed with it.
      RunWorkers(kind, place, 1, 0);
      const Tree found = Read(place);
      EXPECT_TRUE(found == expected);
      for (const auto& [name, bytes] : found) {
        EXPECT_TRUE(expected.contains(name)) << name;
      }
      for (const auto& [name, bytes] : expected) {
        EXPECT_TRUE(found.contains(name)) << name;
      }
      if (HasFailure()) return;
      std::filesystem::remove_all(place);
    }
  }
}

// Runs to the end: whether it prints `text`, and exits with `code`.
void ExpectEnd(std::vector<std::string> words, int code,
               absl::string_view text) {
  ServerProcess process(std::move(words));
  EXPECT_TRUE(process.WaitUntilItSays(text)) << process.said();
  EXPECT_EQ(process.Wait(), code) << process.said();
}

std::vector<std::string> Tool(std::vector<std::string> words) {
  words.insert(words.begin(), "tests/testing/programs/dcp-convert");
  return words;
}

TEST_F(WorkersTest, AnotherPlanIsRefusedUntilTheFirstIsDiscarded) {
  const Kind kind = Kinds()[0];
  const std::string place = Place("plans");
  const std::string dst = JoinPath(place, kind.name);
  ExpectEnd(Tool({"workers", dst}), 3, "no worker has begun");
  ExpectEnd(Words(kind, place, 0, 2), 0, "left to other workers");
  ExpectEnd(Tool({"workers", dst}), 0, " pieces done, ");
  ExpectEnd(Tool({"workers", dst, "--json"}), 0, "\"complete\":false");
  std::vector<std::string> words = Words(kind, place, 1, 2);
  words.push_back("--cast");
  words.push_back("bf16");
  ExpectEnd(words, kRefused, "another plan");
  ExpectEnd(Tool({"workers", dst, "--wait", "--wait-for", "1"}), kDestination,
            "missing; start the workers");
  ExpectEnd(Tool({"workers", dst, "--discard"}), kRefused, "end all workers");
  // As if a minute had passed.
  const utimbuf old = {.actime = std::time(nullptr) - 100,
                       .modtime = std::time(nullptr) - 100};
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(place)) {
    ASSERT_EQ(utime(entry.path().c_str(), &old), 0);
  }
  ExpectEnd(Tool({"workers", dst, "--discard"}), 0, "discarded");
  EXPECT_TRUE(std::filesystem::is_empty(dst));
  ExpectEnd(words, 0, "left to other workers");
}

TEST_F(WorkersTest, WaitEndsWhenTheLastWorkerDoes) {
  const Kind kind = Kinds()[1];
  const std::string place = Place("wait");
  const std::string dst = JoinPath(place, kind.name);
  ServerProcess watch({"tests/testing/programs/dcp-convert", "workers", dst,
                       "--wait", "--json"});
  std::vector<std::string> words = Words(kind, place, 0, 2);
  words.push_back("--wait");
  ServerProcess first(words);
  ServerProcess second(Words(kind, place, 1, 2));
  EXPECT_EQ(second.Wait(), 0);
  EXPECT_TRUE(first.WaitUntilItSays("the checkpoint is there"));
  EXPECT_EQ(first.Wait(), 0);
  EXPECT_TRUE(watch.WaitUntilItSays("\"complete\":true"));
  EXPECT_EQ(watch.Wait(), 0);
}

TEST_F(WorkersTest, TheLauncherSetsTheShare) {
  const std::string dst = dir_.Join("launched.pt");
  const std::vector<std::string> words = {"/usr/bin/env",
                                          "-i",
                                          "JOB_COMPLETION_INDEX=0",
                                          "tests/testing/programs/dcp-convert",
                                          "convert",
                                          src_,
                                          dst,
                                          "--workers"};
  ExpectEnd(words, kUsage, "--num-workers");
  std::vector<std::string> more = words;
  more.push_back("--num-workers");
  more.push_back("1");
  ExpectEnd(more, 0, "the checkpoint is there");
  EXPECT_TRUE(std::filesystem::exists(dst));
}

}  // namespace
}  // namespace dcp

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  absl::ParseCommandLine(argc, argv);
  return RUN_ALL_TESTS();
}
