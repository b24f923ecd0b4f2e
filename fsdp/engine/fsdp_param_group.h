// SPDX-License-Identifier: Apache-2.0
// FsdpParamGroup: the parameters of one fully_shard call on one mesh. They are
// gathered together, and their gradients are reduced together. This class knows
// how; StepScheduler decides when, and holds a lock during every call here. See
// [Note: a step] in step_scheduler.h and [Note: streams] in comm_context.h.
#ifndef FSDP_ENGINE_FSDP_PARAM_GROUP_H_
#define FSDP_ENGINE_FSDP_PARAM_GROUP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/group_data.h"
#include "fsdp/engine/group_gather.h"
#include "fsdp/engine/group_reduction.h"
#include "fsdp/engine/policies.h"

namespace fsdp {

class StepScheduler;

class FsdpParamGroup : public std::enable_shared_from_this<FsdpParamGroup> {
 public:
  using Sharding = GroupGather::Sharding;

  // The group's place in the tree of fully_shard calls.
  struct Place {
    bool is_root = true;
    std::vector<const FsdpParamGroup*> above;  // the groups of outer calls
    std::vector<FsdpParamGroup*> together;     // those of this call
  };
  // The groups that this one gathers ahead, one for each module. Empty:
  // implicit prefetching. An element without a group is skipped.
  using PrefetchList = std::vector<std::weak_ptr<FsdpParamGroup>>;

  FsdpParamGroup(GroupConfig config, ReshardAfterForward reshard_after_forward,
                 std::shared_ptr<CommContext> comm);
  FsdpParamGroup(const FsdpParamGroup&) = delete;
  FsdpParamGroup& operator=(const FsdpParamGroup&) = delete;

  // Cuts every parameter and takes it over: a fully_shard call's point of no
  // return. `buffers` are not cast as activations are.
  void Shard(std::vector<std::unique_ptr<FsdpParam>> params,
             const std::vector<at::Tensor>& buffers,
             const FsdpParam::Ties& ties);

  const GroupConfig& config() const { return data_.config; }
  GroupSettings& settings() { return data_.settings; }
  const std::vector<std::unique_ptr<FsdpParam>>& params() const {
    return data_.params;
  }
  bool IsBuffer(const at::Tensor& tensor) const {
    return buffers_.count(tensor.unsafeGetTensorImpl()) != 0;
  }

  // From now on `scheduler`, which outlives this membership, decides when this
  // group works, and it communicates in `comm`. The group only passes the
  // scheduler to the code that handles an operator.
  void JoinScheduler(StepScheduler* scheduler,
                     std::shared_ptr<CommContext> comm);
  StepScheduler& scheduler() const { return *scheduler_; }

  // The module's name below the root; empty for the root itself.
  const std::string& name() const { return data_.name; }
  void set_name(std::string name) { data_.name = std::move(name); }
  // "use of 'layers.3'", for errors.
  std::string Describe(const char* what) const { return data_.Describe(what); }
  void set_place(Place place) { place_ = std::move(place); }
  bool IsAbove(const FsdpParamGroup& other) const;
  // All groups of this call, which are gathered together.
  const std::vector<FsdpParamGroup*>& together() const {
    return place_.together;
  }
  bool IsTogetherWith(const FsdpParamGroup& other) const;
  // Whether it is freed after forward: as requested, or, if unset, unless it is
  // the root.
  bool ReshardsAfterForward() const;
  PrefetchList& forward_prefetch() { return forward_prefetch_; }
  PrefetchList& backward_prefetch() { return backward_prefetch_; }
  // Whether a call of the module went through fsdp::forward or fsdp::Wrapped.
  bool seen_at_boundary() const { return seen_at_boundary_; }
  void set_seen_at_boundary() { seen_at_boundary_ = true; }

  Sharding sharding() const { return gather_.sharding(); }
  bool gather_pending() const { return gather_.pending(); }
  // Whether the user gathered it and it was not used yet; it is kept until
  // then.
  bool kept_by_user() const { return kept_by_user_; }
  void set_kept_by_user(bool kept) { kept_by_user_ = kept; }

  // Compares the next gather with the other ranks' next one; `reason` is for
  // errors. See collective_order.h.
  void CheckGatherInStep(const std::string& reason) const;
  // Starts the gather; does nothing when it is in flight or done.
  void Unshard();
  // Makes the parameters usable; starts the gather if needed.
  void WaitForUnshard(bool in_backward);
  // Drops the smaller group: from now on Reshard frees to the whole mesh's
  // shards.
  void ForgetPostForwardGroup() { data_.config.post_forward_group.reset(); }
  // From now on gradients are reduce-scattered in `group`, which has the ranks
  // of the shard group; null: in that.
  void set_reduce_scatter_group(ProcessGroup group) {
    data_.config.reduce_scatter_group = std::move(group);
  }
  // Frees the gathered parameters. With `after_forward`, keeps the smaller
  // group's shards if there is one.
  void Reshard(bool after_forward);
  // See FSDPModule::set_keep_unsharded_storage.
  void set_keep_unsharded_storage(bool keep);
  // Waits for a gather that will not be used, and drops it.
  void DropGather() { gather_.Drop(); }

  // Called when this pass's gradients have arrived. Frees the parameters, and
  // reduces the gradients or keeps them: see GroupReduction::Take.
  void PostBackward(bool at_end);
  // Called when a backward ends: waits for the last reduction.
  void FinishBackward() { reduction_.FinishBackward(); }
  // Forgets the gradients and marks from a backward that threw.
  void ResetAfterError();
  // Drops the shards' gradients and the sums that wait for a later backward,
  // after ResetAfterError.
  void DropGradients();
  // At the end of backward: whether gradients, those of earlier microbatches
  // among them, are still to be reduced. See GroupReduction::IsOwed.
  bool OwesReduction(bool unused_too = true) const {
    return reduction_.IsOwed(unused_too);
  }
  // Whether a sum waits for a postponed all-reduce.
  bool PostponesAllReduce() const { return reduction_.IsPostponed(); }
  bool Has(const GroupReduction* reduction) const {
    return reduction == &reduction_;
  }
  // Whether a backward has left the end to finalize_backward.
  bool awaits_finalization() const { return awaits_finalization_; }
  void set_awaits_finalization(bool awaits) { awaits_finalization_ = awaits; }
  // A parameter that a forward used, if the graph of that forward still exists.
  // Null without one.
  const FsdpParam* ParamInGraph() const;
  // These read the parameters' marks: see FsdpParam.
  bool AwaitsGradients() const;
  bool AllGradientsArrived() const;
  void ClearMarks(bool used_too);
  // Whether operators have taken each parameter since the gather.
  bool AllTouched() const;

  // Called before an operator writes into a shard: the gathered parameters are
  // then out of date, and the gather streams have not waited for the write.
  void OnShardWritten();
  // The gather streams now run after all writes into the shards.
  void NoteGathersBegan();
  // Whether the shards have changed since the gather that is done or in flight.
  bool ShardsChanged() const;

  // This group's progress in the current backward; StepScheduler keeps it.
  struct Turn {
    int64_t num_to_come = 0;  // uses in forward that backward has not passed
    bool in_forward = false;
    bool passed = false;
    // Whether a checkpoint recomputed it: the group's backward follows at once,
    // and other checkpoints may add to the gradients until no use is left.
    bool recomputed = false;
    bool GradientsMayGrow() const { return recomputed && num_to_come > 0; }
  };
  Turn& turn() { return turn_; }
  const Turn& turn() const { return turn_; }

  // Gives shards and leaves memory on `device`, uninitialised.
  void ToEmpty(c10::Device device);
  // Takes over tensors with which to(), load or set_data replaced shards.
  void RefreshShards();

 private:
  void AllocateShards(c10::Device device, std::vector<c10::ScalarType> dtypes);
  std::vector<c10::ScalarType> OrigDtypes() const;
  void CheckReady() const;
  void CheckReplicasAgree();
  void CheckLoadedShardsDiffer();
  bool WasWrittenSinceGathersBegan() const;

  GroupData data_;
  GroupGather gather_{data_};
  GroupReduction reduction_{data_};
  std::unordered_set<const c10::TensorImpl*> buffers_;
  StepScheduler* scheduler_ = nullptr;
  Place place_;
  PrefetchList forward_prefetch_, backward_prefetch_;
  Turn turn_;
  bool seen_at_boundary_ = false;
  bool shards_written_ = false;    // since they were gathered
  bool replicas_checked_ = false;  // in debug mode, before the first gather
  bool gathers_must_wait_ = true;  // for a write into the shards
  bool kept_by_user_ = false;
  bool awaits_finalization_ = false;
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_FSDP_PARAM_GROUP_H_
