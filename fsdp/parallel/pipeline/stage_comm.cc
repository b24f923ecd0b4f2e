// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/stage_comm.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/collective_errors.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace fsdp {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;
using MessageKind = StageMessage::Kind;

// A header's first word: "PPIPE" and the layout's version.
constexpr int64_t kHeaderMagic = 0x5050495045'01;
// Message tags, by kind; messages of one kind between two stages arrive in the
// order in which they were sent.
constexpr int kFirstTag = 0x50503100;

constexpr int kConnectTag = kFirstTag + 99;
constexpr int kUnusedTag = kFirstTag + 100;

int MessageTag(MessageKind kind) { return kFirstTag + static_cast<int>(kind); }

bool HasBackendFor(c10d::ProcessGroup& group, c10::DeviceType type) {
  const auto types = group.getDeviceTypes();
  return std::any_of(types.begin(), types.end(), [type](c10::Device device) {
    return device.type() == type;
  });
}

bool IsGloo(c10d::Backend& backend) {
  return backend.getBackendName() == "gloo";
}

// Closes this rank's connections, so that the other ranks get errors.
void Close(c10d::Backend& backend) {
  if (!IsGloo(backend)) {
    backend.abort();
    return;
  }
  // Gloo cannot abort, but a wait that times out closes all connections in the
  // group. Nobody sends with this tag. If the connection to one rank is closed
  // already, that wait fails at once, and closes nothing.
  for (int peer = 0; peer < backend.getSize(); ++peer) {
    if (peer == backend.getRank()) continue;
    CatchErrorText([&] {
      std::vector<at::Tensor> nothing{at::zeros({1})};
      backend.recv(nothing, peer, kUnusedTag)
          ->wait(std::chrono::milliseconds(1));
    });
  }
}

void CloseAll(c10d::ProcessGroup& group) {
  for (const c10::Device device : group.getDeviceTypes()) {
    CatchErrorText([&] { Close(*group.getBackend(device.type())); });
  }
}

std::string MessageName(const StageMessage& message) {
  if (message.kind == MessageKind::kHeader) return "the header of a step";
  return absl::StrCat(message.kind == MessageKind::kActivations
                          ? "the activations"
                          : "the gradients",
                      " of microbatch ", message.microbatch);
}

}  // namespace

at::Tensor EncodeStepHeader(const StepHeader& header) {
  TORCH_CHECK_VALUE(
      static_cast<int64_t>(header.activations.size()) <= kMaxActivations,
      "a stage passes ", header.activations.size(),
      " tensors to the next one; at most ", kMaxActivations, " can be passed");
  at::Tensor words = at::zeros({kStepHeaderWords}, at::kLong);
  int64_t* word = words.mutable_data_ptr<int64_t>();
  *word++ = kHeaderMagic;
  *word++ = static_cast<int64_t>(header.schedule);
  *word++ = header.num_microbatches;
  *word++ = header.has_backward ? 1 : 0;
  *word++ = static_cast<int64_t>(header.activations.size());
  for (const ActivationSpec& spec : header.activations) {
    TORCH_CHECK_VALUE(
        static_cast<int64_t>(spec.sizes.size()) <= kMaxActivationDims,
        "a stage passes a tensor of ", spec.sizes.size(),
        " dimensions to the next one; at most ", kMaxActivationDims,
        " can be passed");
    word[0] = static_cast<int64_t>(spec.dtype);
    word[1] = spec.requires_grad ? 1 : 0;
    word[2] = static_cast<int64_t>(spec.sizes.size());
    std::copy(spec.sizes.begin(), spec.sizes.end(), word + 3);
    word += 3 + kMaxActivationDims;
  }
  return words;
}

StepHeader DecodeStepHeader(const at::Tensor& words) {
  const int64_t* word = words.const_data_ptr<int64_t>();
  const bool is_header = words.numel() == kStepHeaderWords &&
                         word[0] == kHeaderMagic && word[1] >= 0 &&
                         word[1] < kNumScheduleKinds && word[4] >= 0 &&
                         word[4] <= kMaxActivations;
  TORCH_CHECK(is_header,
              "the previous stage sent something that is not the "
              "header of a step; do both run the same version?");
  StepHeader header{.schedule = static_cast<ScheduleKind>(word[1]),
                    .num_microbatches = word[2],
                    .has_backward = word[3] != 0,
                    .activations = {}};
  const int64_t num_activations = word[4];
  word += 5;
  for (int64_t i = 0; i < num_activations; ++i) {
    TORCH_CHECK(
        word[0] >= 0 &&
            word[0] < static_cast<int64_t>(c10::ScalarType::NumOptions) &&
            word[2] >= 0 && word[2] <= kMaxActivationDims,
        "the header of a step has a tensor of dtype ", word[0], " and ",
        word[2], " dimensions");
    header.activations.push_back(
        {.dtype = static_cast<c10::ScalarType>(word[0]),
         .sizes = std::vector<int64_t>(word + 3, word + 3 + word[2]),
         .requires_grad = word[1] != 0});
    word += 3 + kMaxActivationDims;
  }
  return header;
}

StageComm::StageComm(const DeviceMesh& pp_mesh,
                     std::vector<int64_t> stage_ranks,
                     const std::vector<std::pair<int64_t, int64_t>>& rank_pairs)
    : group_(pp_mesh.get_group()),
      ranks_(get_process_group_ranks(group_)),
      stage_ranks_(std::move(stage_ranks)),
      device_(pp_mesh.device()),
      second_group_(IsGloo(*group_->getBackend(device_.type()))
                        ? group_
                        : second_group(group_)),
      header_device_(HasBackendFor(*group_, c10::kCPU) ? c10::Device(c10::kCPU)
                                                       : device_) {
  // Removes a key that an earlier pipeline on these ranks may have left.
  CatchErrorText([&] { job_store()->deleteKey(ActivityKey(rank())); });
  if (second_group_ != group_) Connect(rank_pairs);
}

// All ranks go through the pairs in one order, so no two wait for each other.
void StageComm::Connect(
    const std::vector<std::pair<int64_t, int64_t>>& rank_pairs) {
  for (const auto& [low, high] : rank_pairs) {
    if (rank() == low) Introduce(high);
    if (rank() == high) Introduce(low);
  }
}

// Exchanges the first message in each direction, one number.
void StageComm::Introduce(int64_t peer_rank) {
  const int peer = static_cast<int>(peer_rank);
  const auto backend = [&](bool sends) {
    return GroupTowards(peer_rank, sends)->getBackend(device_.type());
  };
  std::vector<at::Tensor> word{at::zeros({1}, at::TensorOptions(device_))};
  const bool first = rank() < peer_rank;
  for (const bool sends : {first, !first}) {
    const ProcessGroup& group = GroupTowards(peer_rank, sends);
    WaitForWork(sends ? backend(sends)->send(word, peer, kConnectTag)
                      : backend(sends)->recv(word, peer, kConnectTag),
                *group, "the connection of a pipeline's ranks");
  }
}

const ProcessGroup& StageComm::GroupTowards(int64_t peer_rank,
                                            bool sends) const {
  return (rank() < peer_rank) == sends ? group_ : second_group_;
}

std::string StageComm::ActivityKey(int64_t rank) const {
  return absl::StrCat("pipeline/", key_of(group_), "/", rank);
}

std::string StageComm::Describe(const StageMessage& message, bool sends) const {
  std::string text = absl::StrCat(
      "stage ", message.stage, " of ", num_stages(), ": ",
      sends ? "sending " : "receiving ", MessageName(message),
      sends ? " to" : " from", " stage ", message.peer, ", which is rank ",
      ranks_[static_cast<size_t>(RankWithStage(message.peer))], ",");
  CatchErrorText([&] {
    const auto store = job_store();
    for (int64_t other = 0; other < group_->getSize(); ++other) {
      const std::string key = ActivityKey(other);
      if (other == rank() || !store->check({key})) continue;
      const std::vector<uint8_t> activity = store->get(key);
      absl::StrAppend(&text, " after an error of ",
                      std::string(activity.begin(), activity.end()), ",");
    }
  });
  return text;
}

void StageComm::set_activity(int64_t stage, const std::string& activity) {
  activity_ = absl::StrCat("stage ", stage, " in ", activity);
}

StageTransfer StageComm::IssueAll(StageMessage message, bool sends) {
  StageTransfer transfer{
      .message = std::move(message), .sends = sends, .works = {}};
  const StageMessage& issued = transfer.message;
  const int64_t peer = RankWithStage(issued.peer);
  const ProcessGroup& group = GroupTowards(peer, sends);
  const int tag = MessageTag(issued.kind);
  for (const at::Tensor& tensor : issued.tensors) {
    const auto backend = group->getBackend(tensor.device().type());
    std::vector<at::Tensor> tensors{tensor};
    transfer.works.push_back(IssueWork(
        *group, [&] { return Describe(issued, sends); },
        [&] {
          return sends ? backend->send(tensors, static_cast<int>(peer), tag)
                       : backend->recv(tensors, static_cast<int>(peer), tag);
        }));
  }
  return transfer;
}

StageTransfer StageComm::Send(StageMessage message) {
  return IssueAll(std::move(message), /*sends=*/true);
}

StageTransfer StageComm::Receive(StageMessage message) {
  return IssueAll(std::move(message), /*sends=*/false);
}

void StageComm::Wait(const StageTransfer& transfer) {
  const StageMessage& message = transfer.message;
  const auto operation = [&] { return Describe(message, transfer.sends); };
  const ProcessGroup& group =
      GroupTowards(RankWithStage(message.peer), transfer.sends);
  for (size_t i = 0; i < transfer.works.size(); ++i) {
    const Work& work = transfer.works[i];
    const auto backend = group->getBackend(message.tensors[i].device().type());
    if (!IsGloo(*backend)) {
      WaitForWork(work, *group, operation);
      continue;
    }
    IssueWork(*group, operation, [&] {
      // Without an argument, wait would use the timeout with which the group
      // was made.
      work->wait(backend->getBackendOptions()->timeout);
      return work;
    });
  }
}

StageTransfer StageComm::SendHeader(const StepHeader& header, int64_t stage,
                                    int64_t peer) {
  return Send({.kind = MessageKind::kHeader,
               .microbatch = 0,
               .stage = stage,
               .peer = peer,
               .tensors = {EncodeStepHeader(header).to(header_device_)}});
}

StepHeader StageComm::ReceiveHeader(int64_t stage, int64_t peer) {
  const StageTransfer transfer =
      Receive({.kind = MessageKind::kHeader,
               .microbatch = 0,
               .stage = stage,
               .peer = peer,
               .tensors = {at::empty(
                   {kStepHeaderWords},
                   at::TensorOptions(at::kLong).device(header_device_))}});
  Wait(transfer);
  return DecodeStepHeader(transfer.message.tensors[0].to(c10::kCPU));
}

void StageComm::Abandon() {
  CatchErrorText([&] {
    job_store()->set(ActivityKey(rank()),
                     std::vector<uint8_t>(activity_.begin(), activity_.end()));
  });
  CloseAll(*group_);
  if (second_group_ != group_) CloseAll(*second_group_);
}

}  // namespace fsdp
