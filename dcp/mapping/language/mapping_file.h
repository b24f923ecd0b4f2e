// SPDX-License-Identifier: Apache-2.0
// MappingFile: a rule file, read and checked, but not applied yet: the sides,
// and each rule's spelling of the same tensors on each side. README.md
// describes the language. Plain data; pure; any thread.
#ifndef DCP_MAPPING_LANGUAGE_MAPPING_FILE_H_
#define DCP_MAPPING_LANGUAGE_MAPPING_FILE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "dcp/mapping/language/axes.h"
#include "dcp/mapping/language/formula.h"
#include "dcp/mapping/language/name_template.h"
#include "dcp/mapping/language/rescale.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// One tensor in a rule, or a constant.
struct MappingTerm {
  std::optional<NameTemplate> name;  // nullopt: zeros
  Axes axes;
};

// A rule: the same numbers, as each side names and shapes them.
struct MappingRule {
  enum class Part : uint8_t { kAll, kModel, kStates };
  struct Range {
    std::string index;
    Formula first;
    Formula end;  // exclusive
  };

  int line = 0;
  // By side, derived ones included; the pivot is always there. On one side, all
  // terms that have names have the same variables.
  std::map<std::string, std::vector<MappingTerm>> sides;
  std::optional<Formula> when;
  std::vector<Range> ranges;
  Part part = Part::kAll;
  // If it is not 0, the rule may match nothing; absent: it must match.
  std::optional<Formula> optional;
  // By side: names of tensors that equal the first term, and are written too
  // (copies) or may be there (tolerated).
  std::map<std::string, std::vector<std::string>> copies;
  std::map<std::string, std::vector<std::string>> tolerated;
  // The type for constants on a side that has no names.
  std::optional<DType> dtype;
  // By side: how the numbers there follow from the pivot's. The pivot has no
  // entry.
  std::map<std::string, Rescale> rescaled;
};

// How a side stores tensors as codes and scales for blocks. Rules are about the
// decoded tensors. All names have the same variables.
struct MappingBlocks {
  enum class Kind : uint8_t { kFloat8, kMxfp4 };  // see lensed_tensor.h
  Kind kind = Kind::kFloat8;
  NameTemplate weight;  // the name in the rules
  NameTemplate codes;
  NameTemplate scales;
  // Which weights stay as they are when a checkpoint is encoded.
  std::vector<NameTemplate> except;
};

struct MappingSide {
  std::string name;
  std::string of;  // the side that this one is derived from; empty if none
  std::vector<std::pair<std::string, std::string>> spell;
  std::vector<std::string> stack;
  std::vector<NameTemplate> drop;
  // A prefix that all names in a checkpoint may lack, as in a model without its
  // head; empty if none. Not inherited by derived sides.
  std::string may_lack;
  // The name for optimizer state. It has the variables `param`, a parameter's
  // name, and `slot`.
  std::optional<NameTemplate> states;
  // Not inherited by derived sides.
  std::optional<MappingBlocks> blocks;
};

struct MappingFile {
  // A size, and where it comes from: the first formula that has a value.
  struct Size {
    std::string name;
    int line = 0;
    std::vector<Formula> formulas;
  };

  std::string file_name;  // for messages
  std::string name;
  std::vector<std::string> model_types;
  std::vector<Size> config;
  std::map<std::string, int64_t> params;
  std::vector<MappingSide> sides;  // the first is the pivot
  std::vector<MappingRule> rules;

  const MappingSide* FindSide(absl::string_view side) const;
  const Size* FindSize(absl::string_view size) const;
  const std::string& pivot() const { return sides.front().name; }
};

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_MAPPING_FILE_H_
