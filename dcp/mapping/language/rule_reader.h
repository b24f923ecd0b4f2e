// SPDX-License-Identifier: Apache-2.0
// RuleReader: reads the rules of a rule file: writes out those below `each`,
// spells the derived sides, and checks each side of a rule against the pivot.
// For mapping_reader.cc; pure; one thread.
#ifndef DCP_MAPPING_LANGUAGE_RULE_READER_H_
#define DCP_MAPPING_LANGUAGE_RULE_READER_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/mapping/language/mapping_file.h"
#include "dcp/mapping/language/tree_fields.h"
#include "dcp/mapping/language/yaml_tree.h"

namespace dcp {

class RuleReader {
 public:
  // `file` is complete except for the rules; Read adds them. `file` and
  // `fields` must outlive this.
  RuleReader(const TreeFields& fields, MappingFile& file);

  absl::Status Read(const YamlTree& rules);

  // The name that `derived` has for a name on side `derived.of`: texts are
  // replaced, and the indices that it stacks are left out and appended to
  // `stacked` in order. InvalidArgument if the result is longer than
  // kMaxMappingTextBytes.
  static absl::StatusOr<std::string> Spell(const MappingSide& derived,
                                           absl::string_view name,
                                           std::vector<std::string>& stacked);

 private:
  // A term as it is written.
  struct Written {
    std::string name;  // empty: zeros
    Axes axes;
  };
  using Words = std::map<std::string, std::string>;

  absl::Status ReadEach(const YamlTree& tree);
  absl::Status ReadRule(const YamlTree& tree, bool is_optional);
  absl::Status ReadOptions(const YamlTree& tree, MappingRule& rule);
  absl::Status ReadNames(const YamlTree& tree, absl::string_view key,
                         std::map<std::string, std::vector<std::string>>& out);
  absl::StatusOr<std::vector<Written>> ReadTerms(const YamlTree& tree);
  absl::StatusOr<Written> ReadTerm(const YamlTree& tree);
  // A side's terms; nullopt if the rule does not mention the side.
  absl::StatusOr<std::optional<std::vector<Written>>> ReadSideTerms(
      const YamlTree& tree, const MappingSide& side);
  absl::StatusOr<YamlTree> WriteOut(const YamlTree& tree, const Words& words);
  absl::StatusOr<std::string> WriteOut(const YamlTree& tree,
                                       absl::string_view text,
                                       const Words& words);

  absl::StatusOr<std::vector<MappingTerm>> ParseTerms(
      const YamlTree& tree, absl::string_view side,
      const std::vector<Written>& written);
  absl::Status ReadRescale(const YamlTree& tree, absl::string_view key,
                           float Rescale::*field, MappingRule& rule);
  absl::Status CheckRescale(const YamlTree& tree, const MappingRule& rule);
  absl::Status CheckTies(const YamlTree& tree, const MappingRule& rule);
  absl::Status Spend(const YamlTree& at, size_t num_bytes);

  const TreeFields& fields_;
  MappingFile& file_;
  size_t num_bytes_ = 0;  // in all rules so far
};

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_RULE_READER_H_
