// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/mapped/mapped_entries.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "dcp/base/error_misfit.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/box.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/mapped_pair.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::MappedPair;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<CheckpointEntry> Stored(const std::vector<std::string>& names) {
  std::vector<CheckpointEntry> stored;
  for (const std::string& name : names) {
    TensorEntry tensor;
    tensor.shape = {4, 3};
    tensor.boxes = {WholeBox(tensor.shape)};
    tensor.locations.resize(1);
    stored.push_back({.fqn = name, .path = {}, .value = tensor});
  }
  return stored;
}

absl::StatusOr<std::vector<std::string>> NamesMade(
    const std::vector<std::string>& names, const MapSpec& spec) {
  const std::vector<CheckpointEntry> stored = Stored(names);
  const std::unique_ptr<FileSystem> fs = NewPosixFileSystem();
  absl::StatusOr<MappedEntries> mapped =
      MapEntries(*fs, {.path = "source", .entries = stored}, {}, spec, {});
  if (!mapped.ok()) return mapped.status();
  std::vector<std::string> made;
  for (const CheckpointEntry& entry : mapped->entries) {
    made.push_back(entry.fqn);
  }
  return made;
}

TEST(MappedEntries, PartsStandWhereTheSpecSays) {
  MapSpec spec = *MappedPair::Map();
  ASSERT_OK_AND_ASSIGN(
      std::vector<std::string> made,
      NamesMade({"emb", "x.k", "x.q", "x.w", "optim.x.w.avg"}, spec));
  EXPECT_THAT(made,
              ElementsAre("fused", "optim.turned.avg", "table", "turned"));

  spec.options.unmatched = MapOptions::Unmatched::kDrop;
  spec.model_from = "app.net.";
  spec.states_from = "app.opt.state.";
  spec.model_to = "model.";
  spec.states_to = "state/";
  ASSERT_OK_AND_ASSIGN(
      made,
      NamesMade({"app.net.emb", "app.net.x.k", "app.net.x.q", "app.net.x.w",
                 "app.opt.state.x.w.avg", "app.opt.groups.x"},
                spec));
  EXPECT_THAT(made, ElementsAre("model.fused", "state/turned.avg",
                                "model.table", "model.turned"));
}

TEST(MappedEntries, RefusesTwoTensorsOfOneNameForTheRules) {
  MapSpec spec = *MappedPair::Map();
  spec.model_from = "net.";
  EXPECT_THAT(NamesMade({"net.emb", "emb"}, spec).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("both net.emb and emb are 'emb'"),
                             HasSubstr("pair"))));
  EXPECT_THAT(
      NamesMade({"emb", "module.emb"}, *MappedPair::Map()).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("'emb'")));
}

// The tensors are sound, so this is not damage.
TEST(MappedEntries, AMissingSourceIsAMisfit) {
  const absl::Status status =
      NamesMade({"emb", "x.q", "x.w"}, *MappedPair::Map()).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("pair.yaml:9: x.k is missing where x.q is")));
  EXPECT_TRUE(IsMisfit(status));
  EXPECT_FALSE(IsMisfit(
      NamesMade({"emb", "x.q", "x.k", "x.w", "other"}, *MappedPair::Map())
          .status()));
}

TEST(MappedEntries, ChecksTheSides) {
  MapSpec spec = *MappedPair::Map();
  EXPECT_OK(CheckSides(spec));
  spec.options.to = "mine";
  EXPECT_THAT(CheckSides(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(HasSubstr("no side 'mine'"),
                                               HasSubstr("theirs, ours"))));
  spec = *MappedPair::Map(R"(tessera-mapping: 1
name: bare
sides: {theirs: , ours: }
rules:
- {theirs: a.w, ours: b.w}
)");
  spec.states_to = "optim.";
  EXPECT_THAT(CheckSides(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("bare"), HasSubstr("'optim.'"))));
}

}  // namespace
}  // namespace dcp
