// SPDX-License-Identifier: Apache-2.0
// The backends that a process group can use. Gloo is always available; others
// register themselves when they are linked in, so that a binary for the CPU
// needs no CUDA library. Registration happens before main; the rest is for the
// thread that trains.
#ifndef FSDP_MESH_BACKEND_REGISTRY_H_
#define FSDP_MESH_BACKEND_REGISTRY_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "c10/core/DeviceType.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace fsdp {

// One group, as one rank sees it.
struct BackendRequest {
  c10::intrusive_ptr<c10d::Store> store;  // only for this group and backend
  int rank;                               // in the group
  int size;
  std::string name;             // unique in the process
  std::vector<uint64_t> ranks;  // in the default group
  std::chrono::milliseconds timeout;
  int64_t local_rank;  // this process's rank on its machine
};

struct BackendKind {
  std::string name;  // "nccl"
  c10::DeviceType device_type;
  c10d::ProcessGroup::BackendType type;
  // Whether this machine can run the backend.
  std::function<bool()> is_available;
  // Collective over the group's ranks. Throws the backend's own errors.
  std::function<c10::intrusive_ptr<c10d::Backend>(const BackendRequest&)> make;
};

// Returns true, so that it can initialise a constant. Registering a name twice
// is an error (c10::Error).
bool RegisterBackend(BackendKind kind);
// Null when there is none with this name.
const BackendKind* FindBackend(const std::string& name);
std::vector<const BackendKind*> RegisteredBackends();

}  // namespace fsdp

#endif  // FSDP_MESH_BACKEND_REGISTRY_H_
