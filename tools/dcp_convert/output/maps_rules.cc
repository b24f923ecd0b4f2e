// SPDX-License-Identifier: Apache-2.0
// Fills the numbers of a config into the rules.
// Tested by tests/tools/dcp_convert/commands/maps_command_test.cc.
#include "tools/dcp_convert/output/maps_rules.h"

#include <cstdint>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "dcp/base/status.h"
#include "dcp/mapping/language/mapping_file.h"
#include "tools/dcp_convert/output/render.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

bool IsWordByte(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
}

class Shower {
 public:
  Shower(const MappingFile& file, ModelSizes& sizes)
      : file_(file), sizes_(sizes) {}

  absl::StatusOr<ShownRules> Show(const std::string& from,
                                  const std::string& to) {
    ShownRules shown{.from = from, .to = to, .rules = {}, .idle = {}};
    for (const MappingRule& rule : file_.rules) {
      if (!rule.sides.contains(from) || !rule.sides.contains(to)) continue;
      ShownRule row;
      row.line = rule.line;
      if (rule.when.has_value()) {
        const absl::StatusOr<int64_t> when = sizes_.FindValue(*rule.when);
        if (when.ok() && *when == 0) {
          shown.idle.push_back(rule.line);
          continue;
        }
        row.notes.push_back(absl::StrCat("if ", rule.when->text()));
      }
      DCP_ASSIGN_OR_RETURN(row.from, Terms(rule.sides.at(from)));
      DCP_ASSIGN_OR_RETURN(row.to, Terms(rule.sides.at(to)));
      DCP_RETURN_IF_ERROR(AddIndices(rule, {from, to}, row));
      AddNotes(rule, {from, to}, row);
      shown.rules.push_back(std::move(row));
    }
    return shown;
  }

  absl::StatusOr<std::vector<std::string>> Sizes() {
    std::vector<std::string> lines;
    for (const MappingFile::Size& size : file_.config) {
      DCP_ASSIGN_OR_RETURN(const std::optional<uint64_t> value,
                           sizes_.FindKnownSize(size.name));
      if (value.has_value()) lines.push_back(sizes_.Explain(size.name, *value));
    }
    return lines;
  }

 private:
  absl::StatusOr<std::vector<ShownRule::Term>> Terms(
      const std::vector<MappingTerm>& terms) {
    std::vector<ShownRule::Term> shown;
    for (const MappingTerm& term : terms) {
      ShownRule::Term& row = shown.emplace_back();
      row.name = term.name.has_value() ? term.name->text() : "0";
      for (const AxisDim& dim : term.axes.dims()) {
        // Tensors keep their shapes if a rule does not say otherwise.
        if (dim.is_rest && term.axes.dims().size() == 1) continue;
        DCP_ASSIGN_OR_RETURN(const std::string text, WithSizes(ToString(dim)));
        absl::StrAppend(&row.axes, row.axes.empty() ? "" : " ", text);
      }
    }
    return shown;
  }

  // "(group q)" as "(group=8 q=4)".
  absl::StatusOr<std::string> WithSizes(absl::string_view text) {
    std::string result;
    while (!text.empty()) {
      size_t length = 0;
      while (length < text.size() && IsWordByte(text[length])) ++length;
      const std::string word(text.substr(0, length == 0 ? 1 : length));
      text.remove_prefix(word.size());
      result += word;
      if (length == 0) continue;
      DCP_ASSIGN_OR_RETURN(const std::optional<uint64_t> size,
                           sizes_.FindKnownSize(word));
      if (size.has_value()) absl::StrAppend(&result, "=", *size);
    }
    return result;
  }

  absl::Status AddIndices(const MappingRule& rule,
                          const std::vector<std::string>& sides,
                          ShownRule& row) {
    std::set<std::string> done;
    for (const MappingRule::Range& range : rule.ranges) {
      const absl::StatusOr<int64_t> first = sizes_.FindValue(range.first);
      const absl::StatusOr<int64_t> end = sizes_.FindValue(range.end);
      const bool is_known = first.ok() && end.ok();
      row.notes.push_back(absl::StrCat(
          range.index, " = ",
          is_known
              ? absl::StrCat(*first, " .. ", *end)
              : absl::StrCat(range.first.text(), " .. ", range.end.text())));
      done.insert(range.index);
    }
    for (const std::string& side : sides) {
      for (const MappingTerm& term : rule.sides.at(side)) {
        if (!term.name.has_value()) continue;
        for (const auto& [name, is_index] : term.name->variables()) {
          if (!is_index || !done.insert(name).second) continue;
          DCP_ASSIGN_OR_RETURN(const std::optional<uint64_t> size,
                               sizes_.FindKnownSize(name));
          if (size.has_value()) {
            row.notes.push_back(absl::StrCat(name, " = 0 .. ", *size));
          }
        }
      }
    }
    return absl::OkStatus();
  }

  static void AddNotes(const MappingRule& rule,
                       const std::vector<std::string>& sides, ShownRule& row) {
    if (rule.part == MappingRule::Part::kModel) {
      row.notes.push_back("for the model only");
    }
    if (rule.part == MappingRule::Part::kStates) {
      row.notes.push_back("for states only");
    }
    if (rule.optional.has_value()) {
      row.notes.push_back(
          rule.optional->text() == "1"
              ? "optional"
              : absl::StrCat("optional if ", rule.optional->text()));
    }
    for (const auto& [what, names] :
         {std::pair("with its copy", &rule.copies),
          std::pair("which may have the copy", &rule.tolerated)}) {
      for (const std::string& side : sides) {
        const auto it = names->find(side);
        if (it == names->end()) continue;
        row.notes.push_back(absl::StrCat(side, " ", what, " ",
                                         absl::StrJoin(it->second, ", ")));
      }
    }
  }

  const MappingFile& file_;
  ModelSizes& sizes_;
};

std::string Line(const std::string& side, size_t width,
                 const ShownRule::Term& term) {
  return Printable(absl::StrFormat("  %-*s  %s%s%s", static_cast<int>(width),
                                   side, term.name,
                                   term.axes.empty() ? "" : ": ", term.axes));
}

}  // namespace

absl::StatusOr<ShownMapping> ShowMapping(const Mapping& mapping,
                                         const MapOptions& options) {
  const MappingFile& file = mapping.file();
  for (const std::string& side : {options.from, options.to}) {
    if (file.FindSide(side) != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the mapping ", file.name, " has no side '", side,
                     "'; it has ", absl::StrJoin(mapping.sides(), ", ")));
  }
  DCP_ASSIGN_OR_RETURN(
      ModelSizes sizes,
      ModelSizes::Create(file, options.config, options.settings));
  Shower shower(file, sizes);
  ShownMapping shown{.name = file.name, .sizes = {}, .steps = {}};
  DCP_ASSIGN_OR_RETURN(shown.sizes, shower.Sizes());
  std::vector<std::string> way = {options.from, options.to};
  if (options.from != file.pivot() && options.to != file.pivot()) {
    way.insert(way.begin() + 1, file.pivot());
  }
  for (size_t i = 0; i + 1 < way.size(); ++i) {
    DCP_ASSIGN_OR_RETURN(shown.steps.emplace_back(),
                         shower.Show(way[i], way[i + 1]));
  }
  return shown;
}

std::string RenderMapping(const ShownMapping& shown) {
  std::string text;
  for (const std::string& size : shown.sizes) {
    absl::StrAppend(&text, Printable(size), "\n");
  }
  for (const ShownRules& step : shown.steps) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", Printable(shown.name),
                    ", ", step.from, " to ", step.to, ": ",
                    FormatPlural(step.rules.size(), "rule"), "\n");
    const size_t width = std::max(step.from.size(), step.to.size());
    for (const ShownRule& rule : step.rules) {
      absl::StrAppend(&text, "\nline ", rule.line,
                      rule.notes.empty() ? "" : ", ",
                      Printable(absl::StrJoin(rule.notes, ", ")), "\n");
      for (const auto& [side, terms] :
           {std::pair(&step.from, &rule.from), std::pair(&step.to, &rule.to)}) {
        for (const ShownRule::Term& term : *terms) {
          absl::StrAppend(&text, Line(*side, width, term), "\n");
        }
      }
    }
    if (!step.idle.empty()) {
      absl::StrAppend(&text, "\nnot for this model: the rules of lines ",
                      absl::StrJoin(step.idle, ", "), "\n");
    }
  }
  return text;
}

}  // namespace dcp::tools
