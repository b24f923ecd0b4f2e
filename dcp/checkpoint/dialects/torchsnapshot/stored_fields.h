// SPDX-License-Identifier: Apache-2.0
// StoredFields: a TorchSnapshot manifest's facts about one stored tensor or
// object: the file, the bytes in it, and their form. Collected field by field
// from JSON, then checked. Used by one thread.
#ifndef DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_STORED_FIELDS_H_
#define DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_STORED_FIELDS_H_

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/dialects/torchsnapshot/snapshot_tensor.h"
#include "dcp/format/json/json.h"
#include "dcp/format/json/json_fields.h"
#include "dcp/tensor/box.h"

namespace dcp {

class StoredFields {
 public:
  // Whether `field` is one of them: location, serializer, dtype, shape or
  // byte_range.
  static bool Has(absl::string_view field);

  // Takes an event that belongs to the value for `field`.
  absl::Status Take(absl::string_view field, const JsonEvent& event);

  const std::string& location() const { return location_; }

  // The tensor that the fields describe; `file` is their location's number.
  // Errors are those from ParseSnapshotManifest.
  absl::StatusOr<SnapshotTensor> Tensor(uint32_t file) const;
  absl::StatusOr<SnapshotRange> Object(uint32_t file) const;
  // Only the dtype and the shape for a tensor that is stored elsewhere.
  absl::StatusOr<SnapshotTensor> TensorType() const;

 private:
  using ByteRange = absl::InlinedVector<int64_t, 2>;

  absl::StatusOr<SnapshotRange> Range(uint32_t file) const;
  absl::Status CheckTorchSave() const;

  std::string location_;
  std::string serializer_;
  std::string dtype_;
  JsonNumbers<Dims, kMaxDims> shape_;
  JsonNumbers<ByteRange, 2> range_;
};

// The text in a field that must have one.
absl::Status TakeJsonText(const JsonEvent& event, absl::string_view field,
                          std::string& text);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_STORED_FIELDS_H_
