// SPDX-License-Identifier: Apache-2.0
// `dcp-convert --map` on tiny models from every family, against the programs'
// own results: from one file, from ranks to other ranks and back, and compared
// by `diff`.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/mapping/golden_models.h"
#include "tests/dcp/maps/golden_pairs.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/tools/dcp_convert/command_fixture.h"
#include "tools/dcp_convert/commands/commands.h"

namespace dcp {
namespace {

using ::dcp::testing::Arguments;
using ::dcp::testing::CommandFixture;
using ::dcp::testing::GoldenLines;
using ::dcp::testing::GoldenPair;
using ::dcp::testing::GoldenPairs;
using ::dcp::testing::GoldenPath;
using ::dcp::testing::LinesOf;
using ::dcp::testing::TensorsIn;
using ::dcp::testing::With;
using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

class MapPairTest : public CommandFixture,
                    public ::testing::WithParamInterface<GoldenPair> {
 protected:
  // `more`, and the options that map `from` to `to`.
  static Arguments Mapped(Arguments more, const std::string& from,
                          const std::string& to) {
    const GoldenPair& pair = GetParam();
    more.insert(more.end(),
                {"--map", absl::StrCat(pair.mapping, "-", from, "-to-", to),
                 "--config", GoldenPath(pair.model, "config.json")});
    for (const auto& [name, value] : pair.settings) {
      more.insert(more.end(), {"--set", absl::StrCat(name, "=", value)});
    }
    return more;
  }
};

TEST_P(MapPairTest, EqualsTheProgramsResultFromFilesAndRanks) {
  const GoldenPair& pair = GetParam();
  const std::string source =
      GoldenPath(pair.model, absl::StrCat(pair.file, ".safetensors"));
  const std::string& side = pair.side;
  Expect(tools::kExitDone,
         Mapped({"convert", source, In("there.safetensors")}, "hf", side));
  if (!pair.judge.empty()) {
    EXPECT_THAT(LinesOf(TensorsIn(In("there.safetensors"))),
                ElementsAreArray(GoldenLines(pair.model, pair.judge)));
  }
  // Between ranks with shards that cut groups and heads.
  Expect(tools::kExitDone,
         {"convert", source, In("ranks"), "--to", "dcp", "--mesh", "dp=3"});
  Expect(tools::kExitDone,
         Mapped({"reshard", In("ranks"), In("others"), "--mesh", "dp=5"}, "hf",
                side));
  Expect(tools::kExitDone,
         {"diff", In("there.safetensors"), In("others"), "--tensors-only"});
  // Back to ranks again, and to a .pt file.
  Expect(tools::kExitDone,
         Mapped({"reshard", In("others"), In("back"), "--mesh", "dp=2"}, side,
                "hf"));
  Expect(tools::kExitDone, {"diff", source, In("back"), "--tensors-only"});
  Expect(
      tools::kExitDone,
      Mapped({"convert", In("there.safetensors"), In("back.pt")}, side, "hf"));
  Expect(tools::kExitDone, {"diff", source, In("back.pt"), "--tensors-only"});
  // A conversion is checked by comparing across it.
  Expect(tools::kExitDone,
         Mapped({"diff", source, In("others"), "--tensors-only"}, "hf", side));
}

INSTANTIATE_TEST_SUITE_P(All, MapPairTest, ::testing::ValuesIn(GoldenPairs()));

class MapOptionsTest : public CommandFixture {
 protected:
  const std::string source_ = GoldenPath("llama", "hf.safetensors");
  const std::string config_ = GoldenPath("llama", "config.json");
};

// A directory in the format torch_dist, with Megatron-core's own index.
TEST_F(MapOptionsTest, ReadsMegatronCoreCheckpoints) {
  const std::string saved =
      testing::CopyGolden(dir_, "mappings/llama/megatron_dist");
  const auto mapped = [&](Arguments more, const std::string& to) {
    return With(std::move(more),
                {"--map", absl::StrCat("llama-megatron_stacked-to-", to),
                 "--config", config_});
  };
  Expect(tools::kExitDone,
         mapped({"convert", saved, In("hf.safetensors")}, "hf"));
  Expect(tools::kExitDone, {"diff", source_, In("hf.safetensors")});
  Expect(tools::kExitDone,
         mapped({"reshard", saved, In("ranks"), "--mesh", "dp=3"}, "hf"));
  Expect(tools::kExitDone, {"diff", source_, In("ranks"), "--tensors-only"});
  Expect(tools::kExitDone,
         mapped({"diff", saved, source_, "--tensors-only"}, "hf"));
  Expect(tools::kExitDone,
         mapped({"convert", saved, In("titan.safetensors")}, "torchtitan"));
  EXPECT_THAT(LinesOf(TensorsIn(In("titan.safetensors"))),
              ElementsAreArray(GoldenLines("llama", "torchtitan")));
}

// Between two sides other than transformers.
TEST_F(MapOptionsTest, PairsOfOtherProgramsEqualTheirResults) {
  const struct {
    std::string family;
    std::string model;
    std::string file;
    std::string from;
    std::string to;
    std::string judge;  // file for `to`; none made a Megatron state
  } pairs[] = {
      {"llama", "llama", "hf", "torchtitan", "megatron_stacked",
       "megatron_dist"},
      {"llama", "llama", "hf_optim", "torchtitan", "megatron_stacked", ""},
      {"qwen3-moe", "qwen3_moe", "hf", "hf5", "torchtitan", "torchtitan"},
  };
  for (const auto& pair : pairs) {
    SCOPED_TRACE(absl::StrCat(pair.model, " ", pair.file));
    const auto mapped = [&](Arguments more, const std::string& from,
                            const std::string& to) {
      Expect(tools::kExitDone,
             With(std::move(more),
                  {"--map", absl::StrCat(pair.family, "-", from, "-to-", to),
                   "--config", GoldenPath(pair.model, "config.json"),
                   "--overwrite"}));
    };
    const std::string hub =
        GoldenPath(pair.model, absl::StrCat(pair.file, ".safetensors"));
    const std::string mesh = "--mesh";
    mapped({"convert", hub, In("from"), "--to", "dcp", mesh, "dp=3"}, "hf",
           pair.from);
    mapped({"reshard", In("from"), In("to"), mesh, "dp=5"}, pair.from, pair.to);
    mapped({"convert", hub, In("to.safetensors")}, "hf", pair.to);
    Expect(tools::kExitDone,
           {"diff", In("to"), In("to.safetensors"), "--tensors-only"});
    if (!pair.judge.empty()) {
      EXPECT_THAT(LinesOf(TensorsIn(In("to.safetensors"))),
                  ElementsAreArray(GoldenLines(pair.model, pair.judge)));
    }
    mapped({"reshard", In("to"), In("back"), mesh, "dp=2"}, pair.to, pair.from);
    Expect(tools::kExitDone,
           {"diff", In("from"), In("back"), "--tensors-only"});
  }
}

TEST_F(MapOptionsTest, MappingToTheSourcesSideNamesTheAlternative) {
  for (const Arguments& map :
       {Arguments{"auto", "--to-side", "hf"}, Arguments{"llama-hf-to-hf"}}) {
    const Done done = Run(With({"convert", source_, In("same.safetensors"),
                                "--config", config_, "--map"},
                               map));
    EXPECT_EQ(done.code, tools::kExitSource);
    EXPECT_THAT(done.err, AllOf(HasSubstr(source_),
                                HasSubstr("hf into itself: leave the "
                                          "mapping out, or choose"),
                                HasSubstr("torchtitan")));
  }
}

// The config.json is in the snapshot.
TEST_F(MapOptionsTest, MapsAFolderInTheHubCache) {
  const std::string hub = In("models--org--name");
  const std::string snapshot = JoinPath(hub, "snapshots/0123abcd");
  std::filesystem::create_directories(snapshot);
  std::filesystem::copy(source_, snapshot + "/model.safetensors");
  std::filesystem::copy(config_, snapshot + "/config.json");
  Expect(tools::kExitDone, {"convert", hub, In("titan.safetensors"), "--map",
                            "auto", "--to-side", "torchtitan"});
  EXPECT_THAT(LinesOf(TensorsIn(In("titan.safetensors"))),
              ElementsAreArray(GoldenLines("llama", "torchtitan")));
}

TEST_F(MapOptionsTest, TakesARuleFile) {
  ASSERT_OK(WriteFile(*fs_, In("mine.yaml"), R"(tessera-mapping: 1
name: mine
config: {i: num_hidden_layers}
sides: {theirs: , mine: }
rules:
- theirs: model.layers.{i}.self_attn.q_proj.weight
  mine: blocks.{i}.q
)"));
  Expect(tools::kExitDone,
         {"convert", source_, In("out.safetensors"), "--map-file",
          In("mine.yaml"), "--from-side", "theirs", "--to-side", "mine",
          "--unmatched", "drop", "--at", "mine=model."});
  const auto tensors = TensorsIn(In("out.safetensors"));
  ASSERT_FALSE(tensors.empty());
  EXPECT_EQ(tensors[0].tensor.name, "model.blocks.0.q");
}

// The example in docs/mappings.md.
TEST_F(MapOptionsTest, ManualExampleRoundTrips) {
  ASSERT_OK_AND_ASSIGN(const std::string manual,
                       ReadFile(*fs_, "docs/mappings.md", 1 << 20, true));
  const std::string begin = "```yaml\n";
  const size_t first = manual.find(begin) + begin.size();
  const std::string rules =
      manual.substr(first, manual.find("```", first) - first);
  ASSERT_OK(WriteFile(*fs_, In("mine.yaml"), rules));
  const auto convert = [&](const std::string& src, const std::string& dst,
                           const std::string& from, const std::string& to) {
    Expect(tools::kExitDone,
           {"convert", src, dst, "--map-file", In("mine.yaml"), "--from-side",
            from, "--to-side", to, "--config", config_});
  };
  convert(source_, In("mine.safetensors"), "hf", "mine");
  const auto tensors = TensorsIn(In("mine.safetensors"));
  ASSERT_FALSE(tensors.empty());
  EXPECT_EQ(tensors[0].tensor.name, "blocks.0.attention.out.weight");
  convert(In("mine.safetensors"), In("back.safetensors"), "mine", "hf");
  Expect(tools::kExitDone, {"diff", source_, In("back.safetensors")});
}

// The family and the source's side come from config.json and the names.
TEST_F(MapOptionsTest, DetectsTheSpellingOfTheSource) {
  Arguments there = {"convert",    source_, In("titan.safetensors"),
                     "--map",      "auto",  "--to-side",
                     "torchtitan", "--at",  "torchtitan=model."};
  Expect(tools::kExitDone, there);
  const Arguments back = {"convert",
                          In("titan.safetensors"),
                          In("back.safetensors"),
                          "--to-side",
                          "hf",
                          "--config",
                          config_,
                          "--at",
                          "torchtitan=model."};
  for (const Arguments& map :
       {Arguments{"--map", "auto"}, Arguments{"--map", "llama"},
        Arguments{"--map", "auto", "--from-side", "torchtitan"}}) {
    Expect(tools::kExitDone, With(With(back, map), {"--overwrite"}));
    Expect(tools::kExitDone, {"diff", source_, In("back.safetensors")});
  }
  EXPECT_THAT(Run({"diff", source_, In("titan.safetensors"), "--map", "auto",
                   "--to-side", "torchtitan", "--at", "torchtitan=model."})
                  .out,
              HasSubstr("equal"));
  // transformers and nanoGPT give GPT-2 the same names.
  const Done both =
      Run({"convert", GoldenPath("gpt2", "hf.safetensors"), In("x.safetensors"),
           "--map", "auto", "--to-side", "megatron"});
  EXPECT_EQ(both.code, tools::kExitUsage);
  EXPECT_THAT(both.err, HasSubstr("the source is spelled as hf and as plain: "
                                  "say --from-side"));
  // Another model, and a checkpoint that is not there.
  const Done other =
      Run({"convert", GoldenPath("gpt2", "hf.safetensors"), In("x.safetensors"),
           "--map", "llama", "--to-side", "hf"});
  EXPECT_EQ(other.code, tools::kExitSource);
  EXPECT_THAT(other.err, HasSubstr("no side of the mapping llama knows all "
                                   "names of the source: hf has no "));
  const Done missing =
      Run({"convert", In("none.safetensors"), In("x.safetensors"), "--map",
           "llama", "--to-side", "hf"});
  EXPECT_EQ(missing.code, tools::kExitSource);
}

TEST_F(MapOptionsTest, PlanDescribesEachRule) {
  Arguments plan = {"convert", source_,  In("out"), "--to",
                    "dcp",     "--plan", "--map",   "llama-hf-to-megatron"};
  EXPECT_THAT(
      Run(plan).out,
      AllOf(HasSubstr("llama, hf to megatron"),
            HasSubstr("  6 -> 2   16.4 kB  box     1.00  [32, 32], "
                      "[16, 32], [16, 32] -> [64, 32]  "),
            HasSubstr("self_attention.linear_qkv.weight"),
            HasSubstr("from config.json: head_dim = 8, num_attention_heads")));
  plan.push_back("--json");
  EXPECT_THAT(Run(plan).out,
              AllOf(HasSubstr(R"("to":"megatron","digest":")"),
                    HasSubstr(R"("config":{"head_dim":8,)"),
                    HasSubstr(R"("num_instances":2,"num_sources":6,)"
                              R"("num_destinations":2,"num_bytes":16384,)"
                              R"("class":"box","read_ratio":1.0})")));
  EXPECT_FALSE(fs_->Stat(In("out")).ok());
}

// One rule makes the middle, and another takes it without reading.
TEST_F(MapOptionsTest, PlanOfTwoStepsNamesTheReadingRule) {
  Expect(tools::kExitDone,
         {"convert", GoldenPath("gpt_oss", "hf.safetensors"),
          In("there.safetensors"), "--map", "gpt-oss-hf-to-torchtitan"});
  const Done plan =
      Run({"convert", In("there.safetensors"), In("out"), "--to", "dcp",
           "--map", "gpt-oss-torchtitan-to-megatron_stacked", "--config",
           GoldenPath("gpt_oss", "config.json"), "--plan"});
  EXPECT_THAT(
      plan.out,
      AllOf(HasSubstr("  2 -> 2    41.0 kB  strided   1.00  [4, 40, 32] "
                      "-> [4, 32, 40]  "),
            HasSubstr("  2 -> 1    41.0 kB  strided         2 x [4, 32, "
                      "40] -> [2, 4, 40, 32]  ")));
}

TEST_F(MapOptionsTest, ReadsTheConfigNextToTheSource) {
  Expect(tools::kExitDone, {"convert", source_, In("out.safetensors"), "--map",
                            "llama-hf-to-torchtitan"});
  Expect(tools::kExitDone, {"convert", source_, In("alone.safetensors")});
  const Done done = Run({"convert", In("alone.safetensors"), In("x"), "--to",
                         "dcp", "--map", "llama-hf-to-torchtitan"});
  EXPECT_EQ(done.code, tools::kExitSource);
  EXPECT_THAT(done.err, HasSubstr("num_attention_heads"));
}

TEST_F(MapOptionsTest, AtOptionAddsPrefixes) {
  const std::string states = GoldenPath("llama", "hf_optim.safetensors");
  Expect(tools::kExitDone,
         {"convert", states, In("there.safetensors"), "--map",
          "llama-hf-to-torchtitan", "--at", "torchtitan=app.model.", "--at",
          "torchtitan.states=app.optim.state."});
  for (const auto& array : TensorsIn(In("there.safetensors"))) {
    EXPECT_EQ(array.tensor.name.find("app.optim.state."), 0u)
        << array.tensor.name;
  }
  Expect(tools::kExitDone, {"diff", In("there.safetensors"), states, "--map",
                            "llama-torchtitan-to-hf", "--config", config_,
                            "--at", "torchtitan.states=app.optim.state."});
}

TEST_F(MapOptionsTest, WorkersShareAMapping) {
  const Arguments map = {"convert",
                         source_,
                         In("out"),
                         "--to",
                         "dcp",
                         "--map",
                         "llama-hf-to-megatron",
                         "--mesh",
                         "dp=3",
                         "--share"};
  for (const char* share : {"0/3", "1/3", "2/3"}) {
    EXPECT_FALSE(fs_->Stat(In("out/.metadata")).ok());
    Expect(tools::kExitDone, With(map, {share}));
  }
  Expect(tools::kExitDone, {"diff", source_, In("out"), "--map",
                            "llama-hf-to-megatron", "--tensors-only"});
}

TEST_F(MapOptionsTest, NamesMistakes) {
  const struct {
    Arguments more;
    std::string says;
  } cases[] = {
      {{"--map", "llama"}, "requires --to-side; llama has the sides hf, torch"},
      {{"--map", "auto"}, "requires --to-side; llama has the sides hf, torch"},
      {{"--map", "lama"}, "FAMILY-SIDE-to-SIDE, such as llama-hf-to-torch"},
      {{"--map", "llama-hf-to-meta", "--to-side", "hf"}, "names both sides"},
      {{"--map", "lama-hf-to-meta"}, "there are deepseek-v3"},
      {{"--map", "llama-hf-to-mars"}, "has no side 'mars'"},
      {{"--map", "llama-hf-to-meta", "--map-file", "x.yaml"},
       "exclude each other"},
      {{"--to-side", "meta"}, "--to-side requires --map"},
      {{"--map", "llama-hf-to-meta", "--at", "megatron=m."},
       "--at names the side megatron"},
      {{"--map", "llama-hf-to-meta_mp", "--at", "meta_mp.states=o."},
       "meta_mp names the states of an optimizer"},
      {{"--map", "llama-hf-to-meta", "--set", "vocab"}, "NAME=N"},
      {{"--map", "llama-hf-to-meta", "--part", "extra"}, "--part is model"},
  };
  for (const auto& [more, says] : cases) {
    const Done done =
        Run(With({"convert", source_, In("out.safetensors")}, more));
    EXPECT_EQ(done.code, tools::kExitUsage) << says;
    EXPECT_THAT(done.err, HasSubstr(says));
    EXPECT_FALSE(fs_->Stat(In("out.safetensors")).ok());
  }
}

// The embeddings of a tied model; one copy was changed.
TEST_F(MapOptionsTest, RefusesToLoseATensorThatIsNotTied) {
  const std::string tied = GoldenPath("llama_tied", "hf.safetensors");
  const Arguments map = {"--config", GoldenPath("llama_tied", "config.json")};
  Expect(tools::kExitDone, With({"convert", tied, In("there.safetensors"),
                                 "--map", "llama-hf-to-torchtitan"},
                                map));
  // lm_head.weight from another model.
  std::vector<std::string> names = {"tok_embeddings.weight", "lm_head.weight"};
  ASSERT_OK_AND_ASSIGN(std::string bytes,
                       ReadFile(*fs_, In("there.safetensors"), 1 << 30, true));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  ASSERT_OK(WriteFile(*fs_, In("torn.safetensors"), bytes));
  const auto before = TensorsIn(In("there.safetensors"));
  const auto after = TensorsIn(In("torn.safetensors"));
  size_t changed = 0;
  while (before[changed].bytes == after[changed].bytes) ++changed;
  ASSERT_TRUE(before[changed].tensor.name == names[0] ||
              before[changed].tensor.name == names[1])
      << before[changed].tensor.name;
  const Done done =
      Run(With({"convert", In("torn.safetensors"), In("back.safetensors"),
                "--map", "llama-torchtitan-to-hf", "--no-verify"},
               map));
  EXPECT_EQ(done.code, tools::kExitRefused) << done.err;
  EXPECT_THAT(done.err, AllOf(HasSubstr("lm_head.weight"),
                              HasSubstr("elements differ, the first at")));
}

}  // namespace
}  // namespace dcp
