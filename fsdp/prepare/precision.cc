// SPDX-License-Identifier: Apache-2.0
// Converts dtypes and sharding options from a config.
//
// Tested by tests/fsdp/prepare/prepare_test.cc.
#include "fsdp/prepare/precision.h"

#include <optional>

#include "dcp/base/status.h"
#include "dcp/tensor/dtype.h"
#include "fsdp/prepare/refusal.h"

namespace fsdp {
namespace {

std::optional<c10::ScalarType> ComputableType(dcp::DType dtype) {
  switch (dtype) {
    case dcp::DType::kFloat64:
      return c10::kDouble;
    case dcp::DType::kFloat32:
      return c10::kFloat;
    case dcp::DType::kFloat16:
      return c10::kHalf;
    case dcp::DType::kBFloat16:
      return c10::kBFloat16;
    default:
      return std::nullopt;
  }
}

template <typename T>
absl::StatusOr<c10::ScalarType> TypeOr(dcp::DType dtype,
                                       const Setting<T>& setting,
                                       absl::string_view name) {
  const std::optional<c10::ScalarType> type = ComputableType(dtype);
  if (type.has_value()) return *type;
  return Refusal(setting, name, "is ", dcp::TorchName(dtype),
                 ", not float32, bfloat16, float16 or float64");
}

using OptionalDtype = Setting<std::optional<dcp::DType>>;

absl::StatusOr<std::optional<c10::ScalarType>> OptionalType(
    const OptionalDtype& setting, absl::string_view name) {
  if (!setting->has_value()) return std::nullopt;
  return TypeOr(**setting, setting, name);
}

absl::StatusOr<MixedPrecisionPolicy> ToMixedPrecisionPolicy(
    const PrecisionConfig& config) {
  MixedPrecisionPolicy policy;
  DCP_ASSIGN_OR_RETURN(policy.param_dtype,
                       OptionalType(config.param_dtype, "param_dtype"));
  DCP_ASSIGN_OR_RETURN(policy.reduce_dtype,
                       OptionalType(config.reduce_dtype, "reduce_dtype"));
  DCP_ASSIGN_OR_RETURN(policy.output_dtype,
                       OptionalType(config.output_dtype, "output_dtype"));
  policy.cast_forward_inputs = *config.cast_forward_inputs;
  return policy;
}

absl::StatusOr<ReshardAfterForward> ToReshardAfterForward(
    const Setting<ReshardSetting>& setting, const MeshPlan& plan) {
  if (const bool* reshard = std::get_if<bool>(&*setting)) return *reshard;
  const int64_t* num_ranks = std::get_if<int64_t>(&*setting);
  if (num_ranks == nullptr) return ReshardAfterForward();
  constexpr absl::string_view kName = "reshard_after_forward";
  if (*num_ranks < 1 || plan.num_shards() % *num_ranks != 0) {
    return Refusal(setting, kName, "is ", *num_ranks,
                   ", which does not divide the number of shards, ",
                   plan.num_shards());
  }
  if (plan.tensor_parallel * plan.expert_parallel > 1) {
    return Refusal(setting, kName, "is ", *num_ranks,
                   " ranks, which cannot be combined with tensor or expert "
                   "parallelism; true or false can");
  }
  return *num_ranks;
}

}  // namespace

absl::StatusOr<c10::ScalarType> ToScalarType(const Setting<dcp::DType>& setting,
                                             absl::string_view name) {
  return TypeOr(*setting, setting, name);
}

absl::StatusOr<FullyShardOptions> ToShardOptions(const TrainConfig& config,
                                                 const MeshPlan& plan,
                                                 bool has_accelerator) {
  FullyShardOptions options;
  DCP_RETURN_IF_ERROR(ToScalarType(config.precision.dtype, "dtype").status());
  DCP_ASSIGN_OR_RETURN(options.mp_policy,
                       ToMixedPrecisionPolicy(config.precision));
  DCP_ASSIGN_OR_RETURN(
      options.reshard_after_forward,
      ToReshardAfterForward(config.sharding.reshard_after_forward, plan));
  if (*config.sharding.cpu_offload) {
    options.offload_policy = CPUOffloadPolicy{.pin_memory = has_accelerator};
  }
  return options;
}

}  // namespace fsdp
