// SPDX-License-Identifier: Apache-2.0
// SaveState: the tensors and objects that one rank holds in memory and saves.
// Plain data; sources belong to the caller.
#ifndef DCP_CHECKPOINT_SAVE_SAVE_STATE_H_
#define DCP_CHECKPOINT_SAVE_SAVE_STATE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "dcp/checkpoint/output/tensor_source.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// The part `box` of a tensor with the global shape `shape`. If a rank holds
// several parts, it lists the tensor several times.
struct SaveTensor {
  std::string fqn;
  StatePath path = {};
  DType dtype = DType::kFloat32;
  Dims shape;
  Box box;
  TensorSource* source = nullptr;  // for the box, row-major; outlives the save
};

struct SaveObject {
  std::string fqn;
  StatePath path = {};
  Value value;  // without tensors
};

struct SaveState {
  std::vector<SaveTensor> tensors;
  std::vector<SaveObject> objects;
  // If not OK, this rank has no state; every rank fails with this error.
  absl::Status status;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SAVE_SAVE_STATE_H_
