// SPDX-License-Identifier: Apache-2.0
// Looks for the words in a key.
//
// Tested by tests/config/document/section_test.cc.
#include "config/document/training_subject.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace fsdp::config {
namespace {

constexpr absl::string_view kShardingWords[] = {
    "deepspeed", "fsdp",     "fsdp1",       "fsdp2",       "hsdp",
    "megatron",  "parallel", "parallelism", "parallelize", "shard",
    "sharded",   "sharding", "zero1",       "zero2",       "zero3",
};
// Sharding words before a size or a degree.
constexpr absl::string_view kAxes[] = {"cp", "dp", "ep", "pp", "sp", "tp"};
// Words in keys about data, and about a server next to the training.
constexpr absl::string_view kOtherWords[] = {"dataset", "vllm"};
constexpr absl::string_view kOptimizerWords[] = {"optim", "optimizer",
                                                 "optimizers"};

template <size_t n>
bool Contains(const absl::string_view (&words)[n], absl::string_view word) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

bool NamesAxis(const std::vector<std::string>& words) {
  return words.size() > 1 && Contains(kAxes, words[words.size() - 2]) &&
         (words.back() == "size" || words.back() == "degree");
}

}  // namespace

absl::string_view TrainingSubject(absl::string_view key) {
  const std::vector<std::string> words = absl::StrSplit(
      absl::AsciiStrToLower(key), absl::ByAnyChar("_-. "), absl::SkipEmpty());
  for (const std::string& word : words) {
    if (Contains(kOtherWords, word)) return "";
  }
  if (NamesAxis(words)) return "sharding";
  for (size_t i = 0; i < words.size(); ++i) {
    if (Contains(kShardingWords, words[i])) return "sharding";
    if (Contains(kOptimizerWords, words[i])) return "an optimizer";
    const bool is_rate =
        words[i] == "lr" || (i > 0 && words[i - 1] == "learning" &&
                             (words[i] == "rate" || words[i] == "rates"));
    if (is_rate) return "a learning rate";
  }
  return "";
}

}  // namespace fsdp::config
