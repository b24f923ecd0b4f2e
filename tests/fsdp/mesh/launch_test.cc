// SPDX-License-Identifier: Apache-2.0

#include "fsdp/mesh/launch.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"

namespace fsdp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

auto MakeEnvironment(const Variables& variables) {
  return [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

Launch Read(const Variables& variables) {
  return ReadLaunch(MakeEnvironment(variables));
}

Variables With(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

Variables Without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

const Variables& Torchrun() {
  static const auto* const variables = new Variables{
      {"RANK", "5"},
      {"WORLD_SIZE", "8"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "4"},
      {"MASTER_ADDR", "gpu07"},
      {"MASTER_PORT", "29400"},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"TORCHELASTIC_RESTART_COUNT", "2"},
  };
  return *variables;
}

TEST(Launch, WithoutALauncherTheJobHasOneRank) {
  const Launch launch = Read({{"PATH", "/bin"}});
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.world_size, 1);
  EXPECT_EQ(launch.local_rank, 0);
  EXPECT_TRUE(launch.one_machine);
  EXPECT_FALSE(launch.agent_store);
}

TEST(Launch, ReadsTorchrun) {
  const Launch launch = Read(Torchrun());
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.world_size, 8);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.master_addr, "gpu07");
  EXPECT_EQ(launch.master_port, 29400);
  EXPECT_TRUE(launch.agent_store);
  EXPECT_EQ(launch.restart_count, 2);
  EXPECT_FALSE(launch.one_machine);
}

TEST(Launch, TorchrunOnOneMachine) {
  const Variables one = With(Torchrun(), {{"WORLD_SIZE", "4"}, {"RANK", "1"}});
  EXPECT_TRUE(Read(one).one_machine);
  const Variables by_hand = {{"RANK", "1"},
                             {"WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", "1234"}};
  EXPECT_TRUE(Read(by_hand).one_machine);
  EXPECT_EQ(Read(by_hand).local_rank, 1);
  EXPECT_FALSE(Read(by_hand).agent_store);
}

TEST(Launch, ReadsOpenMpi) {
  const Variables mpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  const Launch launch = Read(mpi);
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.world_size, 4);
  EXPECT_EQ(launch.local_rank, 3);
  EXPECT_EQ(launch.master_addr, "127.0.0.1");
  EXPECT_EQ(launch.master_port, 29500);

  const Variables two = With(mpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_THAT(testing::ThrownMessage([&] { Read(two); }),
              AllOf(HasSubstr("MASTER_ADDR is not set"),
                    HasSubstr("OMPI_COMM_WORLD_SIZE=4")));
  EXPECT_EQ(Read(With(two, {{"MASTER_ADDR", "node0"}})).master_addr, "node0");
}

TEST(Launch, ReadsOtherMpis) {
  EXPECT_EQ(Read({{"MV2_COMM_WORLD_RANK", "1"},
                  {"MV2_COMM_WORLD_SIZE", "2"},
                  {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                  {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}})
                .rank,
            1);
  EXPECT_EQ(Read({{"PMI_RANK", "1"},
                  {"PMI_SIZE", "2"},
                  {"MPI_LOCALRANKID", "1"},
                  {"MPI_LOCALNRANKS", "2"}})
                .local_rank,
            1);
}

TEST(Launch, ReadsASlurmStep) {
  const Variables slurm = {{"SLURM_PROCID", "9"},
                           {"SLURM_STEP_NUM_TASKS", "16"},
                           {"SLURM_LOCALID", "1"},
                           {"SLURM_JOB_ID", "4242"},
                           {"SLURM_STEP_NODELIST", "gpu[012-013]"}};
  const Launch launch = Read(slurm);
  EXPECT_EQ(launch.rank, 9);
  EXPECT_EQ(launch.world_size, 16);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.master_addr, "gpu012");
  EXPECT_EQ(launch.master_port, 24242);
  EXPECT_FALSE(launch.one_machine);
  EXPECT_EQ(Read(With(slurm, {{"MASTER_PORT", "77"}})).master_port, 77);
}

TEST(Launch, ASlurmBatchScriptRunsAlone) {
  EXPECT_EQ(Read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}}).world_size,
            1);
}

TEST(Launch, TorchrunInsideOtherLaunchersCounts) {
  const Variables both =
      With(Torchrun(), {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_EQ(Read(both).rank, 5);
}

TEST(Launch, FirstSlurmHost) {
  EXPECT_EQ(FirstSlurmHost("login"), "login");
  EXPECT_EQ(FirstSlurmHost("a,b[1-2]"), "a");
  EXPECT_EQ(FirstSlurmHost("gpu[007-012,20],login"), "gpu007");
  EXPECT_EQ(FirstSlurmHost("gpu[3,5]"), "gpu3");
  EXPECT_EQ(FirstSlurmHost("gpu[3]-ib"), "gpu3");
  EXPECT_EQ(FirstSlurmHost(""), "");
}

struct Contradiction {
  const char* name;
  Variables variables;
  const char* message;
};

TEST(Launch, RefusesContradictions) {
  const Contradiction cases[] = {
      {"half", {{"RANK", "1"}}, "WORLD_SIZE is not set, but RANK is"},
      {"other half",
       {{"WORLD_SIZE", "2"}},
       "RANK is not set, but WORLD_SIZE is"},
      {"rank too big", With(Torchrun(), {{"RANK", "8"}}),
       "RANK=8 is not less than WORLD_SIZE=8"},
      {"negative", With(Torchrun(), {{"RANK", "-1"}}), "RANK=-1 is less than"},
      {"no number", With(Torchrun(), {{"RANK", "one"}}),
       "RANK=one is not a whole number"},
      {"no world", With(Torchrun(), {{"WORLD_SIZE", "0"}}),
       "WORLD_SIZE=0 is less than 1"},
      {"local rank", With(Torchrun(), {{"LOCAL_RANK", "4"}}),
       "LOCAL_RANK=4 is not less than LOCAL_WORLD_SIZE=4"},
      {"local size", With(Torchrun(), {{"LOCAL_WORLD_SIZE", "9"}}),
       "LOCAL_WORLD_SIZE=9 is more than WORLD_SIZE=8"},
      {"no address", Without(Torchrun(), "MASTER_ADDR"),
       "MASTER_ADDR is not set, but WORLD_SIZE=8"},
      {"no port", Without(Torchrun(), "MASTER_PORT"),
       "MASTER_PORT is not set, but WORLD_SIZE=8"},
      {"port too big", With(Torchrun(), {{"MASTER_PORT", "65536"}}),
       "MASTER_PORT=65536 is more than 65535"},
      {"port no number", With(Torchrun(), {{"MASTER_PORT", "http"}}),
       "MASTER_PORT=http"},
      {"restarts", With(Torchrun(), {{"TORCHELASTIC_RESTART_COUNT", "-2"}}),
       "TORCHELASTIC_RESTART_COUNT=-2"},
  };
  for (const Contradiction& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_THROW(Read(c.variables), c10::ValueError);
    EXPECT_THAT(testing::ThrownMessage([&] { Read(c.variables); }),
                HasSubstr(c.message));
  }
}

TEST(DeviceIndex, IsTheLocalRankAmongSeveral) {
  for (const Variables& variables :
       {Variables{}, Variables{{"CUDA_VISIBLE_DEVICES", "4,5,6,7"}}}) {
    for (int64_t rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(ChooseDeviceIndex(rank, 4, MakeEnvironment(variables)), rank);
    }
  }
  EXPECT_EQ(ChooseDeviceIndex(0, 1, MakeEnvironment({})), 0);
}

TEST(DeviceIndex, IsZeroForAProcessThatSeesOneDevice) {
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                           "SLURM_GPUS_PER_TASK"}) {
    const Variables variables = {{name, "1"}};
    EXPECT_EQ(ChooseDeviceIndex(0, 1, MakeEnvironment(variables)), 0) << name;
    EXPECT_EQ(ChooseDeviceIndex(3, 1, MakeEnvironment(variables)), 0) << name;
  }
}

TEST(DeviceIndex, ProcessesDoNotShareADeviceByAccident) {
  const Variables shown = {{"CUDA_VISIBLE_DEVICES", "0,1"}};
  const Variables empty = {{"CUDA_VISIBLE_DEVICES", ""}};
  for (const auto& [num_devices, variables, sees] :
       {std::tuple{1, Variables(), "sees 1 device:"},
        std::tuple{1, empty, "sees 1 device:"},
        std::tuple{2, shown, "sees 2 devices:"},
        std::tuple{0, shown, "sees 0 devices:"}}) {
    const auto call = [num = num_devices, &all = variables] {
      ChooseDeviceIndex(2, num, MakeEnvironment(all));
    };
    EXPECT_THROW(call(), c10::ValueError);
    EXPECT_THAT(testing::ThrownMessage(call),
                AllOf(HasSubstr("this is process 2 of this machine"),
                      HasSubstr(sees), HasSubstr("CUDA_VISIBLE_DEVICES")));
  }
}

}  // namespace
}  // namespace fsdp
