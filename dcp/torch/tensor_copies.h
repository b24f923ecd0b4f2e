// TensorCopy: one tensor of a module or optimizer that is to be given the
// value of one in a state dict, and the list of what is wrong before any
// changes. For the thread that trains.
#ifndef DCP_TORCH_TENSOR_COPIES_H_
#define DCP_TORCH_TENSOR_COPIES_H_

#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/tensor/box.h"
#include "dcp/torch/state_value.h"
#include "fsdp/dtensor.h"

namespace dcp {

struct TensorCopy {
  std::string name;                       // for errors
  at::Tensor dst;                         // of a sharded one: this rank's part
  std::optional<fsdp::DTensorSpec> spec;  // of the whole that `dst` is part of
  StateValue src;
};

// What a state dict and what it is for do not agree on.
struct Mismatches {
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<std::string> wrong;  // "name: what is wrong"

  // OK, NotFound when names are missing and nothing else is wrong, else
  // InvalidArgument; all are listed.
  absl::Status ToStatus(absl::string_view what) const;
};

struct CopyRules {
  // Whole tensors are cut where the destination is sharded.
  bool full = false;
  // Sources may be on the meta device: their values are elsewhere.
  bool values_elsewhere = false;
};

// Adds to `mismatches.wrong` why `copy` cannot be made.
void CheckCopy(const TensorCopy& copy, const CopyRules& rules,
               Mismatches& mismatches);

// Copies, with a cast; collective when a DTensor is placed otherwise than the
// destination. `copy` has been checked.
absl::Status RunCopy(const TensorCopy& copy);

// The part of `whole` that lies in `box`: a view.
at::Tensor ViewOfBox(const at::Tensor& whole, const Box& box);

// Of the destination: views of `dst` and the boxes that they are of the whole.
struct CopyPart {
  Box box;
  at::Tensor view;
};
absl::StatusOr<std::vector<CopyPart>> PartsOfCopy(const TensorCopy& copy);

// "an int", "a tensor": for errors.
absl::string_view KindName(const StateValue& value);

}  // namespace dcp

#endif  // DCP_TORCH_TENSOR_COPIES_H_
