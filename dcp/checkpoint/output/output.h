// SPDX-License-Identifier: Apache-2.0
// Output: a checkpoint's files before they exist: layouts, literal bytes on
// demand, and payloads with their sources. dcp_output, torch_output and
// safetensors_output build it; image_transfer carries it out. Plain data.
#ifndef DCP_CHECKPOINT_OUTPUT_OUTPUT_H_
#define DCP_CHECKPOINT_OUTPUT_OUTPUT_H_

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/tensor_source.h"
#include "dcp/plan/file_layout.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// A box's row-major elements as they will be in a file. They come from a stored
// tensor, from one that is assembled from stored tensors (see mapped_tensor.h),
// or from memory. All pointers must outlive the transfer.
struct Payload {
  const TensorEntry* stored = nullptr;
  SourceFiles* files = nullptr;    // the files that hold `stored`
  TensorSource* source = nullptr;  // replaces `stored`; gives `dtype`
  Box box;
  DType dtype = DType::kFloat32;  // in the output
  uint32_t entry = 0;  // the same for all payloads from a tensor, in order

  uint64_t num_bytes() const {
    return static_cast<uint64_t>(Volume(box.sizes)) * ElementSize(dtype);
  }
};

struct OutputFile {
  FileLayout layout;  // the name is relative to the destination
  // A part's literal bytes. Called in part order; `crcs` has the CRC-32 of each
  // payload before this part.
  absl::AnyInvocable<std::string(size_t part, absl::Span<const uint32_t> crcs)>
      literal;
  // Optional. Called when the digests of the file's payloads are known, in
  // their order; returns the first part's literal again, which replaces the
  // first version before the file is synced.
  absl::AnyInvocable<std::string(absl::Span<const ChunkDigest> digests)> head =
      nullptr;
};

struct Output {
  std::vector<OutputFile> files;
  // Tensors that payloads point to and that no checkpoint contains.
  std::list<TensorEntry> own_tensors;
  std::vector<Payload> payloads;  // LayoutPart::payload indexes them
  bool needs_crcs = false;
  bool needs_digests = false;
  // The file that turns the others into a checkpoint; the name is empty if
  // there is none.
  std::string index_name;
  absl::AnyInvocable<std::string()> index;
  std::string digests_name;
};

// One value on the way into an output.
struct OutputEntry {
  std::string fqn;
  StatePath path;
  // For a tensor:
  const TensorEntry* tensor = nullptr;
  DType dtype = DType::kFloat32;  // in the output
  // For an object:
  const ObjectEntry* object = nullptr;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OUTPUT_OUTPUT_H_
