// SPDX-License-Identifier: Apache-2.0
// The rules by family. Each is described where it is defined; rule_table.cc
// says which operators follow it. See Rule in call.h.
#ifndef FSDP_PARALLEL_SPMD_RULES_RULES_H_
#define FSDP_PARALLEL_SPMD_RULES_RULES_H_

#include <optional>

#include "fsdp/parallel/spmd/call.h"

namespace fsdp::spmd {

// pointwise.cc
std::optional<Values> ElementwiseRule(Call& call);
std::optional<Values> LinearElementwiseRule(Call& call);
std::optional<Values> AdditionRule(Call& call);
std::optional<Values> ScalingRule(Call& call);
std::optional<Values> WhereRule(Call& call);
std::optional<Values> CastRule(Call& call);
// products.cc
std::optional<Values> MatmulRule(Call& call);
std::optional<Values> AddmmRule(Call& call);
std::optional<Values> AddedProductRule(Call& call);
std::optional<Values> LinearRule(Call& call);
std::optional<Values> VectorProductRule(Call& call);
// views.cc
std::optional<Values> PermuteRule(Call& call);
std::optional<Values> ReshapeRule(Call& call);
std::optional<Values> UnsqueezeRule(Call& call);
std::optional<Values> SqueezeRule(Call& call);
std::optional<Values> ExpandRule(Call& call);
std::optional<Values> RepeatRule(Call& call);
std::optional<Values> RepeatInterleaveRule(Call& call);
std::optional<Values> TriangleRule(Call& call);
std::optional<Values> ComposedRule(Call& call);
// along_dims.cc
std::optional<Values> AlongDimsRule(Call& call);
std::optional<Values> LinearAlongDimsRule(Call& call);
std::optional<Values> MaximumRule(Call& call);
std::optional<Values> SumRule(Call& call);
// indexing.cc
std::optional<Values> IndexSelectRule(Call& call);
std::optional<Values> IndexRule(Call& call);
std::optional<Values> GatherRule(Call& call);
std::optional<Values> JoinRule(Call& call);
// layers.cc
std::optional<Values> NormRule(Call& call);
std::optional<Values> GroupNormRule(Call& call);
std::optional<Values> EmbeddingRule(Call& call);
// attention.cc
std::optional<Values> AttentionRule(Call& call);
// losses.cc
std::optional<Values> CrossEntropyRule(Call& call);
std::optional<Values> NegativeLogLikelihoodRule(Call& call);
std::optional<Values> ElementwiseLossRule(Call& call);
// random.cc
std::optional<Values> DropoutRule(Call& call);
std::optional<Values> RandomRule(Call& call);
std::optional<Values> RandomLikeRule(Call& call);
std::optional<Values> LikeRule(Call& call);
std::optional<Values> NewRule(Call& call);
std::optional<Values> ItemRule(Call& call);

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_RULES_RULES_H_
