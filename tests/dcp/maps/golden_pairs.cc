// SPDX-License-Identifier: Apache-2.0

#include "tests/dcp/maps/golden_pairs.h"

namespace dcp::testing {

void PrintTo(const GoldenPair& pair, std::ostream* out) {
  *out << pair.mapping << " " << pair.model << " " << pair.side << " "
       << pair.judge;
}

const std::vector<GoldenPair>& GoldenPairs() {
  static const auto* const pairs = new std::vector<GoldenPair>{
      {"llama", "llama", "torchtitan", "torchtitan"},
      {"llama", "llama_tied", "torchtitan", "torchtitan"},
      {"llama", "llama", "megatron", "megatron_te"},
      {"llama", "llama_tied", "megatron", "megatron_te"},
      {"llama", "llama", "megatron_local", "megatron"},
      {"llama", "llama_tied", "megatron_local", "megatron"},
      {"llama", "llama", "megatron_stacked", "megatron_dist"},
      {"llama",
       "llama",
       "megatron_stacked",
       "megatron_dist_padded",
       {{"vocab_multiple", 64}}},
      {"llama", "llama_tied", "megatron_stacked", "megatron_dist"},
      {"llama", "llama", "meta", "meta"},
      {"llama", "llama", "meta", "", {}, "hf_optim"},
      {"llama", "llama", "meta_mp", "meta_mp", {{"tp", 2}}},
      {"llama", "llama", "torchtitan", "torchtitan_optim", {}, "hf_optim"},
      {"llama",
       "llama",
       "megatron_stacked",
       "",
       {{"vocab_multiple", 64}},
       "hf_optim"},
      {"qwen", "qwen2", "megatron", "megatron_te"},
      {"qwen", "qwen2", "megatron_local", "megatron"},
      {"qwen", "qwen2", "megatron_stacked", "megatron_dist"},
      {"qwen", "qwen3", "torchtitan", "torchtitan"},
      {"qwen", "qwen3", "torchtitan_0_2", "torchtitan_0_2"},
      {"qwen", "qwen3", "megatron", "megatron_te"},
      {"qwen", "qwen3", "megatron_local", "megatron"},
      {"qwen", "qwen3", "megatron_stacked", "megatron_dist"},
      {"qwen3-moe", "qwen3_moe", "hf5", "hf5"},
      {"qwen3-moe", "qwen3_moe", "torchtitan", "torchtitan"},
      {"qwen3-moe", "qwen3_moe", "torchtitan_0_2", "torchtitan_0_2"},
      {"qwen3-moe", "qwen3_moe", "megatron", "megatron_te"},
      {"qwen3-moe", "qwen3_moe", "megatron_local", "megatron"},
      {"qwen3-moe", "qwen3_moe", "megatron_stacked_local", "megatron_dist"},
      {"qwen3-moe", "qwen3_moe", "megatron_stacked", ""},
      {"qwen3-moe", "qwen3_moe", "megatron_dist", ""},
      {"mixtral", "mixtral", "hf5", "hf5"},
      {"mixtral", "mixtral", "megatron", "megatron"},
      {"mixtral", "mixtral", "megatron_local", ""},
      {"mixtral", "mixtral", "megatron_stacked", "", {{"vocab_multiple", 64}}},
      {"deepseek-v3", "deepseek_v3", "hf5", "hf5"},
      {"deepseek-v3", "deepseek_v3", "torchtitan", "torchtitan"},
      {"deepseek-v3", "deepseek_v3", "torchtitan_0_2", "torchtitan_0_2"},
      {"deepseek-v3", "deepseek_v3_mtp", "torchtitan", "torchtitan"},
      {"deepseek-v3", "deepseek_v3", "megatron", "megatron_te"},
      {"deepseek-v3", "deepseek_v3", "megatron_local", "megatron"},
      {"deepseek-v3", "deepseek_v3", "megatron_dist_local", "megatron_dist"},
      {"deepseek-v3", "deepseek_v3", "megatron_dist", ""},
      {"gpt2", "gpt2", "plain", "plain"},
      {"gpt2", "gpt2", "megatron", "", {{"vocab_multiple", 64}}},
      {"gpt2", "gpt2", "megatron_stacked", ""},
      {"gpt-oss", "gpt_oss", "torchtitan", "torchtitan"},
      {"gpt-oss", "gpt_oss", "torchtitan_0_2", "torchtitan_0_2"},
      {"gpt-oss", "gpt_oss", "megatron", "megatron_te"},
      {"gpt-oss", "gpt_oss", "megatron_local", "megatron"},
      {"gpt-oss", "gpt_oss", "megatron_stacked_local", "megatron_dist"},
      {"gpt-oss", "gpt_oss", "megatron_stacked", ""},
  };
  return *pairs;
}

}  // namespace dcp::testing
