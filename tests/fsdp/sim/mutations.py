# SPDX-License-Identifier: Apache-2.0
"""The waits and held buffers that mutate.py takes out, one at a time."""

import dataclasses

ENGINE = "tests/fsdp/sim:engine_test"
CHECKPOINT = "tests/fsdp/sim:checkpoint_test"
OFFLOAD = "tests/fsdp/sim:offload_test"
RING = "tests/fsdp/parallel/context:ring_on_device_test"
PIPELINE = "tests/fsdp/parallel/pipeline:message_order_test"


@dataclasses.dataclass(frozen=True)
class Mutation:
    name: str
    file: str
    old: str  # occurs once in the file
    new: str
    tests: str  # of the program, as --gtest_filter names them
    program: str = ENGINE
    # Why no test notices: what else implies the wait.
    implied_by: str = ""


COMM = "fsdp/engine/comm/comm_context.cc"
GATHER = "fsdp/engine/group_gather.cc"
GROUP = "fsdp/engine/fsdp_param_group.cc"
REDUCTION = "fsdp/engine/group_reduction.cc"
STEP_END = "fsdp/engine/step_end.cc"
OFFLOAD_STREAM = "fsdp/module/offload_stream.cc"
RING_ATTENTION = "fsdp/parallel/context/ring_attention.cc"
STAGE_COMM = "fsdp/parallel/pipeline/stage_comm.cc"
TENSOR_IO = "fsdp/checkpoint/state/tensor_io.cc"

MUTATIONS = (
    Mutation(
        "copies in before the forward",
        COMM,
        "  Wait(*copy_in_, event ? event : RecordCurrent());\n",
        "",
        "*/Bfloat16On2:*/ShardsAreReplaced",
    ),
    Mutation(
        "holds no gather",
        COMM,
        "  held_gather_ = std::move(tensors);\n",
        "  (void)tensors;\n",
        "*/Float32On2:*/Bfloat16On2",
    ),
    Mutation(
        "copies in over a held gather",
        COMM,
        "  Wait(*copy_in_, held_gather_event_);\n",
        "",
        "*/Bfloat16On2:*/Nf4Gathered",
    ),
    Mutation(
        "gathers from a smaller group too early",
        GATHER,
        "  if (comm.has_streams()) "
        "CommContext::Wait(comm.copy_in(), resharded_);\n",
        "",
        "*/ReshardedToTwo*",
    ),
    Mutation(
        "gathers before it is copied in",
        GATHER,
        "    CommContext::Wait(comm.all_gather(), "
        "comm.Record(comm.copy_in()));\n",
        "",
        "*/Bfloat16On2",
    ),
    Mutation(
        "computes before it is gathered",
        GATHER,
        "  data_.comm->WaitOnCurrent(gather.done);\n  StepRecorder&",
        "  StepRecorder&",
        "*/Float32On2",
    ),
    Mutation(
        "computes before one rank has cast",
        GATHER,
        "    gather.done = comm.Record(comm.copy_in());\n",
        "",
        "*/Bfloat16On1",
    ),
    Mutation(
        "frees the inputs of an extension",
        GATHER,
        "  for (const AllGatherExtension::Inputs& inputs : extension_inputs) {",
        "  for (const AllGatherExtension::Inputs& inputs :"
        " std::vector<AllGatherExtension::Inputs>()) {",
        "*/Float8:*/Nf4Gathered",
    ),
    Mutation(
        "frees the input of a custom gather",
        GATHER,
        "  std::vector<at::Tensor> buffers{input, output};",
        "  std::vector<at::Tensor> buffers{output};",
        "*/CustomCollectives",
    ),
    Mutation(
        "drops a gather in flight",
        GATHER,
        "  data_.comm->HoldGather(gather.Buffers(), gather.done);\n"
        "  if (gather.in_place)",
        "  if (gather.in_place)",
        "*/GatheredByHand:*/EntersElsewhere:*/ABackwardFails:*/Prefetched*:"
        "*/DropsGathers",
        implied_by="the gather after one that is dropped begins with a wait for "
        "the current stream, which has waited for the dropped one",
    ),
    Mutation(
        "drops a gather without a wait",
        GATHER,
        "  data_.comm->WaitOnCurrent(gather.done);\n  data_.comm->HoldGather",
        "  data_.comm->HoldGather",
        "*/GatheredByHand:*/EntersElsewhere:*/ABackwardFails:*/Prefetched*:"
        "*/DropsGathers",
    ),
    Mutation(
        "gathers before the shards are written",
        GROUP,
        "      data_.comm->BeginGathers(nullptr);\n      NoteGathersBegan();\n",
        "      NoteGathersBegan();\n",
        "*/ShardsAreReplaced:*/ToDouble:*/EntersElsewhere:*/AForwardFails",
    ),
    Mutation(
        "forgets writes that autograd does not count",
        GROUP,
        "void FsdpParamGroup::OnShardWritten() {\n"
        "  gathers_must_wait_ = true;\n",
        "void FsdpParamGroup::OnShardWritten() {\n",
        "*/DataIsScaledInAForward",
    ),
    Mutation(
        "reduces before gradients are copied in",
        REDUCTION,
        "    CommContext::Wait(comm.reduce_scatter(), comm.RecordCurrent());\n",
        "",
        "*/Float32On2",
    ),
    Mutation(
        "frees the input of a reduction",
        REDUCTION,
        "    comm.WaitOnCurrent(reduction.done);\n    return;",
        "    return;",
        "*/Float32On2",
    ),
    Mutation(
        "reduces over replicas too early",
        REDUCTION,
        "  CommContext::Wait(stream, data_.comm->RecordCurrent());\n",
        "",
        "*/HsdpOn4:*/HookOnAStream",
    ),
    Mutation(
        "frees what replicas reduce",
        REDUCTION,
        "  held_.push_back(reduction.output);\n",
        "",
        "*/HsdpInFloat16:*/HookOnAStream:*/HsdpInBfloat16*",
    ),
    Mutation(
        "frees the sums of one rank",
        REDUCTION,
        "    held_.push_back(partial.output);\n",
        "",
        "*/HsdpAccumulates*On2",
    ),
    Mutation(
        "finishes a backward too early",
        REDUCTION,
        "  comm.WaitOnCurrent(reduced_);\n",
        "",
        "*/HsdpOn4:*/HookOnAStream",
    ),
    Mutation(
        "reads offloaded gradients too early",
        REDUCTION,
        "    reduced_->synchronize();\n",
        "    ;\n",
        "*/OffloadOn2",
    ),
    Mutation(
        "forgets the last reduction",
        STEP_END,
        "  GroupReduction::FinishAllBut(0, *comm_);\n",
        "",
        "*/Float32On2",
    ),
    Mutation(
        "frees the last gather of a backward",
        STEP_END,
        "  if (!manual) FinishReductions();\n  comm_->ReleaseGather();\n",
        "  if (!manual) FinishReductions();\n",
        "*/Float32On2:*/Bfloat16On2",
        implied_by="it only frees memory that the next gather would free",
    ),
    Mutation(
        "copies a state out before it is computed",
        TENSOR_IO,
        "  if (!waits_) event_.block(stream_);\n",
        "",
        "*",
        CHECKPOINT,
    ),
    Mutation(
        "reads a state before it is copied out",
        TENSOR_IO,
        "void TransferStream::Synchronize() { stream_.synchronize(); }",
        "void TransferStream::Synchronize() {}",
        "*",
        CHECKPOINT,
    ),
    Mutation(
        "offloads a tensor before it is computed",
        OFFLOAD_STREAM,
        "  issued.block(*stream_);\n",
        "",
        "*",
        OFFLOAD,
    ),
    Mutation(
        "frees a tensor before it is offloaded",
        OFFLOAD_STREAM,
        "  const at::Tensor source = std::exchange(source_, at::Tensor());\n"
        "  Wait(compute_, copied_);\n",
        "  const at::Tensor source = std::exchange(source_, at::Tensor());\n",
        "*",
        OFFLOAD,
    ),
    Mutation(
        "uses a tensor before it is fetched",
        OFFLOAD_STREAM,
        "    Wait(current, copied_);\n",
        "",
        "*",
        OFFLOAD,
    ),
    Mutation(
        "drops a fetched tensor without a wait",
        OFFLOAD_STREAM,
        "    Wait(parcel.compute_, parcel.copied_);\n",
        "",
        "*",
        OFFLOAD,
    ),
    Mutation(
        "ends a fetched tensor without a wait",
        OFFLOAD_STREAM,
        "    const at::Tensor unused = TakeFetched();\n"
        "    Wait(compute_, copied_);\n",
        "    const at::Tensor unused = TakeFetched();\n",
        "*",
        OFFLOAD,
    ),
    Mutation(
        "sends gradients in the way of activations",
        STAGE_COMM,
        "                        : second_group(group_)),\n",
        "                        : group_),\n",
        "*",
        PIPELINE,
    ),
    Mutation(
        "attends to keys that are still on their way",
        RING_ATTENTION,
        "      WaitForWork(work, *ring_.plan().group, kOperation);\n",
        "      (void)work;\n",
        "*",
        RING,
    ),
)
