// Output: the files of a checkpoint before they exist, as layouts, literal
// bytes on demand, and payloads with where they come from. Made by
// dcp_output, torch_output and safetensors_output; carried out by
// image_transfer. Plain data.
#ifndef DCP_CHECKPOINT_OUTPUT_H_
#define DCP_CHECKPOINT_OUTPUT_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/checkpoint.h"
#include "dcp/checkpoint/digests.h"
#include "dcp/checkpoint/source_files.h"
#include "dcp/checkpoint/tensor_source.h"
#include "dcp/plan/file_layout.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// The row-major elements of a box, as they will stand in a file: either of a
// stored tensor or from memory. All pointers outlive the transfer.
struct Payload {
  const TensorEntry* stored = nullptr;
  SourceFiles* files = nullptr;    // of `stored`
  TensorSource* source = nullptr;  // instead of `stored`; it gives `dtype`
  Box box;
  DType dtype = DType::kFloat32;  // in the output
  uint32_t entry = 0;  // payloads of one tensor have the same, in their order

  uint64_t num_bytes() const {
    return static_cast<uint64_t>(Volume(box.sizes)) * ElementSize(dtype);
  }
};

struct OutputFile {
  FileLayout layout;  // its name is relative to the destination
  // The literal bytes of a part. Asked in the order of the parts, of which
  // `crcs` has the CRC-32 of the payloads of all before this one.
  absl::AnyInvocable<std::string(size_t part, absl::Span<const uint32_t> crcs)>
      literal;
  // The literal of the first part once more, when the digests of all payloads
  // of the file are known, in their order: written over the first one before
  // the file is synced. Optional.
  absl::AnyInvocable<std::string(absl::Span<const ChunkDigest> digests)> head =
      nullptr;
};

struct Output {
  std::vector<OutputFile> files;
  // What payloads point to that is not part of a checkpoint.
  std::deque<TensorEntry> own_tensors;
  std::vector<Payload> payloads;  // LayoutPart::payload indexes them
  bool needs_crcs = false;
  bool needs_digests = false;
  // The file that makes a checkpoint of the others; no name if none does.
  std::string index_name;
  absl::AnyInvocable<std::string()> index;
  std::string digests_name;
};

// One value on its way into an output.
struct OutputEntry {
  std::string fqn;
  StatePath path;
  // Of a tensor:
  const TensorEntry* tensor = nullptr;
  DType dtype = DType::kFloat32;  // in the output
  // Of an object:
  const ObjectEntry* object = nullptr;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OUTPUT_H_
