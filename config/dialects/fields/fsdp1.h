// SPDX-License-Identifier: Apache-2.0
// The meaning of FSDP1's options
// (torch.distributed.fsdp.FullyShardedDataParallel) for fully_shard: one table
// for the dialects that still have them and for the conversion of files.
// Source: PyTorch's FSDP1-to-FSDP2 migration guide and accelerate's to-fsdp2.
// Constant data and functions that readers call; any thread.
#ifndef CONFIG_DIALECTS_FIELDS_FSDP1_H_
#define CONFIG_DIALECTS_FIELDS_FSDP1_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "config/document/findings.h"
#include "config/document/section.h"
#include "config/document/setting.h"
#include "config/model/train_config.h"

namespace fsdp::config {

struct ShardingStrategy {
  absl::string_view name;  // "FULL_SHARD"
  int number;              // in torch's enum; configs use it as well: 1
  bool reshard_after_forward;
  // Copies of the model, one on each machine.
  bool is_hybrid;
  // Every rank has the whole model, which fully_shard cannot express.
  bool is_replicated;
};
absl::Span<const ShardingStrategy> AllShardingStrategies();
// By name, in any case, or by number; null if no strategy has it.
const ShardingStrategy* FindShardingStrategy(absl::string_view text);
// Sets reshard_after_forward and the degrees; hybrid strategies keep degrees
// that the config already has, so read those first. A finding at `place` says
// how the strategy is read.
void ApplyShardingStrategy(const ShardingStrategy& strategy,
                           const SourceLocation& place, TrainConfig& config,
                           Findings& findings);

// Why an option has no counterpart: backward_prefetch, forward_prefetch,
// use_orig_params, sync_module_states, limit_all_gathers, param_init_fn,
// device_id, buffer_dtype and so on. Names come without "fsdp_".
std::optional<absl::string_view> WhyRemoved(absl::string_view option);
// Adds a finding for each option in this list that the section has, with or
// without `prefix` ("fsdp_"). The section then knows all these names.
void ReadRemoved(absl::string_view prefix, Section& section);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_FSDP1_H_
