// SPDX-License-Identifier: Apache-2.0
// Inspection: what `inspect` says about a checkpoint, gathered once and then
// rendered for people or as JSON. Reads nothing. Any thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_INSPECTION_H_
#define TOOLS_DCP_CONVERT_OUTPUT_INSPECTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/tensor/dtype.h"

namespace dcp::tools {

struct Inspection {
  struct DTypeTotal {
    DType dtype;
    uint64_t num_tensors = 0;
    uint64_t num_bytes = 0;
  };
  struct DataFile {
    std::string name;
    std::optional<uint64_t> num_bytes;  // absent: the file is missing
  };

  std::string path;
  Format format = Format::kDcp;
  std::vector<std::pair<std::string, std::string>> properties;
  std::vector<DataFile> files;
  // Totals of the entries below; they saturate.
  uint64_t num_elements = 0;
  uint64_t num_bytes = 0;
  std::vector<DTypeTotal> dtypes;  // in the order of DType, no zeros
  // Point into the checkpoint, which outlives this; in the order of the index,
  // which is mostly that of the model.
  std::vector<const CheckpointEntry*> tensors;
  std::vector<const CheckpointEntry*> objects;
  // The texts of the objects if a server sent them; otherwise the entries have
  // them.
  std::optional<std::vector<std::string>> object_texts;
  // Why values of objects are not shown; empty if they are.
  std::string objects_note;
  std::vector<std::string> warnings;  // what the checkpoint lacks
};

// Whether a property of that label says what is wrong with the checkpoint.
bool IsProblem(absl::string_view label);

// Counts the entries whose names match `glob` (all if it is empty). The caller
// fills in the fields that concern the whole checkpoint.
Inspection InspectEntries(absl::Span<const CheckpointEntry> entries,
                          absl::string_view glob);

// The text of object number `index`, at most `max_bytes` of it; absent if the
// object was not read.
std::optional<std::string> ObjectText(const Inspection& inspection,
                                      size_t index, size_t max_bytes);

// How a tensor of the inspection is cut, in words; see layout_name.h.
std::string LayoutOf(const Inspection& inspection, const TensorEntry& tensor);

// How much of an inspection to list.
struct InspectionView {
  bool chunks = false;  // also a line for each chunk
  // A line for each tensor and object, however many there are. Without it, more
  // than kMaxListed tensors are grouped by the beginnings of their names.
  bool all = false;
  // The number of name components to sum up by; 0: as many as fit on a screen,
  // and only if there are many tensors.
  size_t depth = 0;
  // The most lines of each table; one more line stands for the rest. 0: no
  // limit, except for the objects of a checkpoint whose names are grouped.
  size_t limit = 0;

  static constexpr size_t kMaxListed = 200;
  static constexpr size_t kScreenRows = 40;
};

// For people.
std::string RenderInspection(const Inspection& inspection,
                             const InspectionView& view);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_INSPECTION_H_
