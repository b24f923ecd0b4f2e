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
#include "document/node.h"

namespace dcp {

class RuleReader {
 public:
  // `file` is complete except for the rules; Read adds them. `file` and
  // `fields` must outlive this.
  RuleReader(const TreeFields& fields, MappingFile& file);

  absl::Status Read(const Node& rules);

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

  absl::Status ReadEach(const Node& tree);
  absl::Status ReadRule(const Node& tree, bool is_optional);
  absl::Status ReadOptions(const Node& tree, MappingRule& rule);
  absl::Status ReadNames(const Node& tree, absl::string_view key,
                         std::map<std::string, std::vector<std::string>>& out);
  absl::StatusOr<std::vector<Written>> ReadTerms(const Node& tree);
  absl::StatusOr<Written> ReadTerm(const Node& tree);
  // A side's terms; nullopt if the rule does not mention the side.
  absl::StatusOr<std::optional<std::vector<Written>>> ReadSideTerms(
      const Node& tree, const MappingSide& side);
  absl::StatusOr<Node> WriteOut(const Node& tree, const Words& words);
  absl::StatusOr<std::string> WriteOut(document::TextPosition at,
                                       absl::string_view text,
                                       const Words& words);

  absl::StatusOr<std::vector<MappingTerm>> ParseTerms(
      const Node& tree, absl::string_view side,
      const std::vector<Written>& written);
  absl::Status ReadRescale(const Node& tree, absl::string_view key,
                           float Rescale::*field, MappingRule& rule);
  absl::Status CheckRescale(const Node& tree, const MappingRule& rule);
  absl::Status CheckTies(const Node& tree, const MappingRule& rule);
  absl::Status Spend(document::TextPosition at, size_t num_bytes);

  const TreeFields& fields_;
  MappingFile& file_;
  size_t num_bytes_ = 0;  // in all rules so far
};

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_RULE_READER_H_
