// SPDX-License-Identifier: Apache-2.0
// EncodedNames: the tensors made by a mapping that are stored as float8 codes
// with scales, and the names of both. Immutable; any thread.
#ifndef DCP_CHECKPOINT_MAPPED_ENCODED_NAMES_H_
#define DCP_CHECKPOINT_MAPPED_ENCODED_NAMES_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/glob_set.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/mapping/language/mapping_file.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

class EncodedNames {
 public:
  struct Names {
    std::string codes;
    std::string scales;
  };

  // InvalidArgument if the destination side in `spec`, which must outlive this,
  // has no float8 blocks.
  static absl::StatusOr<EncodedNames> Make(const MapSpec& spec);

  // Whether there is anything to encode in a tensor: a floating-point type with
  // more than one byte, with rows and columns.
  static bool CanEncode(DType dtype, const Dims& shape);

  // The names for a tensor's codes and scales, in the rules' spelling; nullopt
  // if the tensor's name says that it stays unchanged.
  std::optional<Names> Find(absl::string_view name) const;

 private:
  EncodedNames(const MapSpec& spec, const MappingSide& side);

  const MappingSide& side_;
  const GlobSet exclude_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_MAPPED_ENCODED_NAMES_H_
