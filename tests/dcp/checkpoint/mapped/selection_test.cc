// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/mapped/selection.h"

#include <fnmatch.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/base/glob_set.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CheckpointEntry SelectedTensor(const std::string& fqn, DType dtype) {
  TensorEntry tensor;
  tensor.dtype = dtype;
  return {.fqn = fqn,
          .path = {PathElement("model"), PathElement(fqn.substr(6))},
          .value = tensor};
}

std::vector<CheckpointEntry> Entries() {
  return {
      SelectedTensor("model.a.weight", DType::kFloat32),
      SelectedTensor("model.a.bias", DType::kFloat32),
      SelectedTensor("model.ids", DType::kInt64),
      {.fqn = "step", .path = {PathElement("step")}, .value = ObjectEntry()}};
}

std::vector<std::string> Names(const SelectionOptions& options) {
  const auto selected = Select(Entries(), options);
  EXPECT_OK(selected);
  std::vector<std::string> names;
  for (const SelectedEntry& entry : *selected) names.push_back(entry.fqn);
  return names;
}

absl::Status Refusal(const SelectionOptions& options) {
  return Select(Entries(), options).status();
}

SelectionOptions Including(std::vector<std::string> include,
                           std::vector<std::string> exclude = {}) {
  SelectionOptions options;
  options.include = std::move(include);
  options.exclude = std::move(exclude);
  return options;
}

SelectionOptions Renaming(std::vector<std::string> renames) {
  SelectionOptions options;
  options.renames = std::move(renames);
  return options;
}

SelectionOptions Casting(std::vector<std::string> casts) {
  SelectionOptions options;
  options.casts = std::move(casts);
  return options;
}

TEST(Selection, GlobsCrossDots) {
  EXPECT_TRUE(MatchesGlob("model.*", "model.a.weight"));
  EXPECT_TRUE(MatchesGlob("*.[wb]*", "model.a.bias"));
  EXPECT_TRUE(MatchesGlob("model.?.bias", "model.a.bias"));
  EXPECT_FALSE(MatchesGlob("model", "model.a"));
}

TEST(Selection, EverythingWithoutOptions) {
  EXPECT_THAT(Names({}), ElementsAre("model.a.weight", "model.a.bias",
                                     "model.ids", "step"));
}

TEST(Selection, IncludesThenExcludes) {
  EXPECT_THAT(Names(Including({"model.*"}, {"*.bias"})),
              ElementsAre("model.a.weight", "model.ids"));
  EXPECT_THAT(Names(Including({"step", "model.ids"})),
              ElementsAre("model.ids", "step"));
}

TEST(Selection, OnePartLosesItsName) {
  SelectionOptions options;
  options.parts = {StatePart::kModel};
  EXPECT_THAT(Names(options), ElementsAre("a.weight", "a.bias", "ids"));
  ASSERT_OK_AND_ASSIGN(const auto selected, Select(Entries(), options));
  EXPECT_EQ(selected[0].path, StatePath{PathElement("a.weight")});
  options.renames = {"s/^a/b/"};
  options.include = {"model.a.*"};
  EXPECT_THAT(Names(options), ElementsAre("b.weight", "b.bias"));
}

TEST(Selection, SeveralPartsKeepTheirNames) {
  SelectionOptions options;
  options.parts = {StatePart::kExtra, StatePart::kModel};
  EXPECT_THAT(Names(options), ElementsAre("model.a.weight", "model.a.bias",
                                          "model.ids", "step"));
}

TEST(Selection, RefusesAPartThatTheCheckpointLacks) {
  SelectionOptions options;
  options.parts = {StatePart::kOptimizer};
  EXPECT_THAT(Refusal(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("nothing of the parts")));
  options.allow_unmatched = true;
  EXPECT_THAT(Names(options), ::testing::IsEmpty());
}

TEST(Selection, AnIncludeThatMatchesNothingIsAMistake) {
  SelectionOptions options = Including({"model.*", "modle.*"});
  EXPECT_THAT(Refusal(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("'modle.*'")));
  options.allow_unmatched = true;
  EXPECT_THAT(Names(options), ::testing::SizeIs(3));
}

TEST(Selection, RenamesWithGroupsInOrder) {
  EXPECT_THAT(Names(Renaming({R"(s/^model\.(.*)$/\1/)", "s/a/b/"})),
              ElementsAre("b.weight", "b.bias", "ids", "step"));
  EXPECT_THAT(
      Names(Renaming({"s|e|E|g"})),
      ElementsAre("modEl.a.wEight", "modEl.a.bias", "modEl.ids", "stEp"));
}

TEST(Selection, RenamesMoveThePathToo) {
  ASSERT_OK_AND_ASSIGN(const std::vector<SelectedEntry> selected,
                       Select(Entries(), Renaming({"s/^model/net/"})));
  EXPECT_EQ(selected[0].path,
            (StatePath{PathElement("net"), PathElement("a.weight")}));
  EXPECT_EQ(selected[3].path, StatePath{PathElement("step")});
}

TEST(Selection, RefusesNamesThatCollide) {
  EXPECT_THAT(
      Refusal(Renaming({"s/weight|bias/x/"})),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("both 'model.a.weight' and 'model.a.bias' the name "
                         "'model.a.x'")));
}

TEST(Selection, RefusesRenamesItCannotRead) {
  for (const char* text :
       {"", "s", "s/a", "s/a/b", "s/a/b/x", "y/a/b/", "s/(/b/", "s/a/\\1/"}) {
    EXPECT_THAT(
        Refusal(Renaming({text})),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rename '")))
        << text;
  }
}

TEST(Selection, CastsFloatingTensorsByTheLastMatch) {
  ASSERT_OK_AND_ASSIGN(const std::vector<SelectedEntry> selected,
                       Select(Entries(), Casting({"bf16", "*.bias=fp16"})));
  EXPECT_EQ(selected[0].dtype, DType::kBFloat16);
  EXPECT_EQ(selected[1].dtype, DType::kFloat16);
  EXPECT_EQ(selected[2].dtype, DType::kInt64);
}

TEST(Selection, RefusesPatternsAndRenamesThatMatchNothing) {
  SelectionOptions exclude;
  exclude.exclude = {"modle.*"};
  EXPECT_THAT(Refusal(exclude),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("exclude pattern 'modle.*' matches no name")));
  SelectionOptions rename;
  rename.renames = {"s/^modle//"};
  EXPECT_THAT(Refusal(rename),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rename 's/^modle//' matches no name")));
  exclude.allow_unmatched = rename.allow_unmatched = true;
  EXPECT_OK(Refusal(exclude));
  EXPECT_OK(Refusal(rename));
}

TEST(Selection, RefusesCastsThatDoNothingOrCannotBe) {
  EXPECT_THAT(Refusal(Casting({"int8"})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("only floating-point")));
  EXPECT_THAT(Refusal(Casting({"*=wide"})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("unknown dtype 'wide'")));
  EXPECT_THAT(Refusal(Casting({"*.ids=bf16"})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'*.ids' matches no floating-point")));
  EXPECT_THAT(Refusal(Casting({"float8_e8m0fnu"})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("cannot cast model.a.weight")));
}

TEST(Selection, KnowsShortAndTorchNamesOfTypes) {
  EXPECT_THAT(ParseDType("bf16"), IsOkAndHolds(DType::kBFloat16));
  EXPECT_THAT(ParseDType("half"), IsOkAndHolds(DType::kFloat16));
  EXPECT_THAT(ParseDType("fp8"), IsOkAndHolds(DType::kFloat8E4M3FN));
  EXPECT_THAT(ParseDType("float8_e5m2"), IsOkAndHolds(DType::kFloat8E5M2));
  EXPECT_THAT(ParseDType("complex64"), IsOkAndHolds(DType::kComplex64));
}

// These brackets are closed; fnmatch treats others inconsistently.
TEST(Selection, GlobsAreThoseOfFnmatch) {
  std::mt19937_64 random(11);
  const std::vector<absl::string_view> glob_words = {
      "a",    "b",    "*",     "?",    "]",      "!",    "-",
      ".",    "\\a",  "\\*",   "\\[",  "[ab]",   "[!a]", "[^-]",
      "[]a]", "[!]]", "[a-b]", "[*?]", "[a\\]]", "[--]", "[[b]"};
  const std::vector<absl::string_view> name_words = {"a", "b", "-", "]",
                                                     "!", ".", "[", "*"};
  const auto text = [&](absl::Span<const absl::string_view> words,
                        size_t max_words) {
    std::string made;
    for (size_t i = random() % (max_words + 1); i > 0; --i) {
      absl::StrAppend(&made, words[random() % words.size()]);
    }
    return made;
  };
  for (int i = 0; i < 300'000; ++i) {
    const std::string glob = text(glob_words, 6);
    const std::string name = text(name_words, 6);
    ASSERT_EQ(MatchesGlob(glob, name),
              fnmatch(glob.c_str(), name.c_str(), 0) == 0)
        << "seed 11: '" << glob << "' and '" << name << "'";
  }
  EXPECT_TRUE(MatchesGlob("a[b", "a[b"));
  EXPECT_TRUE(MatchesGlob("[[:alpha:]]*[[:digit:]]", "layer12"));
  EXPECT_FALSE(MatchesGlob("[[:digit:]]*", "layer12"));
}

// fnmatch itself would take years.
TEST(Selection, ManyStarsCostNoTime) {
  std::string glob;
  for (int i = 0; i < 500; ++i) glob += "a*";
  EXPECT_FALSE(MatchesGlob(glob + "b", std::string(5000, 'a')));
  EXPECT_TRUE(MatchesGlob(glob, std::string(5000, 'a')));
}

TEST(Selection, RefusesNamesThatGrowWithoutEnd) {
  EXPECT_THAT(
      Refusal(Renaming(std::vector<std::string>(40, "s/(.*)/\\1\\1/"))),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a name of")));
}

TEST(Selection, WrappersAreStrippedFromEveryPart) {
  const std::vector<CheckpointEntry> entries = {
      SelectedTensor("model.module._orig_mod.w", DType::kFloat32),
      {.fqn = "optimizer.state.module.w.exp_avg",
       .path = {"optimizer", "state", "module.w", "exp_avg"},
       .value = TensorEntry()},
      {.fqn = "_orig_mod.b", .path = {}, .value = TensorEntry()}};
  SelectionOptions options;
  options.strip_wrappers = true;
  ASSERT_OK_AND_ASSIGN(const std::vector<SelectedEntry> selected,
                       Select(entries, options));
  ASSERT_EQ(selected.size(), 3u);
  EXPECT_EQ(selected[0].fqn, "model.w");
  EXPECT_EQ(selected[0].path, StatePath({"model", "w"}));
  EXPECT_EQ(selected[1].fqn, "optimizer.state.w.exp_avg");
  EXPECT_EQ(selected[1].path,
            StatePath({"optimizer", "state", "w", "exp_avg"}));
  EXPECT_EQ(selected[2].fqn, "b");
  options.renames = {"s/^model.w$/model.v/"};
  ASSERT_OK_AND_ASSIGN(const std::vector<SelectedEntry> renamed,
                       Select(entries, options));
  EXPECT_EQ(renamed[0].fqn, "model.v");
}

TEST(Selection, StrippingMustKeepNamesApart) {
  const std::vector<CheckpointEntry> entries = {
      SelectedTensor("model.module.w", DType::kFloat32),
      SelectedTensor("model.w", DType::kFloat32)};
  SelectionOptions options;
  options.strip_wrappers = true;
  EXPECT_THAT(Select(entries, options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("stripping wrappers gives both "
                                 "'model.module.w' and 'model.w'")));
}

}  // namespace
}  // namespace dcp
