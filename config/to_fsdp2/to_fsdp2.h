// SPDX-License-Identifier: Apache-2.0
// to_fsdp2: rewrites an FSDP1 config for accelerate, transformers, Composer or
// axolotl as the same file for FSDP2; comments and all other settings stay
// unchanged. It does the job of `accelerate to-fsdp2`. Any thread.
//
// The resulting fsdp_config equals that of accelerate's command, key for key,
// with these exceptions:
// - Strategies as numbers (1 to 5) and in lower case also become true or false,
//   and so do options without "fsdp_"; accelerate leaves these unchanged, and
//   adds a second version.
// - FSDP1 options that accelerate does not know (limit_all_gathers,
//   backward_prefetch_policy) are dropped; accelerate passes them on, and then
//   nothing reads them.
// - A file without fsdp_state_dict_type gets FULL_STATE_DICT, the default of
//   version 1: the default of version 2 is SHARDED_STATE_DICT.
// - HYBRID_SHARD and HYBRID_SHARD_ZERO2 on several machines also give a
//   parallelism_config; accelerate's result shards over all ranks.
// - NO_SHARD and LOCAL_STATE_DICT are problems, because FSDP2 has neither.
//   accelerate turns the former into SHARD_GRAD_OP, and leaves the latter,
//   which its launcher then refuses.
// - If two options for one thing disagree, accelerate takes the later one; here
//   they are a problem.
// - In a version 2 file, version 1's options are dropped, and a strategy's name
//   becomes true or false; accelerate warns about them at run time.
#ifndef CONFIG_TO_FSDP2_TO_FSDP2_H_
#define CONFIG_TO_FSDP2_TO_FSDP2_H_

#include <string>

#include "absl/strings/string_view.h"
#include "config/document/findings.h"

namespace fsdp {

struct ToFsdp2 {
  std::string text;   // the new file; the old one when nothing changed
  Findings findings;  // each option that was changed or dropped, and why
};

// `name` is for messages and decides the syntax. Problems: those of
// read_config_text, a dialect that has no FSDP1, settings that FSDP2 cannot
// express, and a layout that cannot be edited (a map that is an alias, or
// comments among options in braces). The result has been read again and means
// the same training.
ToFsdp2 to_fsdp2(absl::string_view name, absl::string_view text);

}  // namespace fsdp

#endif  // CONFIG_TO_FSDP2_TO_FSDP2_H_
