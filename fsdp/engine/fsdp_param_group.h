// FsdpParamGroup: the parameters of one fully_shard call; they are gathered
// together and their gradients are reduced together. It knows how to do so, and
// its own state; StateContext decides when, and holds its lock during every
// call here. See [Note: a step] in state_context.h and [Note: streams] in
// comm_context.h.
#ifndef FSDP_ENGINE_FSDP_PARAM_GROUP_H_
#define FSDP_ENGINE_FSDP_PARAM_GROUP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "fsdp/engine/collectives.h"
#include "fsdp/engine/comm_context.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/fully_shard.h"

namespace fsdp {

class FsdpParamGroup {
 public:
  enum class Sharding { kSharded, kShardedPostForward, kUnsharded };

  struct Config {
    DeviceMesh mesh;
    c10::Device device;  // where it computes
    MixedPrecisionPolicy mp_policy;
    std::optional<CPUOffloadPolicy> offload_policy;
    ProcessGroup shard_group;
    ProcessGroup replicate_group;     // null without HSDP
    ProcessGroup post_forward_group;  // null unless resharded to fewer ranks
  };
  // The settings that FSDPModule's setters change.
  struct Settings {
    bool requires_gradient_sync = true;
    bool requires_all_reduce = true;
    bool reshard_after_backward = true;
    bool unshard_in_backward = true;
    bool force_sum_reduction = false;
    bool zero_missing_gradients = false;
    bool allocate_from_process_group = false;
    std::optional<double> divide_factor;
    CustomAllGather custom_all_gather;
    CustomReduceScatter custom_reduce_scatter;
    std::function<void(at::Tensor)> all_reduce_hook;
    std::optional<c10::Stream> all_reduce_hook_stream;
  };

  FsdpParamGroup(FsdpState* state, Config config);
  ~FsdpParamGroup();
  FsdpParamGroup(const FsdpParamGroup&) = delete;
  FsdpParamGroup& operator=(const FsdpParamGroup&) = delete;

  // Cuts every parameter and takes it over: the point of no return of a
  // fully_shard call. `buffers` are not cast as activations are.
  void Shard(std::vector<std::unique_ptr<FsdpParam>> params,
             const std::vector<at::Tensor>& buffers,
             const std::shared_ptr<FsdpState>& owner);

  const Config& config() const { return config_; }
  Settings& settings() { return settings_; }
  FsdpState& state() const { return *state_; }
  StateContext& context() const;
  const std::vector<std::unique_ptr<FsdpParam>>& params() const {
    return params_;
  }
  bool IsBuffer(const at::Tensor& tensor) const {
    return buffers_.count(tensor.unsafeGetTensorImpl()) != 0;
  }

  Sharding sharding() const { return sharding_; }
  bool gather_pending() const { return pending_gather_.has_value(); }
  // Whether the user gathered it and it was not used yet; it is kept until
  // then.
  bool kept_by_user() const { return kept_by_user_; }
  void set_kept_by_user(bool kept) { kept_by_user_ = kept; }

  // Compares the next gather with that of other ranks; `reason` is for errors.
  // See desync_check.h.
  void CheckGatherInStep(const std::string& reason) const;
  // Starts the gather; does nothing when it is in flight or done.
  void Unshard();
  // Makes the parameters usable; starts the gather if needed.
  void WaitForUnshard(bool in_backward);
  // Drops the smaller group: from now on Reshard frees to the shards of the
  // whole mesh.
  void ForgetPostForwardGroup() { config_.post_forward_group.reset(); }
  // Frees the gathered parameters. With `after_forward`, keeps the shards of
  // the smaller group if there is one.
  void Reshard(bool after_forward);
  // Waits for a gather that will not be used, and drops it.
  void DropGather();

  // Called when the gradients of this pass have arrived. Frees the parameters,
  // and reduces the gradients or keeps them. If missing gradients count as
  // zero, it reduces only `at_end` of backward, because only then every rank
  // knows which are missing.
  void PostBackward(bool at_end);
  // Waits for the reduction in flight, if any, and hands out the gradients.
  void FinishReduction();
  // Called at the end of a backward: waits for the last reduction, with CPU
  // offload on the CPU too.
  void FinishBackward();
  // Forgets gradients and marks of a backward that threw.
  void ResetAfterError();
  // At the end of backward: whether gradients, those of earlier microbatches
  // among them, are still to be reduced.
  bool OwesReduction() const;
  // These read the marks of the parameters: see FsdpParam.
  bool AwaitsGradients() const;
  bool AllGradientsArrived() const;
  void ClearMarks(bool used_too);
  // Whether each parameter was taken by an operator since they were gathered.
  bool AllTouched() const;

  // Called when an operator writes into a shard: the gathered parameters are
  // then out of date.
  void OnShardWritten();
  // Whether the shards have changed since the gather that is done or in flight.
  bool ShardsChanged() const;

  // Where the current backward stands with this group; see StateContext.
  struct Turn {
    int64_t num_to_come = 0;  // uses in forward that backward has not passed
    bool in_forward = false;
    bool passed = false;
    // Whether a checkpoint recomputed it: its backward follows at once, and
    // other checkpoints may add to the gradients until none is to come.
    bool recomputed = false;
    bool GradientsMayGrow() const { return recomputed && num_to_come > 0; }
  };
  Turn turn;

  // Gives shards and leaves memory on `device`, uninitialised.
  void ToEmpty(c10::Device device);
  // Takes over the tensors that to(), load or set_data put in the place of
  // shards.
  void RefreshShards();

 private:
  struct GatherInput {
    at::Tensor tensor;
    c10::ScalarType dtype;  // of the transfer
    int64_t num_bytes() const {
      return tensor.numel() * static_cast<int64_t>(c10::elementSize(dtype));
    }
  };
  struct PendingGather {
    at::Tensor input, output;
    Work work;
    EventPtr done;
    std::vector<AllGatherExtension::Inputs> extension_inputs;
    std::vector<int64_t> offsets;  // of each input in a row, in bytes
    bool from_post_forward = false;
    bool in_place = false;  // the output is the only parameter's storage
    int64_t begin_us = 0;
  };
  struct PendingReduction {
    std::vector<FsdpParam*> params;  // in the order of params_
    at::Tensor input, output;        // of `params`, one after the other
    Work work;
    EventPtr done;
    ReductionPlan plan;
    int64_t begin_us = 0;
  };

  void AllocateShards(c10::Device device,
                      const std::vector<c10::ScalarType>& dtypes);
  // The process group of the next gather.
  const ProcessGroup& gather_group() const;
  // "all-gather of 'layers.3'", for errors.
  std::string Describe(const char* collective) const;
  // The same for a reduction of the gradients of `params`.
  std::string DescribeReduction(const char* collective,
                                const std::vector<FsdpParam*>& params) const;
  c10::Device shard_device() const;
  void CheckReady() const;
  void GatherInputs(PendingGather& gather);
  AllGatherExtension::Inputs PreAllGather(FsdpParam& param) const;
  void FillInput(PendingGather& gather, const std::vector<GatherInput>& inputs);
  void StartGather(PendingGather& gather, c10d::ProcessGroup& group);
  void CopyOutAll(PendingGather& gather);
  void CopyOutExtension(FsdpParam& param, PendingGather& gather,
                        size_t& next_input,
                        const AllGatherExtension::Inputs& inputs);
  void UnshardAlone();
  void AllocateUnsharded();
  void FreeUnsharded();
  // A custom collective gets ordinary memory.
  at::Tensor EmptyBuffer(int64_t numel, c10::ScalarType dtype,
                         c10d::ProcessGroup& group, bool is_custom) const;
  void AgreeOnRequiresGrad();
  void CheckLoadedShardsDiffer();
  ReductionPlan PlanFor(c10::ScalarType dtype) const;
  void FillReduction(PendingReduction& reduction,
                     const std::vector<at::Tensor>& gradients) const;
  void StartReduction(std::vector<FsdpParam*> params,
                      std::vector<at::Tensor> gradients);
  void HandOutAlone(const std::vector<FsdpParam*>& params,
                    const std::vector<at::Tensor>& gradients);
  void CompleteReduction(PendingReduction& reduction);
  void AddPartialReduction(PendingReduction& reduction);
  void FinishPartialReduction();
  bool AllReduceAcrossReplicas(PendingReduction& reduction);
  void HandOut(const std::vector<FsdpParam*>& params,
               const std::vector<at::Tensor>& gradients);

  FsdpState* const state_;
  Config config_;
  Settings settings_;
  std::vector<std::unique_ptr<FsdpParam>> params_;
  std::unordered_set<const c10::TensorImpl*> buffers_;

  // All shards of the group, one after the other, in the layout of a gather.
  at::Tensor shards_;
  c10::intrusive_ptr<ShardStorage> shard_storage_;  // of shards_
  bool shards_written_ = false;                     // since they were gathered
  std::vector<int64_t> shard_offsets_;
  std::vector<at::Tensor> post_forward_shards_;
  Sharding sharding_ = Sharding::kSharded;
  bool kept_by_user_ = false;
  bool owns_unsharded_ = false;  // else it borrows the shards' memory

  std::optional<PendingGather> pending_gather_;
  std::optional<PendingReduction> pending_reduction_;
  EventPtr resharded_;  // to the smaller group: the next gather waits for it
  // HSDP with a postponed all-reduce: the sum so far.
  std::optional<PendingReduction> partial_reduction_;
  at::Tensor held_all_reduce_;  // read on its stream until the end
  EventPtr reduced_;            // on the stream of reduction
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_FSDP_PARAM_GROUP_H_
