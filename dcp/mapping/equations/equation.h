// SPDX-License-Identifier: Apache-2.0
// Equation: a mapping's rule between two sides, for one model. It finds the
// rule's tensors, solves the axis sizes from their shapes, and makes the
// pieces. For mapping.cc; one thread.
#ifndef DCP_MAPPING_EQUATIONS_EQUATION_H_
#define DCP_MAPPING_EQUATIONS_EQUATION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/mapping/equations/equation_sides.h"
#include "dcp/mapping/equations/lacking_instances.h"
#include "dcp/mapping/equations/mapped_builder.h"
#include "dcp/mapping/equations/mapped_tensors.h"
#include "dcp/mapping/language/mapping_file.h"
#include "dcp/mapping/language/model_sizes.h"
#include "dcp/mapping/language/name_template.h"

namespace dcp {

class Equation {
 public:
  // Both sides are in the rule, and one is the pivot. All arguments must
  // outlive this.
  Equation(const MappingFile& file, const MappingRule& rule,
           const std::string& from, const std::string& to,
           const std::vector<std::string>& allow_missing, ModelSizes& sizes,
           EquationSources& sources, MappedBuilder& builder);

  // Applies the rule wherever it fits and takes its sources. A source that it
  // requires may be missing if `allow_missing` names it. InvalidArgument if
  // the rule makes no sense for this model, DataLoss if the sources do not fit
  // it, FailedPrecondition if two rules take or make one tensor; all begin with
  // "FILE:LINE: ".
  absl::Status Apply();

 private:
  absl::Status ApplyHere(RuleReport& report);
  // Prepares the names with their formulas, and the sizes from config.json.
  absl::Status Prepare();
  absl::Status PrepareRanges();
  absl::Status Match();
  absl::Status MatchTerm(size_t term);
  absl::Status AddMatch(size_t term, size_t source,
                        const std::vector<NameValue>& values);
  bool IsInRange(const std::string& index, uint64_t value) const;
  // Whether an index has no values, so that there are no tensors to find.
  bool IsVoid() const;
  absl::Status CheckInstancesComplete();
  // OK if the tensors of this instance may be missing.
  absl::Status AllowMissing(const LackingInstance& lacking);
  bool MayBeMissing(absl::string_view name) const;
  void CompleteStacked(EquationInstance& instance) const;
  absl::Status CheckFound(const EquationInstance& instance) const;
  absl::Status Take(EquationInstance& instance);
  absl::Status RescalePieces(size_t first);
  absl::Status TakeTies(EquationInstance& instance, RuleReport& report);
  absl::Status TakeTie(absl::string_view name, const MappingTensor& first,
                       uint32_t first_number);

  const MappingFile& file_;
  const MappingRule& rule_;
  const std::string& from_;
  const std::string& to_;
  const std::vector<std::string>& allow_missing_;
  ModelSizes& model_;
  EquationSources& sources_;
  MappedBuilder& builder_;

  EquationSides sides_;
  EquationInstances instances_;
};

}  // namespace dcp

#endif  // DCP_MAPPING_EQUATIONS_EQUATION_H_
