#include "fsdp/engine/fsdp_param_group.h"

#include <algorithm>
#include <utility>

#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fsdp/engine/fsdp_state.h"
#include "fsdp/engine/state_context.h"
#include "fsdp/mesh/desync_check.h"
#include "fsdp/mesh/work.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace fsdp {
namespace {

int64_t NumBytes(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes());
}

// Makes `stream` the current stream while it lives; does nothing without
// streams.
class StreamScope {
 public:
  StreamScope(const CommContext& comm,
              c10::Stream (CommContext::*stream)() const) {
    if (comm.has_streams()) guard_.emplace((comm.*stream)());
  }

 private:
  std::optional<c10::StreamGuard> guard_;
};

}  // namespace

FsdpParamGroup::FsdpParamGroup(FsdpState* state, Config config)
    : state_(state), config_(std::move(config)) {}

FsdpParamGroup::~FsdpParamGroup() {
  CommContext& comm = context().comm();
  if (comm.pending_reduction == this) comm.pending_reduction = nullptr;
  // A gather in flight still writes; it keeps its buffers alive after this
  // group.
  if (sharding_ == Sharding::kUnsharded) FreeUnsharded();
  if (shard_storage_) shard_storage_->Orphan();
}

StateContext& FsdpParamGroup::context() const { return state_->context(); }

std::string FsdpParamGroup::Describe(const char* collective) const {
  const std::string& name = state_->name();
  return name.empty() ? absl::StrCat(collective, " of the root")
                      : absl::StrCat(collective, " of '", name, "'");
}

const ProcessGroup& FsdpParamGroup::gather_group() const {
  return sharding_ == Sharding::kShardedPostForward ? config_.post_forward_group
                                                    : config_.shard_group;
}

void FsdpParamGroup::CheckGatherInStep(const std::string& reason) const {
  CheckInStep(gather_group(), Describe("all-gather"), reason);
}

c10::Device FsdpParamGroup::shard_device() const {
  return config_.offload_policy.has_value() ? c10::Device(c10::kCPU)
                                            : config_.device;
}

void FsdpParamGroup::AllocateShards(
    c10::Device device, const std::vector<c10::ScalarType>& dtypes) {
  shard_offsets_.clear();
  int64_t num_bytes = 0;
  for (size_t i = 0; i < params_.size(); ++i) {
    shard_offsets_.push_back(num_bytes);
    num_bytes += AlignUp(params_[i]->geometry().padded_numel() *
                         static_cast<int64_t>(c10::elementSize(dtypes[i])));
  }
  const bool pinned = device.is_cpu() && config_.offload_policy.has_value() &&
                      config_.offload_policy->pin_memory;
  shards_ = at::zeros(
      {num_bytes},
      at::TensorOptions(at::kByte).device(device).pinned_memory(pinned));
  if (shard_storage_) shard_storage_->Orphan();
  const c10::Storage memory = shards_.storage();
  shard_storage_ = c10::make_intrusive<ShardStorage>(
      this, memory.set_data_ptr(at::DataPtr(nullptr, device)),
      static_cast<size_t>(num_bytes),
      std::any_of(params_.begin(), params_.end(),
                  [](const auto& param) { return param->in_container(); }));
  shards_.unsafeGetTensorImpl()->set_storage_keep_dtype(
      c10::Storage(c10::intrusive_ptr<c10::StorageImpl>(shard_storage_)));
}

void FsdpParamGroup::Shard(std::vector<std::unique_ptr<FsdpParam>> params,
                           const std::vector<at::Tensor>& buffers,
                           const std::shared_ptr<FsdpState>& owner) {
  const EngineScope scope;
  params_ = std::move(params);
  for (const at::Tensor& buffer : buffers) {
    buffers_.insert(buffer.unsafeGetTensorImpl());
  }
  std::vector<c10::ScalarType> dtypes;
  for (const auto& param : params_) dtypes.push_back(param->orig_dtype());
  const bool meta = params_.front()->leaf().is_meta();
  AllocateShards(meta ? c10::Device(c10::kMeta) : shard_device(), dtypes);
  for (size_t i = 0; i < params_.size(); ++i) {
    FsdpParam& param = *params_[i];
    const ShardGeometry& geometry = param.geometry();
    const at::Tensor padded =
        shards_
            .narrow(0, shard_offsets_[i],
                    geometry.padded_numel() *
                        static_cast<int64_t>(c10::elementSize(dtypes[i])))
            .view(dtypes[i]);
    param.BindShard(padded);
    at::Tensor shard = padded.view(geometry.padded_sizes())
                           .narrow(geometry.dim, 0, geometry.local_size());
    if (!meta) {
      shard.copy_(param.whole().narrow(geometry.dim, geometry.local_begin(),
                                       geometry.local_size()));
    }
    shard.set_requires_grad(param.leaf().requires_grad());
    param.Attach(std::move(shard), owner);
    param.ResetLeaf(meta ? c10::Device(c10::kMeta) : config_.device,
                    param.GatheredDtypeOf(dtypes[i]));
  }
}

void FsdpParamGroup::RefreshShards() {
  if (std::none_of(params_.begin(), params_.end(), [](const auto& param) {
        return param->ShardWasReplaced();
      })) {
    return;
  }
  std::vector<at::Tensor> held;
  std::vector<c10::ScalarType> dtypes;
  for (const auto& param : params_) {
    at::Tensor shard = param->shard();
    TORCH_CHECK(shard.sizes() == param->geometry().local_sizes(),
                "fsdp: the shard of '", param->name(),
                "' was replaced by a tensor of shape ", shard.sizes(),
                ", but this rank's part has the shape ",
                c10::IntArrayRef(param->geometry().local_sizes()),
                ". Of a whole tensor that is the to_local() of "
                "fsdp::distribute_tensor; whole state dicts are loaded by "
                "fsdp::set_model_state_dict with full_state_dict");
    TORCH_CHECK(
        !param->is_stored() || shard.scalar_type() == param->orig_dtype(),
        "fsdp: the shard of '", param->name(), "' became ", shard.scalar_type(),
        ", but it is kept in another form (AllGatherExtension::store), "
        "as ",
        param->orig_dtype(),
        "; to() may change its device, and the model's dtype is chosen "
        "before fully_shard");
    held.push_back(shard.detach());
    dtypes.push_back(shard.scalar_type());
  }
  const c10::Device device = held.front().device();
  if (!config_.offload_policy.has_value() && !device.is_meta()) {
    config_.device = device;
  }
  AllocateShards(device, dtypes);
  for (size_t i = 0; i < params_.size(); ++i) {
    FsdpParam& param = *params_[i];
    const ShardGeometry& geometry = param.geometry();
    const at::Tensor padded =
        shards_
            .narrow(0, shard_offsets_[i],
                    geometry.padded_numel() *
                        static_cast<int64_t>(c10::elementSize(dtypes[i])))
            .view(dtypes[i]);
    if (!device.is_meta()) {
      padded.view(geometry.padded_sizes())
          .narrow(geometry.dim, 0, geometry.local_size())
          .copy_(held[i]);
    }
    param.BindShard(padded);
    const c10::ScalarType gathered = param.GatheredDtypeOf(dtypes[i]);
    const c10::Device computes = device.is_meta() ? device : config_.device;
    if (param.leaf().device() != computes ||
        param.gathered_dtype() != gathered) {
      param.ResetLeaf(computes, gathered);
    }
  }
}

void FsdpParamGroup::ToEmpty(c10::Device device) {
  const EngineScope scope;
  DropGather();
  Reshard(/*after_forward=*/false);
  // With CPU offload, to_empty("cpu") says where shards lie, not where to
  // compute.
  if (!device.is_meta() && !config_.offload_policy.has_value()) {
    config_.device = device;
  }
  const c10::Device computes = device.is_meta() ? device : config_.device;
  const c10::Device holds = device.is_meta() ? device : shard_device();
  std::vector<c10::ScalarType> dtypes;
  for (const auto& param : params_) dtypes.push_back(param->orig_dtype());
  AllocateShards(holds, dtypes);
  for (size_t i = 0; i < params_.size(); ++i) {
    FsdpParam& param = *params_[i];
    param.BindShard(
        shards_
            .narrow(0, shard_offsets_[i],
                    param.geometry().padded_numel() *
                        static_cast<int64_t>(c10::elementSize(dtypes[i])))
            .view(dtypes[i]));
    param.ResetLeaf(computes, param.gathered_dtype());
  }
}

void FsdpParamGroup::CheckReady() const {
  std::vector<std::string> on_meta;
  const FsdpParam* first = nullptr;
  for (const auto& param : params_) {
    if (param->padded_shard().is_meta()) on_meta.push_back(param->name());
    TORCH_CHECK(!config_.offload_policy.has_value() ||
                    param->padded_shard().is_cpu() || !on_meta.empty(),
                "fsdp: with CPU offload the shard of '", param->name(),
                "' must be on the CPU, but is on ",
                param->padded_shard().device());
    if (!param->requires_grad()) continue;
    if (first == nullptr) first = param.get();
    TORCH_CHECK(first->orig_dtype() == param->orig_dtype(),
                "fsdp: trainable parameters of one group must have one dtype: "
                "'",
                first->name(), "' is ", first->orig_dtype(), ", '",
                param->name(), "' is ", param->orig_dtype(),
                ". Shard them in calls of their own");
  }
  TORCH_CHECK(on_meta.empty(), "fsdp: parameters are on the meta device: ",
              absl::StrJoin(on_meta, ", "),
              ". Call fsdp::to_empty(module, device) and initialise them "
              "(fsdp::init) or load a checkpoint");
}

at::Tensor FsdpParamGroup::EmptyBuffer(int64_t numel, c10::ScalarType dtype,
                                       c10d::ProcessGroup& group,
                                       bool is_custom) const {
  const auto options = at::TensorOptions(dtype).device(config_.device);
  if (settings_.allocate_from_process_group && !is_custom) {
    return group.getBackend(config_.device.type())
        ->allocateTensor(numel, options);
  }
  return at::empty({numel}, options);
}

void FsdpParamGroup::Unshard() {
  if (pending_gather_.has_value() || sharding_ == Sharding::kUnsharded) return;
  const EngineScope scope;
  PendingGather gather;
  gather.begin_us = StepRecorder::NowMicros();
  gather.from_post_forward = sharding_ == Sharding::kShardedPostForward;
  c10d::ProcessGroup& group = *gather_group();
  if (!gather.from_post_forward) {
    RefreshShards();
    AgreeOnRequiresGrad();
    CheckReady();
    for (const auto& param : params_) param->RememberShard();
    shards_written_ = false;
  }
  CommContext& comm = context().comm();
  if (comm.has_streams()) CommContext::Wait(comm.copy_in(), resharded_);
  resharded_ = nullptr;
  {
    const StreamScope stream(comm, &CommContext::copy_in);
    GatherInputs(gather);
  }
  if (group.getSize() > 1) StartGather(gather, group);
  pending_gather_ = std::move(gather);
}

void FsdpParamGroup::GatherInputs(PendingGather& gather) {
  std::vector<GatherInput> inputs;
  if (gather.from_post_forward) {
    for (const at::Tensor& shard : post_forward_shards_) {
      inputs.push_back({shard, shard.scalar_type()});
    }
    FillInput(gather, inputs);
    return;
  }
  const bool as_it_is =
      shards_.device() == config_.device &&
      std::all_of(params_.begin(), params_.end(), [](const auto& param) {
        return !param->extension().has_value() &&
               param->orig_dtype() == param->gathered_dtype();
      });
  if (as_it_is) {
    gather.offsets = shard_offsets_;
    gather.input = shards_;
    return;
  }
  for (const auto& param : params_) {
    if (!param->extension().has_value()) {
      inputs.push_back({param->padded_shard(), param->gathered_dtype()});
      continue;
    }
    gather.extension_inputs.push_back(PreAllGather(*param));
    for (const at::Tensor& tensor : gather.extension_inputs.back().tensors) {
      inputs.push_back({tensor, tensor.scalar_type()});
    }
  }
  FillInput(gather, inputs);
}

AllGatherExtension::Inputs FsdpParamGroup::PreAllGather(
    FsdpParam& param) const {
  const DeviceMesh& mesh = config_.mesh;
  AllGatherExtension::Inputs inputs = param.extension()->pre_all_gather(
      param.padded_shard()
          .view(param.geometry().padded_sizes())
          .to(config_.device),
      {.mesh = mesh.ndim() == 1 ? mesh : mesh[mesh.mesh_dim_names().back()],
       .size = param.geometry().sizes,
       .param_dtype = config_.mp_policy.param_dtype});
  for (const at::Tensor& tensor : inputs.tensors) {
    TORCH_CHECK(tensor.is_contiguous(), "fsdp: the all-gather extension of '",
                param.name(), "' gave a tensor that is not contiguous");
  }
  return inputs;
}

// Fills one buffer with every input, cast to the dtype of the transfer.
void FsdpParamGroup::FillInput(PendingGather& gather,
                               const std::vector<GatherInput>& inputs) {
  int64_t num_bytes = 0;
  for (const GatherInput& input : inputs) {
    gather.offsets.push_back(num_bytes);
    num_bytes += AlignUp(input.num_bytes());
  }
  gather.input =
      EmptyBuffer(num_bytes, at::kByte, *config_.shard_group,
                  /*is_custom=*/static_cast<bool>(settings_.custom_all_gather));
  for (size_t i = 0; i < inputs.size(); ++i) {
    gather.input.narrow(0, gather.offsets[i], inputs[i].num_bytes())
        .view(inputs[i].dtype)
        .copy_(inputs[i].tensor.reshape({-1}), /*non_blocking=*/true);
  }
}

void FsdpParamGroup::StartGather(PendingGather& gather,
                                 c10d::ProcessGroup& group) {
  CommContext& comm = context().comm();
  if (comm.has_streams()) {
    CommContext::Wait(comm.all_gather(), comm.Record(comm.copy_in()));
  }
  const StreamScope stream(comm, &CommContext::all_gather);
  const int64_t num_bytes = group.getSize() * gather.input.numel();
  // A single parameter whose rows are its storage needs no copy-out.
  FsdpParam& first = *params_.front();
  gather.in_place = params_.size() == 1 && !comm.has_streams() &&
                    !first.extension().has_value() &&
                    (gather.from_post_forward || first.geometry().dim == 0) &&
                    static_cast<int64_t>(first.unsharded_bytes()) == num_bytes;
  if (gather.in_place) {
    AllocateUnsharded();
    gather.output = first.FlatUnsharded().view(at::kByte);
  } else {
    gather.output = EmptyBuffer(
        num_bytes, at::kByte, group,
        /*is_custom=*/static_cast<bool>(settings_.custom_all_gather));
  }
  StepReport& report = comm.recorder().report();
  ++report.num_all_gathers;
  report.gathered_bytes += static_cast<uint64_t>(num_bytes);
  gather.work = IssueWork(
      group, [this] { return Describe("all-gather"); },
      [&]() -> Work {
        if (!settings_.custom_all_gather) {
          return AllGatherInto(gather.output, gather.input, group);
        }
        settings_.custom_all_gather(gather.output, gather.input, group);
        return Work();
      });
  if (comm.has_streams()) gather.done = comm.Record(comm.all_gather());
}

void FsdpParamGroup::WaitForUnshard(bool in_backward) {
  if (sharding_ == Sharding::kUnsharded) return;
  Unshard();
  const EngineScope scope;
  CommContext& comm = context().comm();
  PendingGather gather = std::move(*pending_gather_);
  pending_gather_.reset();
  c10d::ProcessGroup& group = gather.from_post_forward
                                  ? *config_.post_forward_group
                                  : *config_.shard_group;
  const int64_t begin_us = StepRecorder::NowMicros();
  WaitForWork(gather.work, group, [this] { return Describe("all-gather"); });
  comm.WaitOnCurrent(gather.done);
  StepRecorder& recorder = comm.recorder();
  recorder.report().gather_wait_seconds +=
      static_cast<double>(StepRecorder::NowMicros() - begin_us) * 1e-6;
  recorder.AddSpan("all-gather", state_->name(), gather.begin_us);
  recorder.AddSpan("wait", state_->name(), begin_us);
  if (!in_backward) comm.ReleaseGather();
  if (group.getSize() == 1) {
    gather.output = gather.input;
    if (gather.from_post_forward || config_.offload_policy.has_value() ||
        !gather.input.is_alias_of(shards_)) {
      AllocateUnsharded();
      CopyOutAll(gather);
    } else {
      UnshardAlone();
    }
  } else if (!gather.in_place) {
    AllocateUnsharded();
    CopyOutAll(gather);
  }
  post_forward_shards_.clear();
  AgreeOnRequiresGrad();
  for (const auto& param : params_) param->touched = false;
  comm.HoldGather(std::move(gather.output), comm.RecordCurrent());
  if (in_backward) comm.ReleaseGather();
  sharding_ = Sharding::kUnsharded;
  FsdpParam::BumpEpoch();
  CheckLoadedShardsDiffer();
}

void FsdpParamGroup::AgreeOnRequiresGrad() {
  for (const auto& param : params_) param->AgreeOnRequiresGrad();
}

bool FsdpParamGroup::AllTouched() const {
  return std::all_of(params_.begin(), params_.end(),
                     [](const auto& param) { return param->touched; });
}

void FsdpParamGroup::OnShardWritten() {
  const std::lock_guard<std::recursive_mutex> lock(context().mutex());
  if (sharding_ == Sharding::kSharded && !gather_pending()) return;
  shards_written_ = true;
  FsdpParam::BumpEpoch();
}

bool FsdpParamGroup::ShardsChanged() const {
  if (sharding_ == Sharding::kSharded && !gather_pending()) return false;
  return shards_written_ ||
         std::any_of(params_.begin(), params_.end(), [](const auto& param) {
           return !param->HasRememberedShard();
         });
}

// A file of torch::save holds the shards of the rank that wrote it. If every
// rank has loaded the same file, each parameter is the same part repeated;
// parameters with constant values, as in a norm, prove nothing.
void FsdpParamGroup::CheckLoadedShardsDiffer() {
  std::vector<std::string> same;
  bool differ = false;
  for (const auto& param : params_) {
    const ShardGeometry& geometry = param->geometry();
    if (!std::exchange(param->loaded, false) || geometry.dim != 0) continue;
    // A parameter in another form may end within a rank's part.
    if (param->unsharded_numel() % (geometry.world * geometry.chunk()) != 0) {
      continue;
    }
    // Leaves out padded parts.
    const int64_t num_parts =
        geometry.sizes[0] / std::max<int64_t>(1, geometry.chunk());
    const at::Tensor parts = param->FlatUnsharded()
                                 .view({geometry.world, -1})
                                 .narrow(0, 0, num_parts);
    if (num_parts < 2 || parts.numel() == 0) continue;
    if (parts.eq(parts[0][0]).all().item<bool>()) continue;
    differ |= !parts.eq(parts[0]).all().item<bool>();
    same.push_back(absl::StrCat("'", param->name(), "'"));
  }
  if (same.empty() || differ) return;
  for (const auto& param : params_) param->loaded = true;  // until corrected
  Reshard(/*after_forward=*/false);
  TORCH_CHECK(
      false, "fsdp: every rank has loaded the same shard of ",
      absl::StrJoin(same, ", "),
      ". A file that torch::save wrote on one rank holds that rank's "
      "shards. Save and load with fsdp::save and fsdp::load, or have each "
      "rank write a file of its own and load that one");
}

void FsdpParamGroup::CopyOutAll(PendingGather& gather) {
  const int64_t world =
      gather.output.numel() / std::max<int64_t>(1, gather.input.numel());
  const at::Tensor rows = gather.output.view({std::max<int64_t>(1, world), -1});
  size_t next_input = 0;
  size_t next_extension = 0;
  for (const auto& param : params_) {
    if (param->extension().has_value() && !gather.from_post_forward) {
      CopyOutExtension(*param, gather, next_input,
                       gather.extension_inputs[next_extension++]);
      continue;
    }
    const at::Tensor flat = param->FlatUnsharded();
    const at::Tensor mine = rows.narrow(1, gather.offsets[next_input++],
                                        NumBytes(flat) / rows.size(0));
    if (gather.from_post_forward) {
      flat.view(at::kByte).view({rows.size(0), -1}).copy_(mine);
    } else {
      CopyOut(mine, param->geometry(), flat);
    }
  }
}

void FsdpParamGroup::CopyOutExtension(
    FsdpParam& param, PendingGather& gather, size_t& next_input,
    const AllGatherExtension::Inputs& inputs) {
  const ShardGeometry& geometry = param.geometry();
  const at::Tensor rows = gather.output.view({geometry.world, -1});
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& input : inputs.tensors) {
    std::vector<int64_t> sizes = input.sizes().vec();
    if (sizes.empty()) sizes.push_back(1);
    sizes[0] *= geometry.world;
    outputs.push_back(
        rows.narrow(1, gather.offsets[next_input++], NumBytes(input))
            .contiguous()
            .view({-1})
            .view(input.scalar_type())
            .view(sizes));
  }
  param.extension()->post_all_gather(
      outputs, inputs.metadata,
      param.FlatUnsharded().view(param.unsharded_sizes()));
}

// If the group has one rank, it computes with the shards where they are.
void FsdpParamGroup::UnshardAlone() {
  for (const auto& param : params_) {
    param->storage().Borrow(param->padded_shard());
  }
}

void FsdpParamGroup::AllocateUnsharded() {
  if (owns_unsharded_) FreeUnsharded();  // of a gather that failed
  StepRecorder& recorder = context().comm().recorder();
  for (const auto& param : params_) {
    param->storage().Allocate();
    recorder.AddUnsharded(param->unsharded_bytes());
  }
  owns_unsharded_ = true;
}

void FsdpParamGroup::FreeUnsharded() {
  StepRecorder& recorder = context().comm().recorder();
  for (const auto& param : params_) {
    if (owns_unsharded_) recorder.RemoveUnsharded(param->unsharded_bytes());
    param->storage().Free();
  }
  owns_unsharded_ = false;
}

void FsdpParamGroup::Reshard(bool after_forward) {
  if (sharding_ == Sharding::kShardedPostForward && !after_forward) {
    post_forward_shards_.clear();
    resharded_ = nullptr;
    sharding_ = Sharding::kSharded;
  }
  if (sharding_ != Sharding::kUnsharded) return;
  const EngineScope scope;
  sharding_ = Sharding::kSharded;
  if (after_forward && config_.post_forward_group) {
    const int64_t world = config_.post_forward_group->getSize();
    const int64_t rank = config_.post_forward_group->getRank();
    for (const auto& param : params_) {
      post_forward_shards_.push_back(
          param->FlatUnsharded().view({world, -1}).select(0, rank).clone());
    }
    sharding_ = Sharding::kShardedPostForward;
    resharded_ = context().comm().RecordCurrent();
  }
  FreeUnsharded();
  kept_by_user_ = false;
  FsdpParam::BumpEpoch();
}

void FsdpParamGroup::DropGather() {
  if (!pending_gather_.has_value()) return;
  PendingGather gather = std::move(*pending_gather_);
  pending_gather_.reset();
  if (gather.work) {
    WaitForWork(gather.work,
                gather.from_post_forward ? *config_.post_forward_group
                                         : *config_.shard_group,
                [this] { return Describe("all-gather"); });
  }
  context().comm().WaitOnCurrent(gather.done);
  if (gather.in_place) FreeUnsharded();
}

}  // namespace fsdp
