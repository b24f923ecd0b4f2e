// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/commands/commands.h"

#include <cstdint>
#include <sstream>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp::tools {
namespace {

using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;
using ::testing::HasSubstr;

using Arguments = std::vector<std::string>;

// dcp-convert on a disk in memory with the checkpoint /src.
class CommandsTest : public ::testing::Test {
 protected:
  struct Run {
    ExitCode code;
    std::string out;
    std::string err;
  };

  CommandsTest() {
    SampleState state;
    state.Add(SampleTensor("w", DType::kFloat32, {300, 200}));
    state.AddObject("lr", Value::Float(0.25));
    SingleProcessCoordinator coordinator;
    EXPECT_OK(Save(fs_, "/src", state.state(), coordinator, {}));
  }

  Run RunWith(const Arguments& arguments, std::stop_token stop) {
    std::ostringstream out;
    std::ostringstream err;
    const ExitCode code =
        RunCommand(arguments, {.out = out, .err = err}, fs_, std::move(stop));
    return {.code = code, .out = out.str(), .err = err.str()};
  }

  SimStorage fs_;
};

TEST_F(CommandsTest, EachVerbEndsAfterAnInterrupt) {
  for (const Arguments& arguments : {
           Arguments{"inspect", "/src"},
           Arguments{"verify", "/src"},
           Arguments{"diff", "/src", "/src"},
           Arguments{"convert", "/src", "/dst.pt"},
           Arguments{"convert", "/src", "/dst.pt", "--plan"},
       }) {
    SCOPED_TRACE(absl::StrJoin(arguments, " "));
    const uint64_t before = fs_.num_operations();
    EXPECT_EQ(RunWith(arguments, {}).code, kExitDone);
    const uint64_t num_operations = fs_.num_operations() - before;
    fs_.Remove("/dst.pt").IgnoreError();
    // While the checkpoint is opened.
    std::stop_source stop;
    const uint64_t begin = fs_.num_operations();
    fs_.CallBeforeOperation(2, [&stop] { stop.request_stop(); });
    const Run run = RunWith(arguments, stop.get_token());
    EXPECT_EQ(run.code, kExitInterrupted);
    EXPECT_THAT(run.err, HasSubstr("stopped"));
    EXPECT_EQ(run.out, "");
    EXPECT_LT(fs_.num_operations() - begin, num_operations);
  }
}

// From the first access to the disk to the last read for the plan.
TEST_F(CommandsTest, InterruptedPlanIsNotPrinted) {
  const Arguments arguments{"convert", "/src", "/dst.pt", "--plan"};
  const uint64_t before = fs_.num_operations();
  const std::string plan = RunWith(arguments, {}).out;
  const uint64_t num_operations = fs_.num_operations() - before;
  EXPECT_THAT(plan, HasSubstr("1 tensor"));
  uint64_t num_interrupted = 0;
  for (uint64_t i = 0; i < num_operations; ++i) {
    SCOPED_TRACE(i);
    std::stop_source stop;
    fs_.CallBeforeOperation(i, [&stop] { stop.request_stop(); });
    const Run run = RunWith(arguments, stop.get_token());
    if (run.code == kExitInterrupted) {
      ++num_interrupted;
      EXPECT_EQ(run.out, "");
    } else {
      EXPECT_EQ(run.code, kExitDone);
      EXPECT_EQ(run.out, plan);
    }
  }
  // The last look is at the free space.
  EXPECT_EQ(num_interrupted, num_operations - 1);
}

}  // namespace
}  // namespace dcp::tools
