// SPDX-License-Identifier: Apache-2.0
// `dcp-convert --check` and --check-padding: the tensors that they compare, and
// the messages and files after a difference.
#include <atomic>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/mapping/golden_models.h"
#include "tests/testing/hooked_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/tools/dcp_convert/command_fixture.h"
#include "tools/dcp_convert/commands/commands.h"

namespace dcp {
namespace {

using ::dcp::testing::Arguments;
using ::dcp::testing::CommandFixture;
using ::dcp::testing::GoldenPath;
using ::dcp::testing::HookedStorage;
using ::dcp::testing::With;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CheckTest : public CommandFixture {
 protected:
  // Runs the command, and changes the last byte of `path` as soon as it is
  // there.
  Done RunAndTear(const std::string& path, const Arguments& arguments) {
    std::atomic<bool> is_torn = false;
    HookedStorage storage(*fs_, [&] {
      if (fs_->Stat(path).ok() && !is_torn.exchange(true)) {
        std::fstream file(path, std::ios::in | std::ios::out);
        file.seekg(-1, std::ios::end);
        const int last = file.get();
        file.seekp(-1, std::ios::end);
        file.put(static_cast<char>(last ^ 1));
      }
      return absl::OkStatus();
    });
    Done done = RunOn(storage, arguments);
    EXPECT_TRUE(is_torn);
    return done;
  }

  const std::string source_ = GoldenPath("llama", "hf.safetensors");
  const std::string config_ = GoldenPath("llama", "config.json");
  const Arguments map_ = {"--map", "llama-hf-to-torchtitan", "--check"};
};

TEST_F(CheckTest, ComparesThroughTheMappingAndTheCast) {
  const Done done = Run(With({"convert", source_, In("a.safetensors")}, map_));
  EXPECT_EQ(done.code, tools::kExitDone) << done.err;
  EXPECT_THAT(done.out, HasSubstr("\nequal: 21 tensors"));
  Expect(tools::kExitDone, With({"convert", source_, In("ranks"), "--to", "dcp",
                                 "--mesh", "dp=3", "--cast", "bf16"},
                                map_));
  Expect(tools::kExitDone,
         {"reshard", In("ranks"), In("back"), "--mesh", "dp=2", "--map",
          "llama-torchtitan-to-hf", "--config", config_, "--rename",
          "s/^model/m/", "--exclude", "lm_head.*", "--check"});
  Expect(tools::kExitDone,
         {"consolidate", In("back"), In("back.pt"), "--check"});
}

TEST_F(CheckTest, ComparesEncodedTensors) {
  const Arguments encode = {
      "--map",    "deepseek-v3-torchtitan-to-hf",
      "--encode", "fp8-128",
      "--config", GoldenPath("deepseek_v3", "config.json")};
  Expect(tools::kExitDone,
         {"convert", GoldenPath("deepseek_v3", "hf.safetensors"), In("run"),
          "--to", "dcp", "--map", "deepseek-v3-hf-to-torchtitan"});
  const Arguments convert =
      With({"convert", In("run"), In("hf.safetensors")}, encode);
  EXPECT_THAT(Run(With(convert, {"--plan"})).out, HasSubstr("arithmetic"));
  Expect(tools::kExitDone, With(convert, {"--check"}));
}

TEST_F(CheckTest, NamesADifferenceAndKeepsTheResult) {
  const std::string out = In("a.safetensors");
  const Arguments convert = With({"convert", source_, out}, map_);
  const Done done = RunAndTear(out, convert);
  EXPECT_EQ(done.code, tools::kExitFound) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("tok_embeddings.weight"),
                              HasSubstr("1 name differs: 20 tensors")));
  EXPECT_THAT(done.err,
              HasSubstr("a.safetensors stays, but differs from the source in "
                        "1 tensor: tok_embeddings.weight"));
  EXPECT_OK(fs_->Stat(out));
  ASSERT_OK(fs_->Remove(out));
  EXPECT_THAT(
      RunAndTear(out, With(convert, {"--json"})).out,
      AllOf(HasSubstr(R"("done":true)"), HasSubstr(R"("comparison":{)"),
            HasSubstr(R"("equal":false)"),
            HasSubstr(R"("name":"tok_embeddings.weight","kind":"values")")));
}

TEST_F(CheckTest, PlanOnlyMentionsTheCheck) {
  EXPECT_THAT(
      Run(With({"convert", source_, In("a.safetensors"), "--plan"}, map_)).out,
      HasSubstr("and then read both again to compare them"));
}

TEST_F(CheckTest, RefusesUncheckableConversions) {
  ExpectRefused({"convert", source_, "-", "--check"}, "cannot be read again");
  ExpectRefused(
      {"convert", source_, In("x"), "--to", "dcp", "--check", "--share", "0/2"},
      "run dcp-convert diff when all are done");
  ExpectRefused({"convert", source_, In("x"), "--to", "accelerate", "--check"},
                "accelerate gives them others");
  Expect(tools::kExitDone, {"convert", source_, In("a.safetensors")});
  const Done done = Run({"convert", In("a.safetensors"), In("a.safetensors"),
                         "--cast", "bf16", "--overwrite", "--check"});
  EXPECT_EQ(done.code, tools::kExitUsage);
  EXPECT_THAT(done.err, HasSubstr("which it replaces"));
}

// Rules for one tensor; one side treats the last rows as padding.
class PaddingTest : public CommandFixture {
 protected:
  PaddingTest() {
    EXPECT_OK(WriteFile(*fs_, In("m.yaml"), R"(tessera-mapping: 1
name: mine
params: {v: 44, pad: 6}
sides: {plain: , padded: , turned: }
rules:
- plain:
  - table: v c
  - {=0: pad c}
  padded:
  - lm_head.weight: (v + pad) c
- plain: {table: v c}
  turned: {elbat: c v}
)"));
  }

  // Leaves out the last 6 of 50 rows, which are not zero.
  Arguments Cut(const std::string& out, const std::string& to) {
    return {"convert",    GoldenPath("llama", "hf.safetensors"),
            out,          "--map-file",
            In("m.yaml"), "--from-side",
            "padded",     "--to-side",
            to,           "--unmatched",
            "drop"};
  }
};

TEST_F(PaddingTest, IsNotComparedByDefault) {
  Expect(tools::kExitDone, Cut(In("a.safetensors"), "plain"));
  for (const char* to : {"plain", "turned"}) {
    const Done done =
        Run(With(Cut(In("b.safetensors"), to), {"--check-padding"}));
    EXPECT_EQ(done.code, tools::kExitRefused);
    EXPECT_THAT(done.err, HasSubstr("leaves out the padding of lm_head.weight, "
                                    "but 192 elements of it are not zero, the "
                                    "first at [44, 0]"));
    EXPECT_FALSE(fs_->Stat(In("b.safetensors")).ok());
  }
}

TEST_F(PaddingTest, AcceptsZeroPadding) {
  const std::string source = GoldenPath("llama", "hf.safetensors");
  Expect(tools::kExitDone,
         {"convert", source, In("padded"), "--to", "dcp", "--mesh", "dp=3",
          "--map", "llama-hf-to-megatron", "--set", "vocab_multiple=64"});
  Expect(tools::kExitDone, {"convert", In("padded"), In("back.safetensors"),
                            "--map", "llama-megatron-to-hf", "--config",
                            GoldenPath("llama", "config.json"), "--set",
                            "vocab_multiple=64", "--check-padding", "--check"});
  Expect(tools::kExitDone, {"diff", source, In("back.safetensors")});
}

TEST_F(PaddingTest, WorkersCheckTheirShares) {
  int num_refused = 0;
  for (const char* share : {"0/2", "1/2"}) {
    const Done done = Run(With(Cut(In("out"), "plain"),
                               {"--to", "dcp", "--check-padding", "--share",
                                share, "--piece-size", "1MiB"}));
    num_refused += done.code == tools::kExitRefused ? 1 : 0;
  }
  EXPECT_GT(num_refused, 0);
  EXPECT_FALSE(fs_->Stat(In("out/.metadata")).ok());
}

TEST_F(PaddingTest, RequiresAMapping) {
  ExpectRefused({"convert", GoldenPath("llama", "hf.safetensors"), In("x"),
                 "--check-padding"},
                "--check-padding requires --map or --map-file");
}

}  // namespace
}  // namespace dcp
