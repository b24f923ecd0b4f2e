// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/parallel_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "dcp/base/glob_set.h"
#include "dcp/base/limits.h"
#include "dcp/base/nearest_word.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

using Kind = ParallelStyle::Kind;

struct Word {
  absl::string_view word;
  ParallelStyle style;
};

constexpr ActivationLayout kReplicated = {};

// The allowed words, in the order in which messages list them.
const Word kWords[] = {
    {"colwise", {.kind = Kind::kColwise}},
    {"rowwise", {.kind = Kind::kRowwise}},
    {"colwise_rep", {.kind = Kind::kColwise, .output_layouts = kReplicated}},
    {"colwise_gather_output",
     {.kind = Kind::kColwise, .output_layouts = kReplicated}},
    {"rowwise_rep", {.kind = Kind::kRowwise, .input_layouts = kReplicated}},
    {"rowwise_split_input",
     {.kind = Kind::kRowwise, .input_layouts = kReplicated}},
    {"embedding_colwise", {.kind = Kind::kColwise, .embedding = true}},
    {"embedding_rowwise", {.kind = Kind::kRowwise, .embedding = true}},
    {"sequence_parallel", {.kind = Kind::kSequence}},
    {"replicate", {.kind = Kind::kReplicate}},
    {"replicated_with_grad_allreduce", {.kind = Kind::kReplicate}},
};

struct RefusedWord {
  absl::string_view word;
  absl::string_view reason;
};

constexpr absl::string_view kLayoutsTravel =
    "layouts travel with activations here; leave the entry out";
constexpr absl::string_view kExperts =
    "experts have a mesh of their own; leave the entry out";
constexpr absl::string_view kPacked =
    "no style cuts the halves of a packed weight separately; keep gate and up "
    "in tensors of their own";

// Words from transformers that have no meaning here.
constexpr RefusedWord kRefused[] = {
    {"local_colwise", "write colwise"},
    {"local_rowwise", "write rowwise"},
    {"local", kLayoutsTravel},
    {"gather", kLayoutsTravel},
    {"all_reduce", kLayoutsTravel},
    {"local_packed_rowwise", kPacked},
    {"packed_colwise", kPacked},
    {"packed_rowwise", kPacked},
    {"mla_kv_a_proj", "write replicate"},
    {"grouped_gemm", kExperts},
    {"ep_router", kExperts},
    {"moe_tp_experts", kExperts},
    {"moe_identity_expert", kExperts},
    {"megamoe_router", kExperts},
    {"megamoe_experts", kExperts},
};

absl::Status UnknownWord(absl::string_view word) {
  for (const RefusedWord& refused : kRefused) {
    if (word != refused.word) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("is '", word, "', a word of transformers that has no ",
                     "meaning here: ", refused.reason));
  }
  std::vector<absl::string_view> words;
  for (const Word& known : kWords) words.push_back(known.word);
  const absl::string_view nearest = NearestWord(word, words);
  return absl::InvalidArgumentError(absl::StrCat(
      "is '", word.substr(0, 80), "', not ",
      absl::StrJoin(words.begin(), words.end() - 1, ", "), " or ", words.back(),
      nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
}

absl::Status BadPattern(absl::string_view pattern, absl::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat("the pattern '", pattern.substr(0, 80), "' ", reason));
}

bool IsParameterName(absl::string_view token) {
  return token == "weight" || token == "bias";
}

bool MatchesTokens(absl::Span<const std::string> pattern,
                   absl::Span<const absl::string_view> tokens) {
  if (pattern.size() != tokens.size()) return false;
  // The root has no name, which a star would match.
  if (tokens[0].empty()) return pattern[0].empty();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!MatchesGlob(pattern[i], tokens[i])) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<ActivationLayout> ParseActivationLayout(absl::string_view text) {
  std::string word = absl::AsciiStrToLower(text);
  absl::string_view rest = word;
  if (rest == "replicate") return ActivationLayout{};
  ActivationLayout layout = {.kind = ActivationLayout::Kind::kShard};
  const auto most = static_cast<int64_t>(kMaxDims);
  if (!absl::ConsumePrefix(&rest, "shard(") ||
      !absl::ConsumeSuffix(&rest, ")") ||
      !absl::SimpleAtoi(rest, &layout.dim) || layout.dim < -most ||
      layout.dim >= most) {
    return absl::InvalidArgumentError(
        absl::StrCat("is '", text.substr(0, 80),
                     "', not replicate or shard(dim), such as shard(1)"));
  }
  return layout;
}

absl::string_view ParallelKindName(ParallelStyle::Kind kind) {
  switch (kind) {
    case Kind::kColwise:
      return "colwise";
    case Kind::kRowwise:
      return "rowwise";
    case Kind::kSequence:
      return "sequence_parallel";
    case Kind::kReplicate:
      break;
  }
  return "replicate";
}

absl::StatusOr<ParallelStyle> ParseParallelStyle(absl::string_view word) {
  for (const Word& known : kWords) {
    if (word == known.word) return known.style;
  }
  return UnknownWord(word);
}

absl::StatusOr<std::vector<std::string>> ExpandBraces(
    absl::string_view pattern) {
  if (pattern.size() > kMaxPlanPatternBytes) {
    return BadPattern(pattern, absl::StrCat("has more than ",
                                            kMaxPlanPatternBytes, " bytes"));
  }
  std::vector<std::string> expanded = {""};
  absl::string_view rest = pattern;
  while (!rest.empty()) {
    const size_t open = rest.find_first_of("{}");
    for (std::string& text : expanded) {
      absl::StrAppend(&text, rest.substr(0, open));
    }
    if (open == absl::string_view::npos) break;
    const size_t close = rest.find_first_of("{}", open + 1);
    if (rest[open] == '}' || close == absl::string_view::npos ||
        rest[close] == '{') {
      return BadPattern(
          pattern, "has braces that are not closed, or nested; write {a,b}");
    }
    const std::vector<absl::string_view> words =
        absl::StrSplit(rest.substr(open + 1, close - open - 1), ',');
    if (expanded.size() > kMaxPlanPatterns / words.size()) {
      return BadPattern(pattern, absl::StrCat("stands for more than ",
                                              kMaxPlanPatterns, " patterns"));
    }
    std::vector<std::string> next;
    for (const std::string& before : expanded) {
      for (const absl::string_view word : words) {
        next.push_back(absl::StrCat(before, word));
      }
    }
    expanded = std::move(next);
    rest.remove_prefix(close + 1);
  }
  for (const std::string& text : expanded) {
    const std::vector<absl::string_view> tokens = absl::StrSplit(text, '.');
    for (const absl::string_view token : tokens) {
      if (!token.empty() || text.empty()) continue;
      return BadPattern(pattern, "has a token without a character");
    }
  }
  return expanded;
}

bool MatchesModule(absl::string_view pattern, absl::string_view module) {
  const std::vector<std::string> tokens = absl::StrSplit(pattern, '.');
  const std::vector<absl::string_view> names = absl::StrSplit(module, '.');
  return MatchesTokens(tokens, names);
}

bool IsEmbeddingName(absl::string_view module) {
  const std::vector<absl::string_view> tokens = absl::StrSplit(module, '.');
  const std::string name = absl::AsciiStrToLower(tokens.back());
  if (absl::StrContains(name, "embed")) {
    return !absl::StrContains(name, "out") && !absl::StrContains(name, "proj");
  }
  for (const absl::string_view word : absl::StrSplit(name, '_')) {
    if (word == "emb" || word == "wte" || word == "wpe") return true;
  }
  return false;
}

absl::Status ParallelPlan::Add(Entry entry) {
  DCP_ASSIGN_OR_RETURN(const std::vector<std::string> expanded,
                       ExpandBraces(entry.pattern));
  if (entries_.size() == kMaxPlanEntries ||
      patterns_.size() + expanded.size() > kMaxPlanPatterns) {
    return absl::InvalidArgumentError(
        absl::StrCat("a plan has at most ", kMaxPlanEntries, " entries and ",
                     kMaxPlanPatterns, " patterns after braces are expanded"));
  }
  for (const std::string& text : expanded) {
    std::vector<std::string> tokens = absl::StrSplit(text, '.');
    if (IsParameterName(tokens.back())) {
      return BadPattern(entry.pattern,
                        absl::StrCat("names a parameter; a plan names modules, "
                                     "so leave .",
                                     tokens.back(), " out"));
    }
    patterns_.push_back({.entry = entries_.size(), .tokens = tokens});
  }
  entries_.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::StatusOr<const ParallelPlan::Entry*> ParallelPlan::Find(
    absl::string_view module) const {
  const std::vector<absl::string_view> tokens = absl::StrSplit(module, '.');
  const Entry* found = nullptr;
  for (const Pattern& pattern : patterns_) {
    if (!MatchesTokens(pattern.tokens, tokens)) continue;
    const Entry& entry = entries_[pattern.entry];
    if (found == nullptr) {
      found = &entry;
    } else if (found->style != entry.style) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the module ", module, " matches '", found->pattern, "', which is ",
          ParallelKindName(found->style.kind), ", and '", entry.pattern,
          "', which is ", ParallelKindName(entry.style.kind),
          "; a module has one style with one set of options"));
    }
  }
  return found;
}

bool operator==(const ParallelPlan& a, const ParallelPlan& b) {
  return std::equal(
      a.entries_.begin(), a.entries_.end(), b.entries_.begin(),
      b.entries_.end(),
      [](const ParallelPlan::Entry& x, const ParallelPlan::Entry& y) {
        return x.pattern == y.pattern && x.style == y.style;
      });
}

absl::StatusOr<Placement> ParameterPlacement(const ParallelStyle& style,
                                             absl::string_view module,
                                             absl::string_view name,
                                             size_t num_dims) {
  const bool is_colwise = style.kind == Kind::kColwise;
  if (!is_colwise && style.kind != Kind::kRowwise) return Placement{};
  const bool is_embedding = style.embedding.value_or(IsEmbeddingName(module));
  if (name == "bias") {
    if (!is_colwise || is_embedding || num_dims == 0) return Placement{};
    return Placement{.kind = Placement::Kind::kShard, .dim = 0};
  }
  if (name != "weight") return Placement{};
  if (num_dims != 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        module, ".weight has ", num_dims, " dimensions and cannot be ",
        ParallelKindName(style.kind),
        ", which is for Linear and Embedding: their weights have 2"));
  }
  return Placement{.kind = Placement::Kind::kShard,
                   .dim = is_colwise == is_embedding ? 1 : 0};
}

}  // namespace dcp
