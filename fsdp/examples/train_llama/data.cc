// SPDX-License-Identifier: Apache-2.0
// Reads a text and cuts it into batches.
//
// Tested by tests/fsdp/examples/train_llama_test.cc.
#include "fsdp/examples/train_llama/data.h"

#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "ATen/ops/empty.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace llama {
namespace {

// SplitMix64 by Steele, Lea and Flood: maps a number to one that looks random.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

absl::StatusOr<Corpus> Corpus::Open(const std::string& path, int64_t seq_len,
                                    int64_t seed) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)),
                   std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError(absl::StrCat("cannot read data '", path, "'"));
  }
  if (static_cast<int64_t>(text.size()) <= seq_len) {
    return absl::InvalidArgumentError(
        absl::StrCat("data '", path, "' holds ", text.size(),
                     " bytes; a sequence needs ", seq_len + 1));
  }
  return Corpus(std::move(text), seq_len, seed);
}

Corpus::Corpus(std::string text, int64_t seq_len, int64_t seed)
    : text_(std::move(text)), seq_len_(seq_len), seed_(seed) {}

int64_t Corpus::SequenceStart(int64_t step, int64_t sequence) const {
  const uint64_t drawn =
      Mix(Mix(Mix(static_cast<uint64_t>(seed_)) ^ static_cast<uint64_t>(step)) ^
          static_cast<uint64_t>(sequence));
  const uint64_t num_starts = text_.size() - static_cast<uint64_t>(seq_len_);
  return static_cast<int64_t>(drawn % num_starts);
}

Batch Corpus::MakeBatch(const BatchRange& range) const {
  const at::Tensor rows =
      at::empty({range.num_sequences, seq_len_ + 1}, at::kLong);
  int64_t* out = rows.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < range.num_sequences; ++i) {
    const int64_t start = SequenceStart(range.step, range.first_sequence + i);
    for (int64_t j = 0; j <= seq_len_; ++j) {
      *out++ = static_cast<unsigned char>(text_[start + j]);
    }
  }
  return {.tokens = rows.narrow(1, 0, seq_len_),
          .targets = rows.narrow(1, 1, seq_len_)};
}

}  // namespace llama
