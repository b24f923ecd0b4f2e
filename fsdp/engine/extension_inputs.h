// SPDX-License-Identifier: Apache-2.0
// Computes the gather inputs for parameters with an all-gather extension. For
// GroupGather, in an EngineScope and on the stream that copies in.
#ifndef FSDP_ENGINE_EXTENSION_INPUTS_H_
#define FSDP_ENGINE_EXTENSION_INPUTS_H_

#include <vector>

#include "fsdp/engine/all_gather_extension.h"
#include "fsdp/engine/group_data.h"

namespace fsdp {

// The inputs for each parameter with an extension, in the order of the group's
// parameters. Collective over the shard group if any extension needs a maximum:
// one all-reduce serves all.
std::vector<AllGatherExtension::Inputs> ExtensionInputs(const GroupData& data);

}  // namespace fsdp

#endif  // FSDP_ENGINE_EXTENSION_INPUTS_H_
