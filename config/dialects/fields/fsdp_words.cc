// SPDX-License-Identifier: Apache-2.0
// Reads `fsdp` as a switch, or word by word.
//
// Tested by tests/config/dialects/transformers/read_test.cc.
#include "config/dialects/fields/fsdp_words.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "config/dialects/fields/fsdp1.h"
#include "config/document/scalar.h"

namespace fsdp::config {
namespace {

// Reads one word, as in "full_shard auto_wrap offload"; fsdp_config takes
// precedence. Returns false after a problem because the word is unknown.
bool ReadWord(absl::string_view word, const SourceLocation& place,
              TrainConfig& config, Findings& findings) {
  ShardingConfig& sharding = config.sharding;
  if (word == "auto_wrap") return true;
  if (word == "offload") {
    if (!sharding.cpu_offload.place().has_value()) {
      sharding.cpu_offload = Setting<bool>(true, place);
    }
    return true;
  }
  const ShardingStrategy* strategy = FindShardingStrategy(word);
  if (strategy == nullptr) {
    findings.Problem(place,
                     "has words other than full_shard, shard_grad_op, offload "
                     "and auto_wrap; write true, and the rest in fsdp_config");
    return false;
  }
  const bool is_version_1 = *sharding.fsdp_version == 1;
  if (!is_version_1 && (strategy->is_hybrid || strategy->is_replicated)) {
    findings.Problem(place, absl::StrCat("has ", strategy->name,
                                         ", which belongs to FSDP1; write "
                                         "parallelism_config, or version: 1"));
    return false;
  }
  if (strategy->is_replicated) {
    findings.Problem(place,
                     "has NO_SHARD, but FSDP1 shards fully there whatever "
                     "this says; leave fsdp out for copies");
    return false;
  }
  if (!sharding.reshard_after_forward.place().has_value()) {
    ApplyShardingStrategy(*strategy, place, config, findings);
  }
  return true;
}

}  // namespace

bool AsksForFsdp(const Node* fsdp) {
  if (fsdp == nullptr || fsdp->kind == Node::Kind::kNull) return false;
  if (fsdp->text.empty() && fsdp->items.empty()) return false;
  return AsBool(*fsdp) != false;
}

void ReadFsdpWords(const Node& fsdp, TrainConfig& config, Findings& findings) {
  if (AsBool(fsdp).has_value()) return;
  std::vector<std::string> words;
  for (const Node& item : fsdp.items) words.push_back(item.text);
  if (fsdp.is_scalar()) {
    words = absl::StrSplit(fsdp.text, ' ', absl::SkipEmpty());
  }
  for (const std::string& word : words) {
    if (!ReadWord(word, fsdp.place, config, findings)) return;
  }
}

}  // namespace fsdp::config
