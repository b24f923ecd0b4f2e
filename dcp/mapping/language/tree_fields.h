// SPDX-License-Identifier: Apache-2.0
// TreeFields: shared by the readers of rule files: reads a Node's values as
// texts, numbers and lists, with errors that name their lines. Pure; any
// thread.
#ifndef DCP_MAPPING_LANGUAGE_TREE_FIELDS_H_
#define DCP_MAPPING_LANGUAGE_TREE_FIELDS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/mapping/language/formula.h"
#include "dcp/mapping/language/name_template.h"
#include "document/node.h"

namespace dcp {

using document::Node;

class TreeFields {
 public:
  // `file_name` must outlive this.
  explicit TreeFields(absl::string_view file_name) : file_name_(file_name) {}

  // InvalidArgument: "FILE:LINE:COLUMN: `what`".
  absl::Status Refuse(document::TextPosition at, absl::string_view what) const;
  absl::Status Refuse(const Node& at, absl::string_view what) const;
  // `status` with that place in front of its message.
  absl::Status At(const Node& at, const absl::Status& status) const;

  // `what` names the value in messages: "the name of a side".
  absl::StatusOr<std::string> Text(const Node& tree,
                                   absl::string_view what) const;
  absl::StatusOr<int64_t> Integer(const Node& tree,
                                  absl::string_view what) const;
  absl::StatusOr<bool> Bool(const Node& tree, absl::string_view what) const;
  // A text is a list with one entry, and a missing value is an empty list.
  absl::StatusOr<std::vector<std::string>> Texts(const Node& tree,
                                                 absl::string_view what) const;
  absl::StatusOr<Formula> ReadFormula(const Node& tree,
                                      absl::string_view what) const;
  absl::StatusOr<NameTemplate> ReadName(const Node& tree,
                                        absl::string_view text) const;

  absl::Status CheckMap(const Node& tree, absl::string_view what) const;
  absl::Status CheckList(const Node& tree, absl::string_view what) const;
  // Refuses the first key of a map that is not among `known`.
  absl::Status CheckKeys(const Node& tree,
                         absl::Span<const absl::string_view> known) const;

 private:
  absl::string_view file_name_;
};

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_TREE_FIELDS_H_
