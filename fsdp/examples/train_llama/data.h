// SPDX-License-Identifier: Apache-2.0
// Text as bytes, cut into sequences: the vocabulary is a byte's 256 values.
// Which sequences make up a step depends only on the seed and the step, not on
// how many ranks share them. Immutable; any thread.
#ifndef FSDP_EXAMPLES_TRAIN_LLAMA_DATA_H_
#define FSDP_EXAMPLES_TRAIN_LLAMA_DATA_H_

#include <cstdint>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"

namespace llama {

// Tokens and their successors, both int64 [num_sequences, seq_len].
struct Batch {
  at::Tensor tokens;
  at::Tensor targets;
};

// Some of a step's sequences.
struct BatchRange {
  int64_t step = 0;
  int64_t first_sequence = 0;
  int64_t num_sequences = 0;
};

class Corpus {
 public:
  // Reads a whole file. Fails if it cannot be read, or has fewer than `seq_len`
  // + 1 bytes.
  static absl::StatusOr<Corpus> Open(const std::string& path, int64_t seq_len,
                                     int64_t seed);

  Corpus(std::string text, int64_t seq_len, int64_t seed);

  int64_t num_bytes() const { return static_cast<int64_t>(text_.size()); }

  // Sequence i of step s begins at a position drawn from (seed, s, i).
  Batch MakeBatch(const BatchRange& range) const;

 private:
  int64_t SequenceStart(int64_t step, int64_t sequence) const;

  std::string text_;
  int64_t seq_len_;
  int64_t seed_;
};

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_DATA_H_
