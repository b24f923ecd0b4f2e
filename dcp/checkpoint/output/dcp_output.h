// SPDX-License-Identifier: Apache-2.0
// A DCP checkpoint's data files: each is a sequence of torch.save archives, one
// per chunk or object, 64-byte aligned. Thread-compatible.
#ifndef DCP_CHECKPOINT_OUTPUT_DCP_OUTPUT_H_
#define DCP_CHECKPOINT_OUTPUT_DCP_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/plan/file_layout.h"
#include "dcp/tensor/metadata.h"
#include "dcp/tensor/placement.h"

namespace dcp {

// The rank that wrote the data file with this name: 3 for "__3_0.distcp".
// Nothing for a name that is not DCP's.
std::optional<int64_t> ParseDataFileRank(absl::string_view name);

// Lays out one data file, item by item.
class DcpFileBuilder {
 public:
  // Payloads are appended to `payloads`, which must outlive this.
  DcpFileBuilder(std::string name, std::vector<Payload>& payloads);
  ~DcpFileBuilder();

  uint64_t size() const { return layout_.size(); }

  // Each function returns the item's range; the caller fills in `file`.
  StorageInfo AddTensor(Payload payload);
  // `pickle` refers to storages "0", "1", ... in the order of `tensors`.
  StorageInfo AddObject(std::string pickle, std::vector<Payload> tensors);
  // `bytes` are an item in another checkpoint.
  StorageInfo AddItemAsStored(Payload bytes);

  OutputFile Finish() &&;

 private:
  struct Items;

  StorageInfo AddItem(std::vector<Payload> payloads);

  FileLayout layout_;
  std::vector<Payload>& payloads_;
  std::unique_ptr<Items> items_;
};

// A chunk: one rank writes one box from one entry.
struct DcpChunk {
  uint32_t entry;  // the index among the given entries
  Box box;         // for a tensor
};
using DcpRank = std::vector<DcpChunk>;

// How an entry lies on the ranks.
struct EntryLayout {
  size_t mesh = 0;  // the index among the given meshes
  Placements placements;
};

// The chunks that each rank writes. All meshes have equally many ranks;
// `layouts[i]` belongs to entry i.
absl::StatusOr<std::vector<DcpRank>> ChunksForMeshes(
    absl::Span<const OutputEntry> entries, absl::Span<const Mesh> meshes,
    absl::Span<const EntryLayout> layouts);

// The chunks as the source has them, with one rank for each file. A mapped
// tensor is one chunk, on the rank of the file where it begins.
std::vector<DcpRank> ChunksAsStored(absl::Span<const OutputEntry> entries,
                                    const SourceFiles& files);

struct DcpOutputOptions {
  uint64_t max_file_bytes = 0;  // 0: one file per rank
  bool flattened = true;        // whether to write planner_data
  std::string save_id;
};

// Chooses the name for a rank's next data file.
using DataFileNames = absl::FunctionRef<std::string(int64_t rank)>;

// All data files and the index.
absl::StatusOr<Output> BuildDcpOutput(std::vector<OutputEntry> entries,
                                      SourceFiles& files,
                                      absl::Span<const DcpRank> ranks,
                                      const DcpOutputOptions& options,
                                      DataFileNames next_name);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OUTPUT_DCP_OUTPUT_H_
