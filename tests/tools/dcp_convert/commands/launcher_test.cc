// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/commands/launcher.h"

#include <cstdint>
#include <map>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp::tools {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

struct Case {
  std::string name;
  std::map<std::string, std::string> variables;
  uint32_t num_workers = 0;
  uint32_t index = 0;
  uint32_t count = 0;      // 0: refused
  std::string error = "";  // a part of the message
};

void PrintTo(const Case& one, std::ostream* os) { *os << one.name; }

class Launcher : public ::testing::TestWithParam<Case> {};

TEST_P(Launcher, FindsTheShareOfThisProcess) {
  const Case& one = GetParam();
  const auto environment = [&one](const char* name) -> const char* {
    const auto found = one.variables.find(name);
    return found == one.variables.end() ? nullptr : found->second.c_str();
  };
  const absl::StatusOr<Share> share =
      ShareFromLauncher(environment, one.num_workers);
  if (one.count == 0) {
    EXPECT_THAT(share, StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr(one.error)));
    return;
  }
  ASSERT_OK(share);
  EXPECT_EQ(share->index, one.index);
  EXPECT_EQ(share->count, one.count);
}

INSTANTIATE_TEST_SUITE_P(
    Environments, Launcher,
    ::testing::Values(
        Case{"srun",
             {{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "16"}},
             0,
             3,
             16},
        Case{"array",
             {{"SLURM_PROCID", "0"},
              {"SLURM_NTASKS", "1"},
              {"SLURM_ARRAY_TASK_ID", "7"},
              {"SLURM_ARRAY_TASK_MIN", "1"},
              {"SLURM_ARRAY_TASK_MAX", "16"},
              {"SLURM_ARRAY_TASK_STEP", "1"},
              {"SLURM_ARRAY_TASK_COUNT", "16"}},
             0,
             6,
             16},
        Case{"array_with_step",
             {{"SLURM_ARRAY_TASK_ID", "14"},
              {"SLURM_ARRAY_TASK_MIN", "2"},
              {"SLURM_ARRAY_TASK_MAX", "14"},
              {"SLURM_ARRAY_TASK_STEP", "4"},
              {"SLURM_ARRAY_TASK_COUNT", "4"}},
             0,
             3,
             4},
        Case{"array_with_gaps",
             {{"SLURM_ARRAY_TASK_ID", "7"},
              {"SLURM_ARRAY_TASK_MIN", "1"},
              {"SLURM_ARRAY_TASK_MAX", "9"},
              {"SLURM_ARRAY_TASK_COUNT", "3"}},
             0,
             0,
             0,
             "without gaps"},
        Case{"srun_in_array",
             {{"SLURM_PROCID", "1"},
              {"SLURM_STEP_NUM_TASKS", "4"},
              {"SLURM_ARRAY_TASK_ID", "2"},
              {"SLURM_ARRAY_TASK_MIN", "0"},
              {"SLURM_ARRAY_TASK_COUNT", "3"}},
             0,
             9,
             12},
        Case{"batch_script",
             {{"SLURM_JOB_ID", "9"},
              {"SLURM_PROCID", "0"},
              {"SLURM_NTASKS", "16"}},
             0,
             0,
             0,
             "with srun"},
        Case{"mpirun",
             {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "5"}},
             0,
             2,
             5},
        Case{"mpirun_in_slurm",
             {{"OMPI_COMM_WORLD_RANK", "2"},
              {"OMPI_COMM_WORLD_SIZE", "5"},
              {"SLURM_PROCID", "0"},
              {"SLURM_STEP_NUM_TASKS", "2"}},
             0,
             2,
             5},
        Case{"mpich", {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, 0, 1, 2},
        Case{"torchrun_in_srun",
             {{"TORCHELASTIC_RUN_ID", "none"},
              {"RANK", "5"},
              {"WORLD_SIZE", "8"},
              {"SLURM_PROCID", "1"},
              {"SLURM_STEP_NUM_TASKS", "2"}},
             0,
             5,
             8},
        Case{"rank_and_world_size",
             {{"RANK", "5"}, {"WORLD_SIZE", "8"}},
             0,
             5,
             8},
        Case{"kubernetes", {{"JOB_COMPLETION_INDEX", "3"}}, 4, 3, 4},
        Case{"kubernetes_without_number",
             {{"JOB_COMPLETION_INDEX", "3"}},
             0,
             0,
             0,
             "--num-workers"},
        Case{"number_that_differs",
             {{"RANK", "5"}, {"WORLD_SIZE", "8"}},
             9,
             0,
             0,
             "RANK=5 of 8"},
        Case{"contradiction",
             {{"RANK", "5"},
              {"WORLD_SIZE", "8"},
              {"SLURM_PROCID", "1"},
              {"SLURM_STEP_NUM_TASKS", "2"}},
             0,
             0,
             0,
             "SLURM_PROCID=1 of 2; RANK=5 of 8"},
        Case{"nothing", {}, 0, 0, 0, "no launcher"},
        Case{"no_number",
             {{"RANK", "first"}, {"WORLD_SIZE", "8"}},
             0,
             0,
             0,
             "RANK is 'first'"},
        Case{"beyond_the_last",
             {{"RANK", "8"}, {"WORLD_SIZE", "8"}},
             0,
             0,
             0,
             "no such worker"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace dcp::tools
