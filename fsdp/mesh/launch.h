// SPDX-License-Identifier: Apache-2.0
// Launch: this process's place in a job, as the environment gives it, whether
// the process was started by torchrun, mpirun (Open MPI, MVAPICH, MPICH and
// Intel), Slurm's srun, or without a launcher. Pure functions of the
// environment; any thread.
#ifndef FSDP_MESH_LAUNCH_H_
#define FSDP_MESH_LAUNCH_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"

namespace fsdp {

struct Launch {
  int64_t rank = 0;
  int64_t world_size = 1;
  // The rank among the job's processes on this machine.
  int64_t local_rank = 0;
  // How many processes those are; 0: the environment does not say.
  int64_t local_world_size = 1;
  // Where rank 0, or the agent that started the ranks, serves the store. Empty
  // and 0 for a single process without a launcher.
  std::string master_addr;
  uint16_t master_port = 0;
  // The agent serves the store: rank 0 must not.
  bool agent_store = false;
  // How often the agent has restarted the ranks. The store still has the keys
  // from earlier runs.
  int64_t restart_count = 0;
  // All ranks are on this machine.
  bool one_machine = true;
};

// A variable's value; absent when it is not set.
using Environment =
    absl::FunctionRef<std::optional<std::string>(const std::string& name)>;

// The first match counts: RANK and WORLD_SIZE (torchrun, or set by hand), Open
// MPI, MVAPICH, PMI, a Slurm step, no launcher. MASTER_ADDR and MASTER_PORT
// count for all. Where they are missing, Slurm's first node and a port made
// from the job's number are used, or 127.0.0.1:29500 when mpirun put all ranks
// on one machine. When something is missing, is not a number, or contradicts
// the rest, throws a c10::ValueError that names the variable and the value.
Launch ReadLaunch(Environment environment);

// The index of a process's device among those that it sees: the local rank, or
// 0 if the launcher or the user shows each process only one device
// (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, srun --gpus-per-task). Throws
// c10::ValueError, which says what to do, when there is none for the rank.
int64_t ChooseDeviceIndex(int64_t local_rank, int64_t num_visible_devices,
                          Environment environment);

// The first host in a list as Slurm writes it: "gpu[007-012,20],login" is
// "gpu007".
std::string FirstSlurmHost(const std::string& list);

// Reads this process's environment.
std::optional<std::string> GetEnvironment(const std::string& name);

}  // namespace fsdp

#endif  // FSDP_MESH_LAUNCH_H_
