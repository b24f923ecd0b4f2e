// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/diff/container_diff.h"

#include <string>
#include <vector>

#include "dcp/checkpoint/diff/diff.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::DcpBuilder;
using ::dcp::testing::Disk;
using ::dcp::testing::ObjectItem;
using ::dcp::testing::TempDir;
using ::dcp::testing::TorchArchiveBytes;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ContainerDiffTest : public ::testing::Test {
 protected:
  Value Str(absl::string_view text) { return arena_.Str(text); }

  Value OrderedDict(absl::Span<const Value> items) {
    const Value call = arena_.Call(arena_.Global("collections", "OrderedDict"),
                                   arena_.Tuple({}));
    arena_.Update(call, items);
    return call;
  }

  DiffReport Diffed(const Value& a, const Value& b, DiffOptions options = {}) {
    absl::StatusOr<DiffReport> report = DiffCheckpoints(
        Disk(), dir_.WriteFile("a.pt", TorchArchiveBytes(a, {})),
        dir_.WriteFile("b.pt", TorchArchiveBytes(b, {})), std::move(options));
    EXPECT_OK(report);
    return *std::move(report);
  }

  // The only finding about containers, as text.
  std::string Difference(const Value& a, const Value& b) {
    const DiffReport report = Diffed(a, b);
    if (report.findings.size() != 1) return "not one finding";
    const DiffFinding& finding = report.findings[0];
    return finding.name + ": " + finding.in_a + " / " + finding.in_b;
  }

  const TempDir dir_;
  ValueArena arena_;
};

TEST_F(ContainerDiffTest, TypesOfContainersAndKeysAndAttributesDiffer) {
  const Value one = Value::Int(1);
  EXPECT_EQ(Difference(arena_.Dict({Str("d"), OrderedDict({Str("x"), one})}),
                       arena_.Dict({Str("d"), arena_.Dict({Str("x"), one})})),
            "d: collections.OrderedDict / dict");
  EXPECT_EQ(
      Difference(arena_.Dict({Str("d"), arena_.Dict({Value::Int(0), one})}),
                 arena_.Dict({Str("d"), arena_.Dict({Str("0"), one})})),
      "d: key 0 / key '0'");
  const Value with_state = OrderedDict({Str("x"), one});
  arena_.SetState(with_state, arena_.Dict({Str("_metadata"), Str("v")}));
  EXPECT_EQ(Difference(with_state, OrderedDict({Str("x"), one})),
            "(root): attributes {'_metadata': 'v'} / attributes None");
  EXPECT_EQ(Difference(arena_.Dict({Str("e"), arena_.Dict()}),
                       arena_.Dict({Str("e"), OrderedDict({})})),
            "e: dict / collections.OrderedDict");
}

TEST_F(ContainerDiffTest, AnEmptyContainerCanBeMissing) {
  const Value full = arena_.Dict({Str("n"), Value::Int(1)});
  const Value more =
      arena_.Dict({Str("n"), Value::Int(1), Str("e"), arena_.Dict()});
  const DiffReport report = Diffed(more, full);
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].kind, DiffFinding::Kind::kOnlyInA);
  EXPECT_EQ(report.findings[0].in_a, "{}");
  EXPECT_EQ(Diffed(full, more).findings[0].kind, DiffFinding::Kind::kOnlyInB);
  DiffOptions tensors;
  tensors.tensors_only = true;
  EXPECT_THAT(Diffed(more, full, std::move(tensors)).findings, IsEmpty());
  DiffOptions options;
  options.selection_a.exclude = options.selection_b.exclude = {"e"};
  EXPECT_THAT(Diffed(more, full, std::move(options)).findings, IsEmpty());
}

TEST_F(ContainerDiffTest, TypesInsideAValueCountToo) {
  const DiffReport report =
      Diffed(arena_.Dict({Str("t"), arena_.Tuple({OrderedDict({})})}),
             arena_.Dict({Str("t"), arena_.Tuple({arena_.Dict()})}));
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].kind, DiffFinding::Kind::kObject);
}

TEST_F(ContainerDiffTest, ReportsFormatsWithoutContainers) {
  DcpBuilder builder;
  builder.StartFile("__0_0.distcp");
  builder.AddObject("d.x", ObjectItem(Value::Int(1)));
  const Value root =
      arena_.Dict({Str("d"), OrderedDict({Str("x"), Value::Int(1)})});
  ASSERT_OK_AND_ASSIGN(
      const DiffReport report,
      DiffCheckpoints(Disk(),
                      dir_.WriteFile("a.pt", TorchArchiveBytes(root, {})),
                      builder.Write(dir_, "dcp"), {}));
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_THAT(report.containers_skipped, HasSubstr("dcp does not keep"));
}

}  // namespace
}  // namespace dcp
