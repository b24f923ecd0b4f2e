// SPDX-License-Identifier: Apache-2.0
// Inspection: the facts that `inspect` shows about a checkpoint, gathered once
// and then rendered for people or as JSON. Reads nothing. Any thread.
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
  // Totals for the entries below; they saturate.
  uint64_t num_elements = 0;
  uint64_t num_bytes = 0;
  std::vector<DTypeTotal> dtypes;  // in the order of DType, no zeros
  // Point into the checkpoint, which outlives this; in the index's order, which
  // is mostly the model's.
  std::vector<const CheckpointEntry*> tensors;
  std::vector<const CheckpointEntry*> objects;
  // The objects' texts if a server sent them; otherwise the entries have them.
  std::optional<std::vector<std::string>> object_texts;
  // Why the objects' values are not shown; empty if they are.
  std::string objects_note;
  std::vector<std::string> warnings;  // about parts that the checkpoint lacks
};

// Whether a property with that label describes a problem with the checkpoint.
bool IsProblem(absl::string_view label);

// Counts the entries with a name that matches `glob` (all if it is empty). The
// caller fills in the fields about the whole checkpoint.
Inspection InspectEntries(absl::Span<const CheckpointEntry> entries,
                          absl::string_view glob);

// Text for the object with number `index`, at most `max_bytes`; absent if the
// object was not read.
std::optional<std::string> ObjectText(const Inspection& inspection,
                                      size_t index, size_t max_bytes);

// How a tensor in the inspection is cut, in words; see layout_name.h.
std::string LayoutText(const Inspection& inspection, const TensorEntry& tensor);

// How much to list.
struct InspectionView {
  bool chunks = false;  // also a line for each chunk
  // A line for each tensor and object, however many there are. Without it, more
  // than kMaxListed tensors are grouped by the beginnings of their names.
  bool all = false;
  // Sums up by this many name components; 0: as many as fit on a screen, and
  // only if there are many tensors.
  size_t depth = 0;
  // The most lines in each table; one more line stands for the rest. 0: no
  // limit, except for objects if the checkpoint's names are grouped.
  size_t limit = 0;

  static constexpr size_t kMaxListed = 200;
  static constexpr size_t kScreenRows = 40;
};

// For people.
std::string RenderInspection(const Inspection& inspection,
                             const InspectionView& view);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_INSPECTION_H_
