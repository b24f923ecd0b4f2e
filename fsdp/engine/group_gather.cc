// SPDX-License-Identifier: Apache-2.0
// Issues, awaits and frees a group's gathers.
// Tested by tests/fsdp/fsdp_module_test.cc.
#include "fsdp/engine/group_gather.h"

#include <algorithm>
#include <utility>

#include "c10/core/StreamGuard.h"
#include "fsdp/engine/extension_inputs.h"
#include "fsdp/mesh/collective_errors.h"

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

std::vector<at::Tensor> GroupGather::Pending::Buffers() const {
  std::vector<at::Tensor> buffers{input, output};
  for (const AllGatherExtension::Inputs& inputs : extension_inputs) {
    buffers.insert(buffers.end(), inputs.tensors.begin(), inputs.tensors.end());
    buffers.insert(buffers.end(), inputs.metadata.begin(),
                   inputs.metadata.end());
  }
  return buffers;
}

GroupGather::~GroupGather() {
  if (pending_.has_value()) {
    data_.comm->HoldGather(pending_->Buffers(), pending_->done);
  }
  if (sharding_ == Sharding::kUnsharded) FreeUnsharded();
  FreeKeptStorage();
}

const ProcessGroup& GroupGather::process_group() const {
  return sharding_ == Sharding::kShardedPostForward
             ? data_.config.post_forward_group
             : data_.config.shard_group;
}

void GroupGather::Start() {
  Pending gather;
  gather.begin_us = StepRecorder::NowMicros();
  gather.from_post_forward = sharding_ == Sharding::kShardedPostForward;
  c10d::ProcessGroup& group = *process_group();
  CommContext& comm = *data_.comm;
  if (comm.has_streams()) CommContext::Wait(comm.copy_in(), resharded_);
  resharded_ = nullptr;
  {
    const StreamScope stream(comm, &CommContext::copy_in);
    CopyIn(gather);
  }
  gather.alone = group.getSize() == 1 && !data_.settings.custom_all_gather;
  if (!gather.alone) {
    Issue(gather, group);
  } else if (comm.has_streams()) {
    gather.done = comm.Record(comm.copy_in());
  }
  pending_ = std::move(gather);
}

void GroupGather::CopyIn(Pending& gather) {
  std::vector<Input> inputs;
  if (gather.from_post_forward) {
    for (const at::Tensor& shard : post_forward_shards_) {
      inputs.push_back({shard, shard.scalar_type()});
    }
    FillInput(gather, inputs);
    return;
  }
  const bool as_it_is =
      data_.shards.bytes().device() == data_.config.device &&
      std::all_of(data_.params.begin(), data_.params.end(),
                  [](const auto& param) {
                    return !param->extension().has_value() &&
                           param->orig_dtype() == param->gathered_dtype();
                  });
  if (as_it_is) {
    gather.offsets = data_.shards.offsets();
    gather.input = data_.shards.bytes();
    return;
  }
  gather.extension_inputs = ExtensionInputs(data_);
  auto extended = gather.extension_inputs.begin();
  for (const auto& param : data_.params) {
    if (!param->extension().has_value()) {
      inputs.push_back({param->padded_shard(), param->gathered_dtype()});
      continue;
    }
    for (const at::Tensor& tensor : (extended++)->tensors) {
      inputs.push_back({tensor, tensor.scalar_type()});
    }
  }
  FillInput(gather, inputs);
}

// Fills one buffer with every input, cast to the transfer's dtype.
void GroupGather::FillInput(Pending& gather, const std::vector<Input>& inputs) {
  int64_t num_bytes = 0;
  for (const Input& input : inputs) {
    gather.offsets.push_back(num_bytes);
    num_bytes += AlignUp(input.num_bytes());
  }
  c10d::ProcessGroup& group = GatherProcessGroup(gather);
  if (data_.comm->has_streams() && group.getSize() > 1 &&
      !data_.settings.custom_all_gather) {
    // The input's place in the output, where the collective leaves it.
    gather.output = EmptyOutput(group.getSize() * num_bytes, group);
    gather.input =
        gather.output.narrow(0, group.getRank() * num_bytes, num_bytes);
  } else {
    gather.input = EmptyOutput(num_bytes, group);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    // An offloaded shard is cast on the device: a cast on the CPU makes the
    // host wait.
    gather.input.narrow(0, gather.offsets[i], inputs[i].num_bytes())
        .view(inputs[i].dtype)
        .copy_(inputs[i]
                   .tensor.to(data_.config.device, /*non_blocking=*/true)
                   .reshape({-1}));
  }
}

void GroupGather::Issue(Pending& gather, c10d::ProcessGroup& group) {
  CommContext& comm = *data_.comm;
  if (comm.has_streams()) {
    CommContext::Wait(comm.all_gather(), comm.Record(comm.copy_in()));
  }
  const StreamScope stream(comm, &CommContext::all_gather);
  const int64_t num_bytes = group.getSize() * gather.input.numel();
  // If a single parameter's storage holds the rows already, no copy-out is
  // needed.
  FsdpParam& first = *data_.params.front();
  gather.in_place = data_.params.size() == 1 && !comm.has_streams() &&
                    !first.extension().has_value() &&
                    (gather.from_post_forward || first.geometry().dim == 0) &&
                    static_cast<int64_t>(first.unsharded_bytes()) == num_bytes;
  if (gather.in_place) {
    AllocateUnsharded();
    gather.output = first.FlatUnsharded().view(at::kByte);
  } else if (!gather.output.defined()) {
    gather.output = EmptyOutput(num_bytes, group);
  }
  StepReport& report = comm.recorder().report();
  ++report.num_all_gathers;
  report.gathered_bytes += static_cast<uint64_t>(num_bytes);
  gather.work = IssueWork(
      group, [this] { return data_.Describe("all-gather"); },
      [&]() -> Work {
        if (!data_.settings.custom_all_gather) {
          return AllGatherInto(gather.output, gather.input, group);
        }
        data_.settings.custom_all_gather(gather.output, gather.input, group);
        return Work();
      });
  if (comm.has_streams()) gather.done = comm.Record(comm.all_gather());
}

at::Tensor GroupGather::EmptyOutput(int64_t num_bytes,
                                    c10d::ProcessGroup& group) const {
  return data_.EmptyBuffer(
      num_bytes, at::kByte, group,
      /*is_custom=*/static_cast<bool>(data_.settings.custom_all_gather));
}

c10d::ProcessGroup& GroupGather::GatherProcessGroup(
    const Pending& gather) const {
  return gather.from_post_forward ? *data_.config.post_forward_group
                                  : *data_.config.shard_group;
}

// Waits for the output, on the host or on the current stream.
void GroupGather::Await(Pending& gather, c10d::ProcessGroup& group) {
  const int64_t begin_us = StepRecorder::NowMicros();
  WaitForWork(gather.work, group,
              [this] { return data_.Describe("all-gather"); });
  data_.comm->WaitOnCurrent(gather.done);
  StepRecorder& recorder = data_.comm->recorder();
  recorder.report().gather_wait_seconds +=
      static_cast<double>(StepRecorder::NowMicros() - begin_us) * 1e-6;
  recorder.AddSpan("all-gather", data_.name, gather.begin_us);
  recorder.AddSpan("wait", data_.name, begin_us);
}

void GroupGather::Wait(bool in_backward) {
  CommContext& comm = *data_.comm;
  Pending gather = std::move(*pending_);
  pending_.reset();
  c10d::ProcessGroup& group = GatherProcessGroup(gather);
  Await(gather, group);
  if (!in_backward) comm.ReleaseGather();
  if (gather.alone) {
    gather.output = gather.input;
    if (gather.from_post_forward || data_.config.offload_policy.has_value() ||
        !gather.input.is_alias_of(data_.shards.bytes())) {
      AllocateUnsharded();
      CopyOutAll(gather);
    } else {
      UnshardOnOneRank();
    }
  } else if (!gather.in_place) {
    AllocateUnsharded();
    CopyOutAll(gather);
  }
  post_forward_shards_.clear();
  for (const auto& param : data_.params) {
    param->AgreeOnRequiresGrad();
    param->marks().touched = false;
  }
  comm.HoldGather(gather.Buffers(), comm.RecordCurrent());
  if (in_backward) comm.ReleaseGather();
  sharding_ = Sharding::kUnsharded;
  FsdpParam::BumpEpoch();
}

void GroupGather::CopyOutAll(Pending& gather) {
  const int64_t world =
      gather.output.numel() / std::max<int64_t>(1, gather.input.numel());
  const at::Tensor rows = gather.output.view({std::max<int64_t>(1, world), -1});
  size_t next_input = 0;
  size_t next_extension = 0;
  for (const auto& param : data_.params) {
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

void GroupGather::CopyOutExtension(FsdpParam& param, Pending& gather,
                                   size_t& next_input,
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

// A group with one rank computes with the shards where they are.
void GroupGather::UnshardOnOneRank() {
  for (const auto& param : data_.params) {
    param->storage().Borrow(param->padded_shard());
  }
}

void GroupGather::AllocateUnsharded() {
  if (owns_unsharded_) FreeUnsharded();  // a gather has failed
  StepRecorder& recorder = data_.comm->recorder();
  for (const auto& param : data_.params) {
    if (!param->storage().Allocate()) continue;
    recorder.AddUnsharded(param->unsharded_bytes());
  }
  owns_unsharded_ = true;
}

void GroupGather::FreeUnsharded() {
  StepRecorder& recorder = data_.comm->recorder();
  for (const auto& param : data_.params) {
    if (owns_unsharded_ && data_.settings.keep_unsharded_storage) {
      param->storage().Hide();
      continue;
    }
    if (owns_unsharded_) recorder.RemoveUnsharded(param->unsharded_bytes());
    param->storage().Free();
  }
  owns_unsharded_ = false;
}

void GroupGather::FreeKeptStorage() {
  for (const auto& param : data_.params) {
    if (!param->storage().has_hidden()) continue;
    data_.comm->recorder().RemoveUnsharded(param->unsharded_bytes());
    param->storage().Free();
  }
}

bool GroupGather::Reshard(bool after_forward) {
  if (sharding_ == Sharding::kShardedPostForward && !after_forward) {
    Drop();  // it reads the smaller group's shards
    post_forward_shards_.clear();
    resharded_ = nullptr;
    sharding_ = Sharding::kSharded;
  }
  if (sharding_ != Sharding::kUnsharded) return false;
  sharding_ = Sharding::kSharded;
  if (after_forward && data_.config.post_forward_group) {
    const int64_t world = data_.config.post_forward_group->getSize();
    const int64_t rank = data_.config.post_forward_group->getRank();
    for (const auto& param : data_.params) {
      post_forward_shards_.push_back(
          param->FlatUnsharded().view({world, -1}).select(0, rank).clone());
    }
    sharding_ = Sharding::kShardedPostForward;
    resharded_ = data_.comm->RecordCurrent();
  }
  FreeUnsharded();
  FsdpParam::BumpEpoch();
  return true;
}

void GroupGather::Drop() {
  if (!pending_.has_value()) return;
  Pending gather = std::move(*pending_);
  pending_.reset();
  if (gather.work) {
    WaitForWork(gather.work, GatherProcessGroup(gather),
                [this] { return data_.Describe("all-gather"); });
  }
  data_.comm->WaitOnCurrent(gather.done);
  data_.comm->HoldGather(gather.Buffers(), gather.done);
  if (gather.in_place) FreeUnsharded();
}

}  // namespace fsdp
