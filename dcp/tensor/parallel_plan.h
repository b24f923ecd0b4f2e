// SPDX-License-Identifier: Apache-2.0
// ParallelPlan: a model's modules that are parallel on one mesh axis (tensor
// and sequence parallelism), and their parameters' layout on that axis. The
// same plan serves training and resharding; config/parallel_plan.h reads the
// text. The styles come from PyTorch
// (torch/distributed/tensor/parallel/style.py in 2.11), the words from
// transformers (integrations/tensor_parallel.py in 4.56 and 5). Pure; any
// thread.
#ifndef DCP_TENSOR_PARALLEL_PLAN_H_
#define DCP_TENSOR_PARALLEL_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/tensor/placement.h"

namespace dcp {

// A plan names a model's kinds of layers, some dozens; every pattern is tried
// on every name, so these bound a plan's running time.
inline constexpr size_t kMaxPlanEntries = 4096;
inline constexpr size_t kMaxPlanPatterns = 10'000;  // with braces expanded
inline constexpr size_t kMaxPlanPatternBytes = 1024;

// How an activation is placed on the axis. A negative `dim` counts from the
// end.
struct ActivationLayout {
  enum class Kind : uint8_t { kReplicate, kShard };
  Kind kind = Kind::kReplicate;
  int64_t dim = 0;  // for kShard; -64 to 63

  friend bool operator==(const ActivationLayout&,
                         const ActivationLayout&) = default;
};

// "replicate", "shard(1)", "shard(-1)"; in any case.
absl::StatusOr<ActivationLayout> ParseActivationLayout(absl::string_view text);

struct ParallelStyle {
  enum class Kind : uint8_t { kColwise, kRowwise, kSequence, kReplicate };
  Kind kind = Kind::kReplicate;
  // Whether the module is an embedding; a linear layer otherwise. Absent:
  // decided by the module itself, or by IsEmbeddingName if only names are
  // known.
  std::optional<bool> embedding = {};
  // Absent: the style's default.
  std::optional<ActivationLayout> input_layouts = {};
  std::optional<ActivationLayout> output_layouts = {};
  std::optional<bool> use_local_output = {};
  std::optional<int64_t> sequence_dim = {};  // for kSequence

  friend bool operator==(const ParallelStyle&, const ParallelStyle&) = default;
};

// The word for a kind: "colwise", "rowwise", "sequence_parallel", "replicate".
absl::string_view ParallelKindName(ParallelStyle::Kind kind);

// The style that a word means. In addition to the kinds' words: colwise_rep and
// colwise_gather_output (output_layouts: replicate), rowwise_rep and
// rowwise_split_input (input_layouts: replicate), embedding_colwise and
// embedding_rowwise (embedding: true), replicated_with_grad_allreduce (the same
// as replicate: such gradients are always reduced). Any other word is an error,
// which lists the allowed words, or the replacement for a transformers word
// that has no meaning here.
absl::StatusOr<ParallelStyle> ParseParallelStyle(absl::string_view word);

// A pattern without braces: "mlp.{gate,up}_proj" becomes "mlp.gate_proj" and
// "mlp.up_proj". InvalidArgument for braces that are open or nested, for a
// token without a character, and for more than the limits above.
absl::StatusOr<std::vector<std::string>> ExpandBraces(
    absl::string_view pattern);

// Whether a module's path from the root ("layers.3.attention.wq"; "" for the
// root itself, which only the pattern "" matches) matches a pattern without
// braces: both have the same number of tokens between dots, and each token
// matches as in fnmatch(3).
bool MatchesModule(absl::string_view pattern, absl::string_view module);

// Whether a module's last name looks like an embedding's: it contains "embed",
// but neither "out" nor "proj", or one word in it is emb, wte or wpe. This is
// true for tok_embeddings and embed_tokens, but not for embed_out, GPT-NeoX's
// output layer.
bool IsEmbeddingName(absl::string_view module);

class ParallelPlan {
 public:
  struct Entry {
    std::string pattern;  // module names: "layers.*.mlp.{gate,up}_proj"
    ParallelStyle style = {};
    int line = 0;  // in the plan's text, from 1; 0: not known
  };

  // InvalidArgument if ExpandBraces refuses the pattern, for a pattern that
  // names a parameter, and for more entries than the limits.
  absl::Status Add(Entry entry);

  const std::vector<Entry>& entries() const { return entries_; }

  // The entry for a module; null if there is none. If several match, the first;
  // InvalidArgument if their styles differ. The pointer is valid until the next
  // Add.
  absl::StatusOr<const Entry*> Find(absl::string_view module) const;

  // The same patterns with the same styles in the same order, wherever their
  // lines are.
  friend bool operator==(const ParallelPlan& a, const ParallelPlan& b);

 private:
  struct Pattern {
    size_t entry;
    std::vector<std::string> tokens;
  };

  std::vector<Entry> entries_;
  std::vector<Pattern> patterns_;  // in entry order
};

// The placement of a module's parameter `name` ("weight", "bias"), with
// `num_dims` dimensions, on the plan's axis if the plan has `style` for the
// module: a colwise Linear's weight and bias are Shard(0), a rowwise Linear's
// weight is Shard(1), a colwise Embedding's weight is Shard(1), a rowwise
// Embedding's is Shard(0); any other parameter is Replicate. InvalidArgument if
// a weight to cut does not have 2 dimensions.
absl::StatusOr<Placement> ParameterPlacement(const ParallelStyle& style,
                                             absl::string_view module,
                                             absl::string_view name,
                                             size_t num_dims);

}  // namespace dcp

#endif  // DCP_TENSOR_PARALLEL_PLAN_H_
