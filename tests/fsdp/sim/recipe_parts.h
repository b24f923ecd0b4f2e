// SPDX-License-Identifier: Apache-2.0
// Parts of recipes: policies, changes to the model before and after it is
// sharded, and actions in and between steps. For ranks in RunRanks.
#ifndef TESTS_FSDP_SIM_RECIPE_PARTS_H_
#define TESTS_FSDP_SIM_RECIPE_PARTS_H_

#include <optional>
#include <string>

#include "ATen/core/Tensor.h"
#include "fsdp/engine/all_gather_extension.h"
#include "fsdp/engine/policies.h"
#include "fsdp/mesh/placement.h"
#include "tests/fsdp/sim/training.h"
#include "torch/types.h"

namespace fsdp::testing {

inline const MixedPrecisionPolicy kBfloat16{.param_dtype = at::kBFloat16,
                                            .reduce_dtype = at::kFloat};
inline const MixedPrecisionPolicy kFloat16{.param_dtype = at::kHalf,
                                           .reduce_dtype = at::kHalf};

// --- Changes to the model --------------------------------------------------

void Checkpoint(Net& net);
void AddAdapters(Net& net);
void FreezeTheStem(Net& net);
void FreezeTheBlocks(Net& net);
void AddStemTwin(Net& net);

// --- Changes to the sharded model ------------------------------------------

void PrefetchTheNext(Training& training);
void SetCustomCollectives(Training& training);
void HookTheReduction(Training& training);
void HookTheReductionOnAStream(Training& training);
void ToDouble(Training& training);

// --- Between steps ---------------------------------------------------------

void ScaleShards(Training& training);
// As torch::load and set_data do.
void ReplaceShards(Training& training);
// Through tensors that the engine does not see.
void ScaleData(Training& training);
void RecordAnEvent(Training& training);
// Every third step ends in the middle.
void FailInAForward(Training& training);
void FailInABackward(Training& training);
void GatherByHand(Training& training);
void WriteWhileGathering(Training& training);

// --- Forwards --------------------------------------------------------------

// Evaluates, changes the shards, and begins the next forward elsewhere.
torch::Tensor EnterElsewhere(Training& training, const torch::Tensor& x);
// The same through tensors for which autograd counts no changes.
torch::Tensor ScaleDataInAForward(Training& training, const torch::Tensor& x);
torch::Tensor RunTwice(Training& training, const torch::Tensor& x);
// Each microbatch leaves another block out.
torch::Tensor SkipBlock(Training& training, const torch::Tensor& x);
// Uses only the weight in a block's last layer, in the first microbatch.
torch::Tensor UsePartOfBlock(Training& training, const torch::Tensor& x);
torch::Tensor OffloadActivations(Training& training, const torch::Tensor& x);

// --- Parameter forms --------------------------------------------------------

std::optional<AllGatherExtension> Float8(const std::string& name,
                                         const at::Tensor& parameter);
std::optional<AllGatherExtension> Nf4(const std::string& name,
                                      const at::Tensor& parameter);
std::optional<AllGatherExtension> Nf4Gather(const std::string& name,
                                            const at::Tensor& parameter);
std::optional<Shard> OnTheLastDim(const at::Tensor& parameter);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_SIM_RECIPE_PARTS_H_
