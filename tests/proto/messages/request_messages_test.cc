// SPDX-License-Identifier: Apache-2.0

#include "proto/messages/request_messages.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/messages/enum_messages.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

namespace v1 = ::tessera::v1;

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using ::dcp::testing::kInvalid;

template <typename T>
T Proto(const std::string& text) {
  T proto;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto))
      << text;
  return proto;
}

// A refused message, and how the error begins.
struct Refused {
  const char* text;
  const char* error;
};

TEST(RequestMessages, SourceIsPathAndRank) {
  ASSERT_OK_AND_ASSIGN(
      SourceSpec spec,
      SourceFromProto(Proto<v1::Source>("path: '/a' rank: 3"), "source"));
  EXPECT_EQ(spec.path, "/a");
  EXPECT_EQ(spec.open.rank, 3);
  ASSERT_OK_AND_ASSIGN(
      spec, SourceFromProto(Proto<v1::Source>("path: '/a'"), "source"));
  EXPECT_EQ(spec.open.rank, -1);
}

TEST(RequestMessages, SourceIsChecked) {
  for (const Refused& refused : std::vector<Refused>{
           {"", "a.path is empty"},
           {"path: 'a\\000b'", "a.path contains a NUL"},
           {"path: '/a' rank: -1", "a.rank is -1"},
           {"path: '/a' rank: 1048576", "a.rank is 1048576"},
           {"path: '/a' dialect { from: 'fsdp3' }",
            "a.dialect.from: 'fsdp3' is not dcp, safetensors"},
           {"path: '/a' dialect { rank_files: 'a\\000' }",
            "a.dialect.rank_files contains a NUL"},
           {"path: '/a' dialect { layout: 'a\\000' }",
            "a.dialect.layout contains a NUL"},
       }) {
    EXPECT_THAT(SourceFromProto(Proto<v1::Source>(refused.text), "a"),
                StatusIs(kInvalid, StartsWith(refused.error)));
  }
  v1::Source source;
  source.set_path(std::string(5000, 'a'));
  EXPECT_THAT(SourceFromProto(source, "a"),
              StatusIs(kInvalid, StartsWith("a.path has 5000 bytes")));
}

TEST(RequestMessages, SourceKeepsTheMapping) {
  const auto source = Proto<v1::Source>(
      "path: '/a' map { builtin: 'llama' from_side: 'hf' to_side: 'meta' }");
  ASSERT_OK_AND_ASSIGN(const SourceSpec spec, SourceFromProto(source, "b"));
  ASSERT_NE(spec.map, nullptr);
  EXPECT_EQ(spec.map->builtin(), "llama");
  EXPECT_EQ(spec.open.map, nullptr);
  EXPECT_EQ(spec.field, "b");
  EXPECT_THAT(SourceFromProto(Proto<v1::Source>("path: '/a' map {}"), "b"),
              StatusIs(kInvalid, StartsWith("b.map has neither")));
  EXPECT_THAT(CheckUnmapped(source, "b"),
              StatusIs(kInvalid, StartsWith("b.map is set")));
  EXPECT_OK(CheckUnmapped(Proto<v1::Source>("path: '/a'"), "b"));
}

TEST(RequestMessages, EqualMessagesHaveEqualBytes) {
  v1::MapSpec forwards;
  v1::MapSpec backwards;
  constexpr int kNumSettings = 100;
  for (int i = 0; i < kNumSettings; ++i) {
    (*forwards.mutable_settings())[std::to_string(i)] = i;
    const int other = kNumSettings - 1 - i;
    (*backwards.mutable_settings())[std::to_string(other)] = other;
  }
  EXPECT_EQ(StableBytes(forwards), StableBytes(backwards));
  backwards.mutable_settings()->erase("7");
  EXPECT_NE(StableBytes(forwards), StableBytes(backwards));
}

TEST(RequestMessages, FormatsConvertBothWays) {
  for (const Format format :
       {Format::kDcp, Format::kSafetensors, Format::kTorch}) {
    EXPECT_THAT(RequestedFormatFromProto(FormatToProto(format), "format"),
                IsOkAndHolds(std::optional<Format>(format)));
  }
  EXPECT_THAT(RequestedFormatFromProto(v1::FORMAT_UNSPECIFIED, "format"),
              IsOkAndHolds(std::optional<Format>()));
  EXPECT_THAT(RequestedFormatFromProto(static_cast<v1::Format>(77), "format"),
              StatusIs(kInvalid, StartsWith("format is 77")));
}

TEST(RequestMessages, CopiesSelectionsUnchanged) {
  ASSERT_OK_AND_ASSIGN(
      const SelectionOptions options,
      SelectionFromProto(
          Proto<v1::Selection>("include: 'a*' exclude: 'b' "
                               "renames: 's/a/b/' casts: 'bf16'"),
          "selection"));
  EXPECT_THAT(options.include, ElementsAre("a*"));
  EXPECT_THAT(options.exclude, ElementsAre("b"));
  EXPECT_THAT(options.renames, ElementsAre("s/a/b/"));
  EXPECT_THAT(options.casts, ElementsAre("bf16"));
}

TEST(RequestMessages, SelectionsAreBounded) {
  for (const Refused& refused : std::vector<Refused>{
           {"include: ['a', '']", "s.include[1] is empty"},
           {"exclude: 'a\\000'", "s.exclude[0] contains a NUL"},
       }) {
    EXPECT_THAT(SelectionFromProto(Proto<v1::Selection>(refused.text), "s"),
                StatusIs(kInvalid, StartsWith(refused.error)));
  }
  v1::Selection selection;
  for (int i = 0; i < 101; ++i) selection.add_renames("s/a/b/");
  EXPECT_THAT(SelectionFromProto(selection, "s"),
              StatusIs(kInvalid, StartsWith("s.renames has 101 entries")));
  selection.Clear();
  for (int i = 0; i < 1001; ++i) selection.add_casts("bf16");
  EXPECT_THAT(SelectionFromProto(selection, "s"),
              StatusIs(kInvalid, StartsWith("s.casts has 1001 entries")));
  selection.Clear();
  selection.add_include(std::string(1025, 'a'));
  EXPECT_THAT(SelectionFromProto(selection, "s"),
              StatusIs(kInvalid, StartsWith("s.include[0] has 1025 bytes")));
}

TEST(RequestMessages, SamplesArePercentages) {
  EXPECT_THAT(SamplePercentFromProto(0, "p"), IsOkAndHolds(100.0));
  EXPECT_THAT(SamplePercentFromProto(0.5, "p"), IsOkAndHolds(0.5));
  for (const double percent :
       {-1.0, 100.5, std::numeric_limits<double>::quiet_NaN(),
        std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(SamplePercentFromProto(percent, "p"),
                StatusIs(kInvalid, StartsWith("p is ")));
  }
}

TEST(RequestMessages, TolerancesAreFiniteAndNotNegative) {
  v1::DiffRequest::Tolerance proto;
  proto.set_rtol(0.5);
  proto.set_nan_differs(true);
  const absl::StatusOr<Tolerance> tolerance = ToleranceFromProto(proto, "t");
  ASSERT_OK(tolerance);
  EXPECT_EQ(tolerance->atol, 0);
  EXPECT_EQ(tolerance->rtol, 0.5);
  EXPECT_FALSE(tolerance->equal_nan);
  for (const double wrong : {-1.0, std::nan(""), HUGE_VAL}) {
    proto.set_atol(wrong);
    EXPECT_THAT(
        ToleranceFromProto(proto, "t"),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("t.atol is")));
  }
}

TEST(RequestMessages, ComeBackUnchanged) {
  v1::Source source;
  SourceToProto("/a", OpenOptions(), source);
  EXPECT_FALSE(source.has_rank());
  EXPECT_FALSE(source.has_dialect());
  OpenOptions open;
  open.rank = 3;
  open.dialect = {.from = Dialect::kDeepSpeed,
                  .rank_files = "a.{rank}",
                  .layout = "/l",
                  .like = "/m",
                  .flat_units = "layers.*",
                  .low_precision_weights = true,
                  .optimizer_in_model_order = true,
                  .unstack_layers = true,
                  .torch_optimizer_names = true};
  SourceToProto("/a", open, source);
  ASSERT_OK_AND_ASSIGN(const SourceSpec spec, SourceFromProto(source, "s"));
  EXPECT_EQ(spec.path, "/a");
  EXPECT_EQ(spec.open.rank, 3);
  EXPECT_EQ(spec.open.dialect, open.dialect);

  const SelectionOptions options = {
      .parts = {StatePart::kModel, StatePart::kExtra},
      .strip_wrappers = true,
      .include = {"a*"},
      .exclude = {"b", "c"},
      .renames = {"s/a/b/"},
      .casts = {"bf16"}};
  v1::Selection selection;
  SelectionToProto(options, selection);
  ASSERT_OK_AND_ASSIGN(const SelectionOptions back,
                       SelectionFromProto(selection, "s"));
  EXPECT_TRUE(back.strip_wrappers);
  EXPECT_EQ(back.include, options.include);
  EXPECT_EQ(back.exclude, options.exclude);
  EXPECT_EQ(back.renames, options.renames);
  EXPECT_EQ(back.casts, options.casts);

  v1::DiffRequest::Tolerance tolerance;
  ToleranceToProto({.atol = 0.5, .rtol = 0.25, .equal_nan = false}, tolerance);
  ASSERT_OK_AND_ASSIGN(const Tolerance same,
                       ToleranceFromProto(tolerance, "t"));
  EXPECT_EQ(same.atol, 0.5);
  EXPECT_EQ(same.rtol, 0.25);
  EXPECT_FALSE(same.equal_nan);
}

}  // namespace
}  // namespace dcp
