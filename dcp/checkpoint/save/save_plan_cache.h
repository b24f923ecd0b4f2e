// SPDX-License-Identifier: Apache-2.0
// SavePlanCache: the items that this rank writes, as the ranks agreed, for the
// next save of a similar state. If every save in a run gets the cache, a save
// can copy before the ranks have communicated. The save decides whether all
// ranks may do so (save_exchange.cc). One thread at a time.
#ifndef DCP_CHECKPOINT_SAVE_SAVE_PLAN_CACHE_H_
#define DCP_CHECKPOINT_SAVE_SAVE_PLAN_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dcp/checkpoint/save/save_state.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

class SavePlanCache {
 public:
  // Whether there is a plan for this rank and number of ranks and for the same
  // names, types, shapes and boxes in the same order. Object values and tensor
  // bytes may differ.
  bool Holds(const SaveState& state, int64_t rank, int64_t num_ranks) const;

  // `plan_id` is the same on all ranks. `items` are the numbers of the tensors
  // and objects that this rank writes; objects are counted after the tensors.
  void Store(const SaveState& state, int64_t rank, int64_t num_ranks,
             std::string plan_id, std::vector<size_t> items);

  // Empty when there is no plan.
  const std::string& plan_id() const { return plan_id_; }
  const std::vector<size_t>& items() const { return items_; }

 private:
  struct Tensor {
    std::string fqn;
    StatePath path;
    DType dtype;
    Dims shape;
    Box box;
  };
  struct Object {
    std::string fqn;
    StatePath path;
  };

  int64_t rank_ = 0;
  int64_t num_ranks_ = 0;
  std::vector<Tensor> tensors_;
  std::vector<Object> objects_;
  std::string plan_id_;
  std::vector<size_t> items_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SAVE_SAVE_PLAN_CACHE_H_
