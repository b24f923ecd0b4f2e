// SPDX-License-Identifier: Apache-2.0
// GroupReduction: turns the gradients of a group's whole parameters into this
// rank's shard gradients: reduce-scatter, with HSDP also all-reduce, division,
// and handing out. It holds its reductions in flight and sums that wait for a
// later backward. FsdpParamGroup owns and calls it; see there for threads, and
// [Note: streams] in comm_context.h.
#ifndef FSDP_ENGINE_GROUP_REDUCTION_H_
#define FSDP_ENGINE_GROUP_REDUCTION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Stream.h"
#include "fsdp/engine/comm/collectives.h"
#include "fsdp/engine/group_data.h"

namespace fsdp {

class GroupReduction {
 public:
  // Whole parameters' gradients; an undefined one counts as zero.
  struct Gradients {
    std::vector<FsdpParam*> params;  // in the order of the group
    std::vector<at::Tensor> tensors;
  };

  // `data` outlives it.
  explicit GroupReduction(GroupData& data) : data_(data) {}
  ~GroupReduction();
  GroupReduction(const GroupReduction&) = delete;
  GroupReduction& operator=(const GroupReduction&) = delete;

  // Takes the gradients from the parameters. Absent when they are not reduced
  // now; they are then kept with those from earlier microbatches. If missing
  // gradients count as zero, only the end of backward reduces (`at_end`),
  // because only then every rank knows which are missing.
  std::optional<Gradients> Take(bool at_end);
  // Starts reducing `gradients`; finishes older reductions first, of any group,
  // so that no more are in flight than the context allows.
  void Reduce(Gradients gradients);
  // Finishes the oldest reductions in `comm`, of any group, until `num_kept`
  // are left: waits for each and hands out the gradients.
  static void FinishAllBut(size_t num_kept, CommContext& comm);
  // Waits for a backward's last reduction; with CPU offload, the CPU waits too.
  void FinishBackward();
  // Waits for the group's reductions in flight and drops the gradients.
  void Abandon();
  // The same, and drops the sums that wait for a later backward.
  void AbandonAll();

  // At the end of backward: whether gradients, those of earlier microbatches
  // among them, are still to be reduced. With `unused_too` zeros in place of
  // missing gradients count, if the group reduces them.
  bool IsOwed(bool unused_too) const;
  // Whether a sum waits for a postponed all-reduce.
  bool IsPostponed() const;

 private:
  struct Pending {
    std::vector<FsdpParam*> params;  // in the order of the group
    at::Tensor input, output;        // for `params`, one after the other
    Work work;
    EventPtr done;  // work that reads `input` and sums into `output`
    ReductionPlan plan;
    bool is_postponed = false;  // a later backward all-reduces it
    int64_t begin_us = 0;
  };

  // "reduce-scatter of 'layers.3'", with the group's parameters that are not in
  // `params`, for errors.
  std::string DescribeWith(const char* collective,
                           const std::vector<FsdpParam*>& params) const;
  ReductionPlan PlanFor(c10::ScalarType dtype) const;
  void FinishOldest();
  void Start(Gradients gradients);
  void ReduceOnOneRank(Gradients gradients, c10::ScalarType dtype);
  void Fill(Pending& reduction, const std::vector<at::Tensor>& gradients) const;
  void Issue(Pending& reduction);
  void Complete(Pending& reduction);
  void AddPartial(Pending& reduction);
  void FinishPartial();
  void AllReduceAcrossReplicas(Pending& reduction);
  static std::vector<at::Tensor> CutOutput(const Pending& reduction);
  void FollowCurrent(c10::Stream stream, const Pending& reduction);
  void SumShares(const std::vector<FsdpParam*>& params,
                 std::vector<at::Tensor>& gradients) const;
  void HandOut(const std::vector<FsdpParam*>& params,
               std::vector<at::Tensor> gradients);

  GroupData& data_;
  std::deque<Pending> pending_;  // oldest first
  // HSDP with a postponed all-reduce: the sum so far.
  std::optional<Pending> partial_;
  // Other streams may read these until the backward ends.
  std::vector<at::Tensor> held_;
  EventPtr reduced_;  // the gradients are complete
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_GROUP_REDUCTION_H_
