// SPDX-License-Identifier: Apache-2.0
// NCCL: collectives between GPUs. A program that links //fsdp:nccl has it,
// under the name "nccl": it registers itself before main. For the thread that
// trains.
#ifndef FSDP_MESH_NCCL_BACKEND_H_
#define FSDP_MESH_NCCL_BACKEND_H_

#include "fsdp/mesh/backend_registry.h"

namespace fsdp {

BackendKind NcclBackend();

}  // namespace fsdp

#endif  // FSDP_MESH_NCCL_BACKEND_H_
