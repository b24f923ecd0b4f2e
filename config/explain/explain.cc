// SPDX-License-Identifier: Apache-2.0
// Computes the memory of a rank.
//
// [Note: activations]
//
// A weight with two dimensions, [out, in], is a matrix that tokens pass
// through. Backward needs the input. The output goes through at most two
// element-wise operators that keep their inputs (silu(x) * y, or the rotation
// of a query and the attention that follows): this makes in + 2 * out elements
// per token. A weight with one dimension belongs to a norm, which keeps input
// and output. Attention is assumed to keep no scores (flash attention). The
// largest output of the root's matrices is the logits, which the loss keeps
// twice in float32; the embedding keeps only token numbers.
//
// A layer that is computed again in backward keeps the input; one such layer at
// a time has all activations. Offloaded activations are on the host, except for
// those of the root and of the layer that computes: forward copies them, and
// backward fetches them operator by operator.

#include "config/explain/explain.h"

#include <algorithm>
#include <limits>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/tensor/dtype.h"

namespace fsdp {
namespace {

constexpr int64_t kDefaultSequences = 1;
constexpr int64_t kDefaultSeqLen = 2048;
// AdamW's exp_avg and exp_avg_sq.
constexpr uint64_t kNumMoments = 2;
constexpr uint64_t kFloatBytes = 4;

// The elements in a shard on dimension 0, padded to the largest shard.
uint64_t LocalElements(const ParameterShape& parameter, int64_t num_shards) {
  if (parameter.sizes.empty()) return 1;
  const int64_t rows = parameter.sizes[0];
  uint64_t numel = static_cast<uint64_t>((rows + num_shards - 1) / num_shards);
  for (size_t i = 1; i < parameter.sizes.size(); ++i) {
    numel *= static_cast<uint64_t>(parameter.sizes[i]);
  }
  return numel;
}

absl::Status CheckSizes(const std::vector<ParameterShape>& parameters) {
  // Small enough that sums of products with bytes and ranks fit.
  constexpr uint64_t kMaxElements = std::numeric_limits<uint64_t>::max() >> 16;
  uint64_t total = 0;
  for (const ParameterShape& parameter : parameters) {
    uint64_t numel = 1;
    for (const int64_t size : parameter.sizes) {
      if (size < 0 ||
          (size > 0 && numel > kMaxElements / static_cast<uint64_t>(size))) {
        return absl::InvalidArgumentError(absl::StrCat(
            "parameter '", parameter.name, "' has impossible sizes"));
      }
      numel *= static_cast<uint64_t>(size);
    }
    total += numel;
    if (total > kMaxElements) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the parameters have more than ", kMaxElements, " elements"));
    }
  }
  return absl::OkStatus();
}

uint64_t SumLocal(const GroupPlan& group, int64_t num_shards) {
  uint64_t sum = 0;
  for (const ParameterShape& parameter : group.parameters) {
    sum += LocalElements(parameter, num_shards);
  }
  return sum;
}

// The elements that a gather returns, including each shard's padding.
uint64_t SumGathered(const GroupPlan& group, int64_t num_shards) {
  return SumLocal(group, num_shards) * static_cast<uint64_t>(num_shards);
}

bool FreesAfterForward(const ReshardSetting& reshard) {
  const bool* value = std::get_if<bool>(&reshard);
  return value == nullptr || *value;
}

// Elements per token that a group's layers keep; see [Note: activations].
uint64_t KeptByMatrices(const GroupPlan& group) {
  uint64_t kept = 0;
  for (const ParameterShape& parameter : group.parameters) {
    const std::vector<int64_t>& sizes = parameter.sizes;
    if (sizes.size() == 2) {
      kept += static_cast<uint64_t>(sizes[1] + 2 * sizes[0]);
    } else if (sizes.size() == 1) {
      kept += static_cast<uint64_t>(2 * sizes[0]);
    }
  }
  return kept;
}

// Elements per token of a layer's input: the size that most matrices take.
uint64_t InputWidth(const GroupPlan& group) {
  std::map<int64_t, int> count;
  int64_t width = 0;
  for (const ParameterShape& parameter : group.parameters) {
    if (parameter.sizes.size() != 2) continue;
    const int64_t size = parameter.sizes[1];
    if (++count[size] > count[width]) width = size;
  }
  return static_cast<uint64_t>(width);
}

uint64_t LargestOutput(const GroupPlan& root) {
  int64_t largest = 0;
  for (const ParameterShape& parameter : root.parameters) {
    if (parameter.sizes.size() == 2) {
      largest = std::max(largest, parameter.sizes[0]);
    }
  }
  return static_cast<uint64_t>(largest);
}

// Bytes per token.
struct ActivationBytes {
  uint64_t device = 0;
  uint64_t host = 0;
};

ActivationBytes Activations(const std::vector<GroupPlan>& groups,
                            const ShardingConfig& sharding,
                            uint64_t dtype_bytes) {
  const int64_t every = *sharding.activation_checkpointing;
  uint64_t kept = 0;
  uint64_t recomputed_max = 0;
  uint64_t layer_max = 0;
  for (size_t i = 0; i + 1 < groups.size(); ++i) {
    const uint64_t all = KeptByMatrices(groups[i]);
    const bool recomputes =
        every > 0 && (i + 1) % static_cast<uint64_t>(every) == 0;
    kept += recomputes ? InputWidth(groups[i]) : all;
    if (recomputes) recomputed_max = std::max(recomputed_max, all);
    layer_max = std::max(layer_max, all);
  }
  const GroupPlan& root = groups.back();
  uint64_t norms = 0;
  for (const ParameterShape& parameter : root.parameters) {
    if (parameter.sizes.size() == 1) {
      norms += static_cast<uint64_t>(2 * parameter.sizes[0]);
    }
  }
  const uint64_t of_root = (norms + 2 * InputWidth(root)) * dtype_bytes +
                           2 * LargestOutput(root) * kFloatBytes;
  if (*sharding.activation_cpu_offload) {
    return {.device = layer_max * dtype_bytes + of_root,
            .host = kept * dtype_bytes + of_root};
  }
  return {.device = (kept + recomputed_max) * dtype_bytes + of_root};
}

MemoryPlan PlanMemory(const TrainConfig& config, const MeshPlan& mesh,
                      const std::vector<GroupPlan>& groups,
                      uint64_t num_tokens) {
  const PrecisionConfig& precision = config.precision;
  const uint64_t state_bytes = dcp::ElementSize(*precision.dtype);
  const uint64_t compute_bytes = dcp::ElementSize(precision.computes_in());
  const uint64_t reduce_bytes = dcp::ElementSize(precision.reduces_in());

  uint64_t local = 0;
  uint64_t all = 0;
  uint64_t largest = 0;
  for (const GroupPlan& group : groups) {
    local += SumLocal(group, mesh.num_shards());
    const uint64_t gathered = SumGathered(group, mesh.num_shards());
    all += gathered;
    if (&group != &groups.back()) largest = std::max(largest, gathered);
  }
  const uint64_t root = SumGathered(groups.back(), mesh.num_shards());
  // The elements of the largest group, which has gradients in backward; this
  // reduction and the previous layer's have buffers.
  const uint64_t reduced = std::max(largest, root);

  const bool frees = FreesAfterForward(*config.sharding.reshard_after_forward);
  // A single rank computes with the sharded parameters if no cast is needed.
  const bool gathers = mesh.num_shards() > 1 || compute_bytes != state_bytes;
  const uint64_t at_once = frees ? std::min(all, root + 2 * largest) : all;
  const ActivationBytes activations =
      Activations(groups, config.sharding, compute_bytes);
  MemoryPlan plan{.parameters = local * state_bytes,
                  .gradients = local * state_bytes,
                  .optimizer_state = kNumMoments * local * state_bytes,
                  .gathered = gathers ? at_once * compute_bytes : 0,
                  .unreduced = mesh.num_shards() * mesh.replicate > 1
                                   ? reduced * compute_bytes +
                                         (reduced + largest) * reduce_bytes
                                   : 0,
                  .activations = num_tokens * activations.device,
                  .activations_on_host = num_tokens * activations.host};
  const int64_t* degree =
      std::get_if<int64_t>(&*config.sharding.reshard_after_forward);
  if (degree != nullptr && *degree > 0) {
    plan.gathered += all / static_cast<uint64_t>(*degree) * compute_bytes;
  }
  return plan;
}

}  // namespace

absl::StatusOr<Explanation> explain(const TrainConfig& config,
                                    const ExplainOptions& options) {
  Explanation result;
  DCP_ASSIGN_OR_RETURN(result.mesh, plan_mesh(config.mesh, options.world_size,
                                              options.local_world_size));
  DCP_RETURN_IF_ERROR(CheckSizes(options.parameters));
  if (result.mesh.num_shards() == 1) {
    result.zero_stage = 0;
  } else {
    result.zero_stage =
        FreesAfterForward(*config.sharding.reshard_after_forward) ? 3 : 2;
  }
  result.local_batch_size =
      options.local_batch_size > 0
          ? options.local_batch_size
          : config.loop.local_batch_size->value_or(kDefaultSequences);
  result.seq_len = options.seq_len > 0
                       ? options.seq_len
                       : config.loop.seq_len->value_or(kDefaultSeqLen);
  if (options.parameters.empty()) return result;

  result.groups = plan_groups(config.sharding, options.parameters);
  for (const ParameterShape& parameter : options.parameters) {
    uint64_t numel = 1;
    for (const int64_t size : parameter.sizes) {
      numel *= static_cast<uint64_t>(size);
    }
    result.num_elements += numel;
  }
  constexpr int64_t kMaxTokens = int64_t{1} << 31;  // on a rank, in one batch
  if (result.seq_len > kMaxTokens ||
      result.local_batch_size > kMaxTokens / result.seq_len) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", result.local_batch_size, " sequences of ",
                     result.seq_len, " is more than ", kMaxTokens, " tokens"));
  }
  const int64_t cp = result.mesh.context_parallel;
  const int64_t num_tokens = result.local_batch_size * result.seq_len;
  result.memory = PlanMemory(config, result.mesh, result.groups,
                             static_cast<uint64_t>((num_tokens + cp - 1) / cp));
  return result;
}

}  // namespace fsdp
