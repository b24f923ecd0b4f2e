// SPDX-License-Identifier: Apache-2.0
// What parameters with an all-gather extension contribute to a gather. For
// GroupGather, in an EngineScope and on the stream that copies in.
#ifndef FSDP_ENGINE_EXTENSION_INPUTS_H_
#define FSDP_ENGINE_EXTENSION_INPUTS_H_

#include <vector>

#include "fsdp/engine/all_gather_extension.h"
#include "fsdp/engine/group_data.h"

namespace fsdp {

// The inputs of each parameter of a group that has an extension, in the order
// of the parameters. Collective over the shard group if the extension of one
// needs a maximum: one all-reduce for all.
std::vector<AllGatherExtension::Inputs> ExtensionInputs(const GroupData& data);

}  // namespace fsdp

#endif  // FSDP_ENGINE_EXTENSION_INPUTS_H_
