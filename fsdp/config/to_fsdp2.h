// to_fsdp2: a config of accelerate, transformers, Composer or axolotl for FSDP1
// as the same file for FSDP2, with its comments and all that is about other
// things as they were. The job of `accelerate to-fsdp2`. Any thread.
//
// The fsdp_config that comes out is that of accelerate's own command, key for
// key, but
// - strategies as numbers (1 to 5) and in lower case become true or false as
//   well, and so do options without "fsdp_"; accelerate leaves these as they
//   are, and adds a second version,
// - options of FSDP1 that accelerate does not know (limit_all_gathers,
//   backward_prefetch_policy) are dropped; accelerate hands them on, and then
//   nobody reads them,
// - a file without fsdp_state_dict_type gets FULL_STATE_DICT, which is what it
//   meant: the default of version 2 is SHARDED_STATE_DICT,
// - HYBRID_SHARD and HYBRID_SHARD_ZERO2 on several machines also give a
//   parallelism_config; accelerate's result shards over all ranks,
// - NO_SHARD and LOCAL_STATE_DICT are problems: FSDP2 has neither. accelerate
//   makes the one SHARD_GRAD_OP, and leaves the other for its launcher to
//   refuse,
// - of two options for one thing that disagree, accelerate takes the later;
//   here they are a problem,
// - of a file of version 2 options of version 1 are dropped, and a strategy's
//   name becomes true or false; accelerate warns of them at run time.
#ifndef FSDP_CONFIG_TO_FSDP2_H_
#define FSDP_CONFIG_TO_FSDP2_H_

#include <string>

#include "absl/strings/string_view.h"
#include "fsdp/config/findings.h"

namespace fsdp {

struct ToFsdp2 {
  std::string text;   // the new file; the old one when nothing changed
  Findings findings;  // each option that was changed or dropped, and why
};

// `name` is for messages and says the syntax. Problems: what read_config_text
// says of the text, a dialect that has no FSDP1, what FSDP2 has no words for,
// and a layout that cannot be edited (a map that an alias stands for, or
// comments among options in braces). The result was read again: it is the same
// training.
ToFsdp2 to_fsdp2(absl::string_view name, absl::string_view text);

}  // namespace fsdp

#endif  // FSDP_CONFIG_TO_FSDP2_H_
