// SPDX-License-Identifier: Apache-2.0
// Reads each entry's pattern and style, and reports options that do not fit.
//
// Tested by tests/config/parallel_plan_test.cc.
#include "config/document/plan_node.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/document/section.h"
#include "config/document/setting.h"
#include "dcp/base/limits.h"

namespace fsdp {
namespace {

using config::Node;
using config::Section;
using dcp::ActivationLayout;
using dcp::ParallelStyle;

// An entry's place. The key in it may be the empty pattern.
SourceLocation EntryPlace(absl::string_view pattern, const Node& node) {
  SourceLocation place = node.place;
  if (pattern.empty()) place.key = "\"\"";
  return place;
}

// Whether a style has an option.
bool Takes(ParallelStyle::Kind kind, absl::string_view key) {
  switch (kind) {
    case ParallelStyle::Kind::kColwise:
    case ParallelStyle::Kind::kRowwise:
      return key != "sequence_dim";
    case ParallelStyle::Kind::kSequence:
      return key == "sequence_dim" || key == "use_local_output";
    case ParallelStyle::Kind::kReplicate:
      break;
  }
  return false;
}

// Adds a problem for each option that does not fit the style.
void RefuseOptions(absl::string_view word, ParallelStyle::Kind kind,
                   const Node& map, Findings& findings) {
  for (const absl::string_view key :
       {"input_layouts", "output_layouts", "use_local_output", "embedding",
        "sequence_dim"}) {
    const Node* value = map.Find(key);
    if (value == nullptr || Takes(kind, key)) continue;
    findings.Problem(value->place, absl::StrCat("is not an option of ", word,
                                                "; leave it out"));
  }
}

void ReadLayout(absl::string_view key, Section& section, Findings& findings,
                std::optional<ActivationLayout>& layout) {
  Setting<std::string> text;
  if (!section.Read(key, text)) return;
  absl::StatusOr<ActivationLayout> parsed = dcp::ParseActivationLayout(*text);
  if (!parsed.ok()) {
    findings.Problem(*text.place(), std::string(parsed.status().message()));
  } else if (layout.has_value()) {
    findings.Problem(*text.place(),
                     "is given, but the word of the style already says it");
  } else {
    layout = *parsed;
  }
}

void ReadOptions(Section& section, Findings& findings, ParallelStyle& style) {
  ReadLayout("input_layouts", section, findings, style.input_layouts);
  ReadLayout("output_layouts", section, findings, style.output_layouts);
  Setting<bool> local;
  if (section.Read("use_local_output", local)) style.use_local_output = *local;
  Setting<bool> embedding;
  if (section.Read("embedding", embedding)) style.embedding = *embedding;
  constexpr auto kMost = static_cast<int64_t>(dcp::kMaxDims) - 1;
  Setting<int64_t> dim;
  if (section.Read("sequence_dim", {.least = 0, .most = kMost}, dim)) {
    style.sequence_dim = *dim;
  }
}

// An entry's style; nothing after a problem that leaves none.
std::optional<ParallelStyle> ReadStyle(const Node& node,
                                       const SourceLocation& place,
                                       Findings& findings) {
  absl::string_view word = node.text;
  SourceLocation word_place = place;
  if (node.kind == Node::Kind::kMap) {
    const Node* style = node.Find("style");
    if (style == nullptr || style->kind != Node::Kind::kString) {
      findings.Problem(place,
                       "has no style; write {style: colwise}, or only a word");
      return std::nullopt;
    }
    word = style->text;
    word_place = style->place;
  } else if (node.kind != Node::Kind::kString) {
    findings.Problem(place,
                     "is neither a style, such as colwise, nor a map with one");
    return std::nullopt;
  }
  absl::StatusOr<ParallelStyle> style = dcp::ParseParallelStyle(word);
  if (!style.ok()) {
    findings.Problem(word_place, std::string(style.status().message()));
    return std::nullopt;
  }
  if (node.kind == Node::Kind::kMap) {
    Section section(node, findings);
    (void)section.Find("style");
    RefuseOptions(word, style->kind, node, findings);
    ReadOptions(section, findings, *style);
    section.Finish();
  }
  return *style;
}

}  // namespace

dcp::ParallelPlan read_parallel_plan(const Node& map, Findings& findings) {
  dcp::ParallelPlan plan;
  for (const auto& [pattern, node] : map.entries) {
    const SourceLocation place = EntryPlace(pattern, node);
    const std::optional<ParallelStyle> style = ReadStyle(node, place, findings);
    if (!style.has_value()) continue;
    const absl::Status added =
        plan.Add({.pattern = pattern, .style = *style, .line = place.line});
    if (!added.ok()) {
      findings.Problem(place, absl::StrCat("is refused: ", added.message()));
    }
  }
  return plan;
}

std::string style_text(const ParallelStyle& style) {
  std::string options;
  const auto add = [&options](absl::string_view key, absl::string_view value) {
    absl::StrAppend(&options, ", ", key, ": ", value);
  };
  const auto add_bool = [&add](absl::string_view key,
                               const std::optional<bool>& value) {
    if (value.has_value()) add(key, *value ? "true" : "false");
  };
  const auto add_layout = [&add](
                              absl::string_view key,
                              const std::optional<ActivationLayout>& layout) {
    if (!layout.has_value()) return;
    add(key, layout->kind == ActivationLayout::Kind::kReplicate
                 ? "replicate"
                 : absl::StrCat("shard(", layout->dim, ")"));
  };
  add_bool("embedding", style.embedding);
  add_layout("input_layouts", style.input_layouts);
  add_layout("output_layouts", style.output_layouts);
  add_bool("use_local_output", style.use_local_output);
  if (style.sequence_dim.has_value()) {
    add("sequence_dim", absl::StrCat(*style.sequence_dim));
  }
  const absl::string_view word = dcp::ParallelKindName(style.kind);
  if (options.empty()) return std::string(word);
  return absl::StrCat("{style: ", word, options, "}");
}

}  // namespace fsdp
