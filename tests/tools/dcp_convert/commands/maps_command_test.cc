// SPDX-License-Identifier: Apache-2.0
// `dcp-convert maps`: the built-in families, and rule files that are wrong.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "dcp/io/file_system.h"
#include "dcp/maps/builtin_mappings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/mapping/golden_models.h"
#include "tests/testing/status_matchers.h"
#include "tests/tools/dcp_convert/command_fixture.h"
#include "tools/dcp_convert/commands/commands.h"

namespace dcp {
namespace {

using ::dcp::testing::Arguments;
using ::dcp::testing::CommandFixture;
using ::dcp::testing::GoldenPath;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class MapsTest : public CommandFixture {
 protected:
  Done Run(Arguments arguments) {
    arguments.insert(arguments.begin(), "maps");
    return CommandFixture::Run(arguments);
  }

  // Returns the new file's path.
  std::string Write(const std::string& name, absl::string_view text) {
    const std::string path =
        JoinPath(dir_.path(), absl::StrCat(num_files_++, "-", name));
    EXPECT_OK(WriteFile(*fs_, path, text));
    return path;
  }

  int num_files_ = 0;
};

constexpr absl::string_view kRules = R"(tessera-mapping: 1
name: mine
config: {i: num_hidden_layers, head: num_attention_heads}
sides: {theirs: , mine: }
rules:
- theirs: {"layers.{i}.q": (head 2 r) c}
  mine: {"blocks.{i}.q": (head r 2) c}
- theirs: norm
  mine: norm
)";

TEST_F(MapsTest, ListsAndShowsFamilies) {
  EXPECT_THAT(Run({"list"}).out,
              AllOf(HasSubstr("gpt2         gpt2                  hf, plain, "
                              "megatron"),
                    HasSubstr("qwen2, qwen3")));
  EXPECT_THAT(Run({"list", "--json"}).out, HasSubstr(R"("name":"gpt2")"));
  const Done shown = Run({"show", "gpt2"});
  EXPECT_EQ(shown.code, tools::kExitDone);
  EXPECT_THAT(Run({"show", "gpt2", "--json"}).out,
              HasSubstr("tessera-mapping: 1"));
  // Users may change a copy.
  const std::string copy = Write("gpt2.yaml", shown.out);
  EXPECT_EQ(Run({"show", copy}).out, shown.out);
  EXPECT_EQ(Run({"show", "lama"}).code, tools::kExitSource);
  EXPECT_THAT(Run({"show", "lama"}).err,
              HasSubstr("'lama' is neither a rule file nor a family"));
  EXPECT_EQ(Run({"draw"}).code, tools::kExitUsage);
  EXPECT_THAT(Run({"draw"}).err,
              HasSubstr("is not list, show FAMILY, check FILE or test FILE"));
  EXPECT_EQ(Run({"list", "gpt2"}).code, tools::kExitUsage);
}

TEST_F(MapsTest, ShowsRulesWithTheSizesOfAModel) {
  const std::string config = GoldenPath("llama", "config.json");
  const Done shown = Run({"show", "llama-hf-to-megatron", "--config", config});
  EXPECT_EQ(shown.code, tools::kExitDone) << shown.err;
  EXPECT_THAT(
      shown.out,
      AllOf(HasSubstr("q = head / group = 2\n"),
            HasSubstr("llama, hf to megatron: 9 rules\n"),
            HasSubstr(", i = 0 .. 2\n  hf        model.layers.{i}.self_attn."
                      "q_proj.weight: (group=2 q=2 2 r=4) c\n"),
            HasSubstr("  megatron  decoder.layers.{i}.self_attention.linear_qkv"
                      ".weight: (group=2 (q=2 + 1 + 1) 2 r=4) c\n"),
            HasSubstr("  hf        0: pad=0 c\n"),
            HasSubstr("not for this model: the rules of lines")));
  // Without a model, and through the first side.
  const Done steps = Run({"show", "llama", "--from-side", "meta", "--to-side",
                          "megatron_local", "--set", "tied=1"});
  EXPECT_THAT(steps.out, AllOf(HasSubstr("llama, meta to hf: "),
                               HasSubstr("llama, hf to megatron_local: "),
                               HasSubstr("(group q 2 r) c"),
                               HasSubstr("if tied, meta with its copy "
                                         "output.weight")));
  EXPECT_THAT(Run({"show", "llama-hf-to-megatron", "--json"}).out,
              HasSubstr(R"("axes":"(group (q + 1 + 1) 2 r) c")"));
  EXPECT_THAT(Run({"show", "llama", "--to-side", "meta"}).err,
              HasSubstr("give both --from-side and --to-side"));
  EXPECT_THAT(Run({"show", "llama-hf-to-mars"}).err,
              HasSubstr("has no side 'mars'"));
}

TEST_F(MapsTest, EveryFamilyRoundTripsFromEverySide) {
  for (const std::string& family : BuiltinMappings()) {
    const Done checked = Run({"check", family});
    EXPECT_EQ(checked.code, tools::kExitDone) << checked.out << checked.err;
    const Done tested = Run({"test", family});
    EXPECT_EQ(tested.code, tools::kExitDone) << tested.out << tested.err;
    EXPECT_THAT(tested.out, HasSubstr("of random tensors come back as they"));
  }
}

TEST_F(MapsTest, TestsWithTheShapesOfAModel) {
  const std::string shapes = GoldenPath("qwen2", "hf.safetensors");
  const Done checked = Run({"check", "qwen", "--shapes", shapes});
  EXPECT_EQ(checked.code, tools::kExitDone) << checked.out << checked.err;
  EXPECT_THAT(checked.out,
              AllOf(HasSubstr("hf to torchtitan is left out: "),
                    HasSubstr("qwen: 6 conversions by shapes and pieces")));
  const Done tested = Run({"test", "qwen", "--shapes", shapes, "--json"});
  EXPECT_EQ(tested.code, tools::kExitDone) << tested.out << tested.err;
  EXPECT_THAT(tested.out,
              AllOf(HasSubstr(R"("ok":true)"), HasSubstr(R"("left_out")"),
                    HasSubstr(R"("from":"megatron","to":"megatron_stacked")")));
  EXPECT_EQ(Run({"test", "llama", "--shapes", shapes}).code,
            tools::kExitSource);
}

TEST_F(MapsTest, ChecksACustomRuleFile) {
  const Done good = Run({"check", Write("mine.yaml", kRules)});
  EXPECT_EQ(good.code, tools::kExitDone) << good.out << good.err;
  EXPECT_THAT(good.out, HasSubstr("mine: 2 rules between theirs, mine"));
  const struct {
    std::string from;
    std::string to;
    tools::ExitCode code;
    std::string says;
  } cases[] = {
      {"rules:", "rulez:", tools::kExitUsage, "bad.yaml:5:1"},
      // Only one side tells the size of a half.
      {"(head r 2) c", "(head r 2) c d", tools::kExitUsage, "bad.yaml:6:3"},
      // Nothing tells a and b apart when they are one dimension.
      {"(head r 2) c", "(head r 2 c)", tools::kExitFound,
       "bad.yaml:6: cannot determine the sizes of r and c in (head r 2 c)"},
      {"mine: norm", "mine: blocks.0.q", tools::kExitFound,
       "bad.yaml:8: blocks.0.q is made twice"},
      {"theirs: norm", "theirs: layers.0.q", tools::kExitFound,
       "bad.yaml:8: the rule of line 6 takes layers.0.q too"},
      {"num_hidden_layers,", "5 / 3,", tools::kExitFound,
       "no small numbers satisfy the formulas"},
  };
  for (const auto& c : cases) {
    const std::string text = absl::StrReplaceAll(kRules, {{c.from, c.to}});
    ASSERT_NE(text, kRules);
    const Done bad = Run({"check", Write("bad.yaml", text)});
    EXPECT_EQ(bad.code, c.code) << c.to << bad.out << bad.err;
    EXPECT_THAT(absl::StrCat(bad.out, bad.err), HasSubstr(c.says));
  }
  // The output names the made-up numbers, so that a failure can be repeated.
  const std::string twice =
      absl::StrReplaceAll(kRules, {{"mine: norm", "mine: blocks.0.q"}});
  EXPECT_THAT(Run({"test", Write("bad.yaml", twice)}).out,
              HasSubstr("; with --set num_"));
  EXPECT_THAT(
      Run({"check", Write("bad.yaml", twice), "--set", "num_hidden_layers=0"})
          .out,
      Not(HasSubstr("made twice")));
}

}  // namespace
}  // namespace dcp
