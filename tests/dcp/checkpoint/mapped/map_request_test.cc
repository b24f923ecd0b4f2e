// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/mapped/map_request.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/mapped_pair.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::kPairRules;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

class MapRequestTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<const MapSpec>> Find(
      const MapRequest& request) {
    return FindMap(*fs_, dir_.path(), request);
  }

  void ExpectRefused(const MapRequest& request, absl::StatusCode code,
                     absl::string_view says) {
    EXPECT_THAT(Find(request).status(),
                StatusIs(code, HasSubstr(std::string(says))));
  }

  const testing::TempDir dir_;
  const std::unique_ptr<FileSystem> fs_ = NewPosixFileSystem();
};

TEST_F(MapRequestTest, TheRulesAreAFamilyAFileOrAText) {
  ASSERT_OK_AND_ASSIGN(
      std::shared_ptr<const MapSpec> spec,
      Find({.family = "llama", .from = "hf", .to = "torchtitan"}));
  EXPECT_EQ(spec->mapping.name(), "llama");
  EXPECT_EQ(spec->options.from, "hf");
  EXPECT_EQ(spec->options.to, "torchtitan");
  const std::string path = dir_.Join("pair.yaml");
  ASSERT_OK(WriteFile(*fs_, path, kPairRules));
  ASSERT_OK_AND_ASSIGN(
      spec, Find({.rule_file = path, .from = "theirs", .to = "ours"}));
  EXPECT_EQ(spec->mapping.file_name(), path);
  ASSERT_OK_AND_ASSIGN(spec, Find({.rules = std::string(kPairRules),
                                   .from = "ours",
                                   .to = "theirs",
                                   .settings = {{"extra", 1}},
                                   .model_to = "model."}));
  EXPECT_EQ(spec->mapping.name(), "pair");
  EXPECT_EQ(spec->options.settings.at("extra"), 1);
  EXPECT_EQ(spec->model_to, "model.");
}

TEST_F(MapRequestTest, TheConfigIsAFileATextOrTheSources) {
  const std::string other = dir_.Join("other.json");
  ASSERT_OK(WriteFile(*fs_, dir_.Join("config.json"), "source"));
  ASSERT_OK(WriteFile(*fs_, other, "other"));
  MapRequest request{.family = "llama", .from = "hf", .to = "meta"};
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<const MapSpec> spec, Find(request));
  EXPECT_EQ(spec->options.config, "source");
  request.config_file = other;
  ASSERT_OK_AND_ASSIGN(spec, Find(request));
  EXPECT_EQ(spec->options.config, "other");
  request.config = "text";
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, "give only one");
  request.config_file.clear();
  ASSERT_OK_AND_ASSIGN(spec, Find(request));
  EXPECT_EQ(spec->options.config, "text");
}

TEST_F(MapRequestTest, ReportsMistakes) {
  using testing::kInvalid;
  constexpr auto kNotFound = absl::StatusCode::kNotFound;
  ExpectRefused({.from = "hf", .to = "meta"}, kInvalid, "needs a family");
  ExpectRefused({.family = "llama",
                 .rules = std::string(kPairRules),
                 .from = "hf",
                 .to = "meta"},
                kInvalid, "give only one of them");
  ExpectRefused({.family = "lama", .from = "hf", .to = "meta"}, kNotFound,
                "llama");
  ExpectRefused({.family = "llama", .from = "hf"}, kInvalid, "no side ''");
  ExpectRefused({.rules = "a: b", .from = "a", .to = "b"}, kInvalid,
                "rules:1:1");
  ExpectRefused({.rule_file = dir_.Join("none"), .from = "a", .to = "b"},
                kNotFound, "none");
  ExpectRefused({.family = "llama",
                 .from = "hf",
                 .to = "meta",
                 .config_file = dir_.Join("nowhere")},
                kNotFound, "nowhere");
}

}  // namespace
}  // namespace dcp
