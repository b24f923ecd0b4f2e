// SPDX-License-Identifier: Apache-2.0
// The losses of a checkpoint: each verb that opens one prints them, and lists
// them in JSON.
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/golden.h"
#include "tests/tools/dcp_convert/command_fixture.h"
#include "tools/dcp_convert/commands/commands.h"

namespace dcp {
namespace {

using ::dcp::testing::Arguments;
using ::dcp::testing::CommandFixture;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::With;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LossesTest : public CommandFixture {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < 3; ++rank) {
      std::filesystem::remove(absl::StrCat(source_,
                                           "/global_step1/zero_pp_rank_", rank,
                                           "_mp_rank_00_optim_states.pt"));
    }
    Expect(tools::kExitDone, {"convert", source_, In("same")});
    std::string rules =
        "tessera-mapping: 1\nname: small\nconfig: {i: num_hidden_layers}\n"
        "sides: {theirs: , mine: }\nrules:\n";
    for (const char* name : {"scale", "seen", "embed.weight", "head.weight",
                             "norm.weight", "norm.bias", "adapter.weight",
                             "adapter.bias", "layers.{i}.norm.weight",
                             "layers.{i}.norm.bias", "layers.{i}.up.weight",
                             "layers.{i}.up.bias", "layers.{i}.down.weight"}) {
      absl::StrAppend(&rules, "- theirs: \"model.", name, "\"\n  mine: \"",
                      name, "\"\n");
    }
    rules_ = dir_.WriteFile("small.yaml", rules);
  }

  // Every verb that opens a checkpoint. Their files have names that begin with
  // `out`.
  std::vector<Arguments> Verbs(const std::string& out) {
    const auto at = [&](const char* name) { return In(out + name); };
    return {
        {"inspect", source_},
        {"verify", source_},
        {"verify", source_, "--share", "0/1", "--records", at("records")},
        {"diff", source_, In("same")},
        {"convert", source_, at("a"), "--plan"},
        {"convert", source_, at("b")},
        {"convert", source_, at("c.pt"), "--check"},
        {"reshard", source_, at("d"), "--mesh", "shard=2"},
        {"reshard", source_, at("e"), "--mesh", "shard=2", "--share", "0/1"},
        {"consolidate", source_, at("f.pt")},
        {"torch_to_dcp", source_, at("g")},
        {"dcp_to_torch", source_, at("h.pt")},
        {"convert", source_, at("i"), "--map-file", rules_, "--to-side",
         "mine"},
        {"maps", "check", rules_, "--shapes", source_},
        {"maps", "test", rules_, "--shapes", source_}};
  }

  std::string rules_;
  const std::string source_ = CopyGolden(dir_, "dialects/deepspeed/zero2_ws3");
};

TEST_F(LossesTest, EveryVerbPrintsThem) {
  for (const Arguments& verb : Verbs("text_")) {
    SCOPED_TRACE(absl::StrJoin(verb, " "));
    const Done done = Run(verb);
    EXPECT_EQ(done.code, tools::kExitDone) << done.err;
    EXPECT_THAT(done.out + done.err,
                AllOf(HasSubstr("warning"),
                      HasSubstr("*_optim_states.pt are missing")));
  }
}

TEST_F(LossesTest, AreInTheJsonOfEveryVerb) {
  for (const Arguments& verb : Verbs("json_")) {
    SCOPED_TRACE(absl::StrJoin(verb, " "));
    const Done done = Run(With(verb, {"--json"}));
    EXPECT_EQ(done.code, tools::kExitDone) << done.err;
    EXPECT_THAT(done.out, HasSubstr("optim_states.pt are missing"));
    EXPECT_THAT(done.out, HasSubstr("\"warnings\":["));
  }
}

TEST_F(LossesTest, OfShapesNeedAnOption) {
  const std::string flat =
      CopyGolden(dir_, "dialects/accelerate/accelerate_fsdp1_local_ws3");
  const Arguments convert = {"consolidate", flat,     In("hf"), "--to",
                             "safetensors", "--part", "model"};
  const Done refused = Run(convert);
  EXPECT_EQ(refused.code, tools::kExitRefused);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("flat parameters of FSDP1"),
                                 HasSubstr("--like or --layout"),
                                 HasSubstr("--allow-losses"),
                                 Not(HasSubstr("the option "))));
  EXPECT_FALSE(fs_->Stat(In("hf")).ok());
  const Done done = Run(With(convert, {"--allow-losses"}));
  EXPECT_EQ(done.code, tools::kExitDone);
  EXPECT_THAT(done.err, HasSubstr(absl::StrCat("warning: ", flat)));
}

}  // namespace
}  // namespace dcp
