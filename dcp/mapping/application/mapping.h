// SPDX-License-Identifier: Apache-2.0
// Mapping: turns a checkpoint's tensors into the same model, named and shaped
// as another program expects. README.md describes the rules' language. It reads
// names and shapes and says where each element goes; it opens no file and moves
// no byte. Immutable; any thread.
//
//   DCP_ASSIGN_OR_RETURN(const Mapping mapping, BuiltinMapping("llama"));
//   mapping.Map(tensors, {.from = "hf", .to = "torchtitan", .config = json});
#ifndef DCP_MAPPING_APPLICATION_MAPPING_H_
#define DCP_MAPPING_APPLICATION_MAPPING_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/mapping/application/map_options.h"
#include "dcp/mapping/equations/mapped_tensors.h"
#include "dcp/mapping/language/mapping_file.h"

namespace dcp {

class Mapping {
 public:
  const std::string& name() const { return file_->name; }
  // The model types in config.json that this mapping is for.
  const std::vector<std::string>& model_types() const {
    return file_->model_types;
  }
  // The text and the name of the rule file that this was read from.
  const std::string& text() const { return *text_; }
  const std::string& file_name() const { return file_->file_name; }
  // The sides' names; the first is the pivot.
  std::vector<std::string> sides() const;

  // Maps `sources`. Their names are unique and have no wrapper prefixes.
  // Between two sides that are not the pivot, the rules are applied to the
  // pivot first, and messages and reports then also mention the pivot's names.
  //
  // InvalidArgument for a side or setting that does not exist, for a model with
  // another type, and for rules that make no sense for this model; DataLoss for
  // sources that do not fit the rules; FailedPrecondition if a source would be
  // lost or a destination made twice; ResourceExhausted beyond a limit in
  // mapping_limits.h. Messages name the rule's line, the tensor, and the sizes
  // that do not agree.
  absl::StatusOr<MappedTensors> Map(absl::Span<const MappingTensor> sources,
                                    const MapOptions& options) const;

  const MappingFile& file() const { return *file_; }

 private:
  friend absl::StatusOr<Mapping> ParseMapping(absl::string_view text,
                                              absl::string_view file_name);

  Mapping() = default;

  // Shared by this Mapping's copies; immutable.
  std::shared_ptr<const MappingFile> file_;
  std::shared_ptr<const std::string> text_;
};

// Reads a rule file; `name` is for messages. InvalidArgument, beginning with
// "FILE:LINE:COLUMN: ", if the text is not a rule file.
absl::StatusOr<Mapping> ParseMapping(absl::string_view text,
                                     absl::string_view file_name);

}  // namespace dcp

#endif  // DCP_MAPPING_APPLICATION_MAPPING_H_
