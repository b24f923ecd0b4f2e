// SPDX-License-Identifier: Apache-2.0
// A safetensors file's header, with the digests that we keep in it. It is
// stricter than the reference reader in one point: duplicate names are refused.
// Pure; any thread. Source: the format description in the safetensors
// repository.
#ifndef DCP_FORMAT_SAFETENSORS_SAFETENSORS_H_
#define DCP_FORMAT_SAFETENSORS_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/format/file/read_at.h"
#include "dcp/format/safetensors/sharding_info.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  Dims shape;          // as torch sees it (float4_e2m1fn_x2 counts bytes)
  uint64_t begin = 0;  // bytes from the data section's start
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // by begin, end, header order
  std::vector<std::pair<std::string, std::string>> metadata;
  uint64_t data_offset = 0;  // where the data section begins in the file

  // XXH3-64 of each tensor's bytes, parallel to `tensors`. Our writer stores
  // them under kSafetensorsDigestsKey; empty when there are none, or when
  // another program has rewritten the header. `metadata` does not include them.
  std::vector<uint64_t> digests;

  // Why a header from our writer differs from the written one: names, shapes,
  // dtypes and metadata may be wrong then. Empty for a sound header, and for
  // another program's.
  std::string damage;

  // Saved shards' offsets by tensor name, from DCP_SHARDING_INFO; empty when
  // the file has none.
  SavedOffsets saved_offsets;
};

// The digests' key in __metadata__; no other program uses it.
inline constexpr absl::string_view kSafetensorsDigestsKey = "tessera_digests";

// `length` is the file's length, which the tensors must fill exactly.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(uint64_t length,
                                                        ReadAt read);

// A file's first bytes: length word and JSON, padded with spaces so that the
// data section starts at a multiple of 8. Uses the tensors' begin and end as
// given. Every dtype has a safetensors name. `room_for_digests` reserves room
// for one digest per tensor, which PutSafetensorsDigests fills.
std::string WriteSafetensorsHeader(
    absl::Span<const SafetensorsTensor> tensors,
    absl::Span<const std::pair<std::string, std::string>> metadata,
    bool room_for_digests = false);

// Writes `digests`, one per tensor in order, into the reserved room. The length
// of `header` does not change.
void PutSafetensorsDigests(absl::Span<const uint64_t> digests,
                           std::string& header);

}  // namespace dcp

#endif  // DCP_FORMAT_SAFETENSORS_SAFETENSORS_H_
