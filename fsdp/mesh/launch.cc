// SPDX-License-Identifier: Apache-2.0

#include "fsdp/mesh/launch.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"

namespace fsdp {
namespace {

// PyTorch's default.
constexpr int64_t kDefaultPort = 29500;

// The variables with which a launcher tells a process its place. `local_rank`
// and `local_size` may be missing from the environment.
struct Names {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Names kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE"};
// SLURM_NTASKS would also be set in a batch script, which is not a step and
// runs alone.
constexpr Names kSlurm = {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
                          "SLURM_LOCALID", nullptr};
constexpr Names kMpi[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

// A whole number, `least` or greater.
std::optional<int64_t> Number(Environment environment, const char* name,
                              int64_t least) {
  if (name == nullptr) return std::nullopt;
  const std::optional<std::string> text = environment(name);
  if (!text.has_value()) return std::nullopt;
  int64_t value = 0;
  TORCH_CHECK_VALUE(absl::SimpleAtoi(*text, &value), name, "=", *text,
                    " is not a whole number");
  TORCH_CHECK_VALUE(value >= least, name, "=", *text, " is less than ", least);
  return value;
}

int64_t Required(Environment environment, const char* name, int64_t least,
                 const char* because) {
  const std::optional<int64_t> value = Number(environment, name, least);
  TORCH_CHECK_VALUE(value.has_value(), name, " is not set, but ", because,
                    " is");
  return *value;
}

// Reads rank and size, and the local ones, under one launcher's names.
Launch ReadPlace(Environment environment, const Names& names) {
  Launch launch;
  launch.world_size = Required(environment, names.size, 1, names.rank);
  launch.rank = Required(environment, names.rank, 0, names.size);
  TORCH_CHECK_VALUE(launch.rank < launch.world_size, names.rank, "=",
                    launch.rank, " is not less than ", names.size, "=",
                    launch.world_size);
  const std::optional<int64_t> local_size =
      Number(environment, names.local_size, 1);
  const std::optional<int64_t> local_rank =
      Number(environment, names.local_rank, 0);
  if (local_size.has_value()) {
    TORCH_CHECK_VALUE(*local_size <= launch.world_size, names.local_size, "=",
                      *local_size, " is more than ", names.size, "=",
                      launch.world_size);
    TORCH_CHECK_VALUE(!local_rank.has_value() || *local_rank < *local_size,
                      names.local_rank, "=", local_rank.value_or(0),
                      " is not less than ", names.local_size, "=", *local_size);
  }
  TORCH_CHECK_VALUE(local_rank.value_or(0) < launch.world_size,
                    names.local_rank, "=", local_rank.value_or(0),
                    " is not less than ", names.size, "=", launch.world_size);
  launch.local_rank =
      local_rank.value_or(launch.rank % local_size.value_or(launch.world_size));
  launch.local_world_size = local_size.value_or(0);
  launch.one_machine =
      local_size.value_or(launch.world_size == 1 ? 1 : 0) == launch.world_size;
  return launch;
}

// A launcher sets one of them where each process may see other devices.
constexpr const char* kOwnDevices[] = {
    "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_GPUS_PER_TASK"};

bool IsLocal(const std::string& address) {
  return address == "localhost" || address == "::1" ||
         address.compare(0, 4, "127.") == 0;
}

// MASTER_ADDR and MASTER_PORT, or the launcher's substitute for them.
void ReadMaster(Environment environment, const Names& names, Launch* launch) {
  const bool is_slurm = &names == &kSlurm;
  const bool is_mpi = !is_slurm && &names != &kTorchrun;
  launch->master_addr = environment("MASTER_ADDR").value_or("");
  std::optional<int64_t> port = Number(environment, "MASTER_PORT", 1);
  TORCH_CHECK_VALUE(port.value_or(1) <= 65535, "MASTER_PORT=", *port,
                    " is more than 65535");
  if (launch->master_addr.empty() && is_slurm) {
    launch->master_addr = FirstSlurmHost(
        environment("SLURM_STEP_NODELIST")
            .value_or(environment("SLURM_JOB_NODELIST").value_or("")));
  }
  if (launch->master_addr.empty() && is_mpi && launch->one_machine) {
    launch->master_addr = "127.0.0.1";
  }
  if (!port.has_value() && is_slurm) {
    // Jobs on one machine get different ports.
    port = 20000 + Number(environment, "SLURM_JOB_ID", 0).value_or(0) % 10000;
  }
  if (!port.has_value() && is_mpi) port = kDefaultPort;
  if (launch->world_size > 1) {
    TORCH_CHECK_VALUE(!launch->master_addr.empty(),
                      "MASTER_ADDR is not set, but ", names.size, "=",
                      launch->world_size,
                      ": set it to the host of rank 0, the same on all ranks");
    TORCH_CHECK_VALUE(port.has_value(), "MASTER_PORT is not set, but ",
                      names.size, "=", launch->world_size,
                      ": set it to a free port of ", launch->master_addr,
                      ", the same on all ranks");
  }
  launch->master_port = static_cast<uint16_t>(port.value_or(0));
  launch->one_machine = launch->one_machine || IsLocal(launch->master_addr);
  if (launch->one_machine) launch->local_world_size = launch->world_size;
}

}  // namespace

std::string FirstSlurmHost(const std::string& list) {
  const size_t end = list.find_first_of("[,");
  std::string host = list.substr(0, end);
  if (end == std::string::npos || list[end] == ',') return host;
  const size_t number_end = list.find_first_of("-,]", end);
  TORCH_CHECK_VALUE(number_end != std::string::npos,
                    "SLURM_STEP_NODELIST=", list, " lacks a closing bracket");
  return absl::StrCat(host, list.substr(end + 1, number_end - end - 1));
}

Launch ReadLaunch(Environment environment) {
  const auto is_set = [&](const char* name) {
    return environment(name).has_value();
  };
  const Names* names = nullptr;
  if (is_set(kTorchrun.rank) || is_set(kTorchrun.size)) names = &kTorchrun;
  for (const Names& mpi : kMpi) {
    if (names == nullptr && is_set(mpi.rank)) names = &mpi;
  }
  if (names == nullptr && is_set(kSlurm.rank) && is_set(kSlurm.size)) {
    names = &kSlurm;
  }
  if (names == nullptr) return {};

  Launch launch = ReadPlace(environment, *names);
  ReadMaster(environment, *names, &launch);
  launch.agent_store =
      environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  launch.restart_count =
      Number(environment, "TORCHELASTIC_RESTART_COUNT", 0).value_or(0);
  return launch;
}

int64_t ChooseDeviceIndex(int64_t local_rank, int64_t num_visible_devices,
                          Environment environment) {
  if (local_rank < num_visible_devices) return local_rank;
  const bool has_its_own = std::any_of(
      std::begin(kOwnDevices), std::end(kOwnDevices), [&](const char* name) {
        return !environment(name).value_or("").empty();
      });
  if (num_visible_devices == 1 && has_its_own) return 0;
  TORCH_CHECK_VALUE(
      false, "this is process ", local_rank, " of this machine, but it sees ",
      num_visible_devices, num_visible_devices == 1 ? " device" : " devices",
      ": start at most one process for each device, or show each process one "
      "of its own with CUDA_VISIBLE_DEVICES or srun --gpus-per-task=1");
}

std::optional<std::string> GetEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

}  // namespace fsdp
