// SPDX-License-Identifier: Apache-2.0
// The text form of a tensor parallelism plan: a map from module patterns to
// styles, in YAML, JSON or TOML. Training (fsdp::load_plan) and resharding
// (dcp-convert --tp-plan) read the same files. Any thread.
//
//   tok_embeddings: embedding_rowwise
//   layers.*.attention.w[qkv]: colwise
//   layers.*.{attention_norm,ffn_norm}: sequence_parallel
//   layers.*.attention.wo: {style: rowwise, output_layouts: shard(1)}
//
// A pattern is the path of modules from the model's root: tokens between dots,
// each of which matches the names on one level as in fnmatch(3), with braces
// for alternatives; "" is the root itself. A style is a word for
// dcp::ParseParallelStyle, or a map with `style` and, where they fit it,
// input_layouts, output_layouts (replicate, shard(1)), use_local_output,
// sequence_dim and embedding.
#ifndef CONFIG_PARALLEL_PLAN_H_
#define CONFIG_PARALLEL_PLAN_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/tensor/parallel_plan.h"

namespace fsdp {

// The syntax follows from the name (.toml, .json, .yaml, .yml) or the text.
// InvalidArgument with every problem, one per line:
// "plan.yaml:3: layers.*.wq is 'colwse', not colwise, rowwise, ...".
absl::StatusOr<dcp::ParallelPlan> parallel_plan_text(absl::string_view name,
                                                     absl::string_view text);

// Errors are those of parallel_plan_text and config_text.
absl::StatusOr<dcp::ParallelPlan> load_parallel_plan(const std::string& path);

}  // namespace fsdp

#endif  // CONFIG_PARALLEL_PLAN_H_
