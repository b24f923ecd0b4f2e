// SavePlanCache: what this rank writes of a state, as the ranks found it
// together, for the next save of a state that looks the same. Given to every
// save of a run, it lets a save copy before the ranks have spoken; whether all
// of them may is decided by the save (save_exchange.cc). One thread at a time.
#ifndef DCP_CHECKPOINT_SAVE_PLAN_CACHE_H_
#define DCP_CHECKPOINT_SAVE_PLAN_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dcp/checkpoint/save.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

class SavePlanCache {
 public:
  // Whether there is a plan, and it was found for this rank of so many and
  // for the same names, types, shapes and boxes in the same order. Values of
  // objects and bytes of tensors may be others.
  bool Holds(const SaveState& state, int64_t rank, int64_t num_ranks) const;

  // `plan_id` is the same on all ranks; `items` are this rank's: the numbers
  // of tensors, and behind them of objects, that it writes.
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

#endif  // DCP_CHECKPOINT_SAVE_PLAN_CACHE_H_
