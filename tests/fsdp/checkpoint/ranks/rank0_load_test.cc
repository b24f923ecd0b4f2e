// SPDX-License-Identifier: Apache-2.0
// Malformed answers and requests; the loads themselves are tested in
// tests/fsdp/checkpoint/save_and_load_test.cc.
#include "fsdp/checkpoint/ranks/rank0_load.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/tensor/metadata.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::fsdp::testing::RunRanks;
using ::testing::HasSubstr;

dcp::Metadata NoRequest() {
  dcp::Metadata request;
  request.files.emplace_back("wanted");
  return request;
}

absl::StatusOr<std::unique_ptr<CheckpointSource>> NeverOpened() {
  return absl::FailedPreconditionError("opened");
}

// The test plays rank 0.
TEST(Rank0Load, MalformedAnswerIsAnError) {
  RunRanks(2, [] {
    init_process_group();
    ASSERT_OK_AND_ASSIGN(const auto ranks,
                         ProcessGroupCoordinator::Make(nullptr, "test"));
    dcp::ValueArena arena;
    const dcp::Value none = arena.List({});
    const dcp::Value no_objects = arena.Dict({});
    const dcp::Value window = dcp::Value::Int(1 << 16);
    const std::vector<dcp::Value> answers = {
        window,
        arena.Tuple({window, none}),
        arena.Tuple({none, none, no_objects}),
        arena.Tuple({dcp::Value::Int(0), none, no_objects}),
        arena.Tuple({dcp::Value::Int(int64_t{1} << 40), none, no_objects}),
        arena.Tuple({window, no_objects, no_objects}),
        arena.Tuple({window, arena.List({window}), no_objects}),
        arena.Tuple({window, none, none}),
        arena.Tuple({window, none, arena.Dict({window, window})}),
    };
    for (const dcp::Value& answer : answers) {
      absl::Status status;
      if (ranks->rank() == 0) {
        ASSERT_OK(ranks->Gather(""));
        ASSERT_OK(dcp::Agree(*ranks, absl::OkStatus()));
        ASSERT_OK(ranks->Scatter({"", dcp::WritePickle(answer)}));
        status = dcp::Agree(*ranks, absl::OkStatus());
      } else {
        status = Rank0Load(*ranks, {}).Ask(NoRequest(), NeverOpened);
      }
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                   HasSubstr("rank 0 must answer")));
    }
  });
}

TEST(Rank0Load, MalformedRequestIsAnError) {
  RunRanks(2, [] {
    init_process_group();
    ASSERT_OK_AND_ASSIGN(const auto ranks,
                         ProcessGroupCoordinator::Make(nullptr, "test"));
    absl::Status status;
    if (ranks->rank() == 1) {
      ASSERT_OK(ranks->Gather("nonsense"));
      status = dcp::Agree(*ranks, absl::OkStatus());
    } else {
      status = Rank0Load(*ranks, {}).Ask(NoRequest(), NeverOpened);
    }
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(absl::IsFailedPrecondition(status)) << status;
  });
}

}  // namespace
}  // namespace fsdp
