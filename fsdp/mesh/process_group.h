// SPDX-License-Identifier: Apache-2.0
// The processes of a job: how a process finds the others (torchrun, Slurm,
// mpirun, or alone), the default process group, and groups of some ranks.
// Names are torch.distributed's. Everything here is for the thread that
// trains; calls marked collective must be made by all ranks in one order.
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
// without such an environment is a job of one. Collective. Throws c10::Error
// when the environment contradicts itself, the others cannot be reached within
// `timeout`, or the default group exists already.
//
// If SIGPIPE has its default action, which ends the process, this replaces it
// permanently, as Python does, because a backend that writes to a rank that
// died must get an error, not a signal. Programs that this one starts have the
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

// A group of `ranks` (distinct, of the default group), in that order, with the
// backends and the timeout of the default group. Collective over *all* ranks;
// those outside the group get a null pointer. `name` is for errors.
ProcessGroup new_group(const std::vector<int64_t>& ranks,
                       const std::string& name);

// The group of this rank alone, made by the first call, which is not
// collective.
ProcessGroup self_group();

// A second group of the ranks of `group`, with the same name and with backends
// of its own: what goes over one does not wait for what goes over the other.
// The first call for a group makes it, and is collective over these ranks
// alone; later calls return the same one.
ProcessGroup second_group(const ProcessGroup& group);

// Makes one group for each list; the lists must not overlap. Returns the group
// that holds this rank. Collective over all ranks.
ProcessGroup new_subgroups(const std::vector<std::vector<int64_t>>& ranks,
                           const std::string& name);

// The members of `group`, as ranks of the default group, in its order.
std::vector<int64_t> get_process_group_ranks(const ProcessGroup& group);

// A name of `group` for keys in job_store(), the same on all its ranks and on
// no others. Slices of one mesh have groups with the same name; the first
// member tells them apart.
std::string key_of(const ProcessGroup& group);

// The store through which the ranks found one another, for small values between
// ranks without collectives. Waits end after the timeout of the default group.
// Throws c10::Error before init_process_group.
c10::intrusive_ptr<c10d::Store> job_store();

}  // namespace fsdp

#endif  // FSDP_MESH_PROCESS_GROUP_H_
