// SPDX-License-Identifier: Apache-2.0
// A job's processes: how a process finds the others (torchrun, Slurm, mpirun,
// or alone), the default process group, and groups with some of the ranks.
// Names are torch.distributed's. Everything here is for the thread that trains.
// All ranks must make the calls marked collective, in one order.
#ifndef FSDP_MESH_PROCESS_GROUP_H_
#define FSDP_MESH_PROCESS_GROUP_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace fsdp {

using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;

struct InitProcessGroupOptions {
  // "cpu:gloo,cuda:nccl", "gloo", "nccl". Empty: gloo for the CPU, and nccl
  // for CUDA when this build (//fsdp:nccl is linked) and this machine have it.
  std::string backend = "";
  // How long a collective waits for the other ranks. Then it fails with an
  // error that names rank, group and operation.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

// Joins the job that the environment describes (see launch.h); a process
// without such an environment is a job by itself. Collective. Throws c10::Error
// when the environment contradicts itself, the others cannot be reached within
// `timeout`, or the default group exists already.
//
// If SIGPIPE has the default action, which ends the process, this replaces it
// permanently, as Python does, because a backend that writes to a dead rank
// must get an error, not a signal. Programs that this one starts have the
// default action.
void init_process_group(const InitProcessGroupOptions& options = {});
bool is_initialized();
// Drops every group. Groups that callers hold still work until they are
// released.
void destroy_process_group();

// In the default group; 0 and 1 before init_process_group.
int64_t get_rank();
int64_t get_world_size();
// The rank among the job's processes on this machine.
int64_t get_local_rank();

// The group of all ranks. Throws c10::Error before init_process_group.
ProcessGroup world_group();

// A group of `ranks` (distinct, from the default group), in that order, with
// the default group's backends and timeout. Collective over *all* ranks; those
// outside the group get a null pointer. `name` is for errors.
ProcessGroup new_group(const std::vector<int64_t>& ranks,
                       const std::string& name);

// The group with only this rank, made by the first call, which is not
// collective.
ProcessGroup self_group();

// A second group with the ranks and the name of `group` but other backends:
// traffic in one does not wait for traffic in the other. The first call for a
// group makes it, and is collective over these ranks alone; later calls return
// the same one.
ProcessGroup second_group(const ProcessGroup& group);

// Makes one group for each list; the lists must not overlap. Returns the group
// that holds this rank. Collective over all ranks.
ProcessGroup new_subgroups(const std::vector<std::vector<int64_t>>& ranks,
                           const std::string& name);

// The members of `group`, as ranks in the default group, in the group's order.
std::vector<int64_t> get_process_group_ranks(const ProcessGroup& group);

// A name for `group` in the keys of job_store(), the same on all member ranks
// and on no others. Slices of one mesh have groups with the same name; the
// first member tells them apart.
std::string key_of(const ProcessGroup& group);

// The store through which the ranks found one another, for small values between
// ranks without collectives. Waits end after the default group's timeout.
// Throws c10::Error before init_process_group.
c10::intrusive_ptr<c10d::Store> job_store();

}  // namespace fsdp

#endif  // FSDP_MESH_PROCESS_GROUP_H_
