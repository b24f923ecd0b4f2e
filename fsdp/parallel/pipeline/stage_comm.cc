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
                         word[1] <= 1 && word[4] >= 0 &&
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

StageComm::StageComm(const DeviceMesh& pp_mesh)
    : group_(pp_mesh.get_group()),
      ranks_(get_process_group_ranks(group_)),
      device_(pp_mesh.device()),
      gradient_group_(IsGloo(*group_->getBackend(device_.type()))
                          ? group_
                          : second_group(group_)),
      header_device_(HasBackendFor(*group_, c10::kCPU) ? c10::Device(c10::kCPU)
                                                       : device_) {
  // Removes a key that an earlier pipeline on these ranks may have left.
  CatchErrorText([&] { job_store()->deleteKey(ActivityKey(stage_index())); });
  if (gradient_group_ != group_) Connect();
}

// Sends the first message in each direction to each neighbour, one number. The
// first stage waits for the second, which then goes on to the third.
void StageComm::Connect() {
  const auto message = [this](MessageKind kind, int64_t peer) {
    return StageMessage{
        .kind = kind,
        .microbatch = 0,
        .peer = peer,
        .tensors = {at::zeros({1}, at::TensorOptions(device_))}};
  };
  const int64_t previous = stage_index() - 1;
  const int64_t next = stage_index() + 1;
  if (previous >= 0) {
    Receive(message(MessageKind::kActivations, previous));
    std::optional<StageTransfer> sent =
        Send(message(MessageKind::kGradients, previous));
    Wait(sent);
  }
  if (next < num_stages()) {
    std::optional<StageTransfer> sent =
        Send(message(MessageKind::kActivations, next));
    Receive(message(MessageKind::kGradients, next));
    Wait(sent);
  }
}

const ProcessGroup& StageComm::MessageGroup(const StageMessage& message) const {
  return message.kind == MessageKind::kGradients ? gradient_group_ : group_;
}

std::string StageComm::ActivityKey(int64_t stage) const {
  return absl::StrCat("pipeline/", key_of(group_), "/", stage);
}

std::string StageComm::Describe(const StageMessage& message, bool sends) const {
  std::string text = absl::StrCat(
      "stage ", stage_index(), " of ", num_stages(), ": ",
      sends ? "sending " : "receiving ", MessageName(message),
      sends ? " to" : " from", " stage ", message.peer, ", which is rank ",
      ranks_[static_cast<size_t>(message.peer)], ",");
  CatchErrorText([&] {
    const auto store = job_store();
    for (int64_t stage = 0; stage < num_stages(); ++stage) {
      const std::string key = ActivityKey(stage);
      if (stage == stage_index() || !store->check({key})) continue;
      const std::vector<uint8_t> activity = store->get(key);
      absl::StrAppend(&text, " after an error of stage ", stage, " in ",
                      std::string(activity.begin(), activity.end()), ",");
    }
  });
  return text;
}

Work StageComm::Issue(const StageMessage& message, bool sends,
                      const at::Tensor& tensor) {
  const ProcessGroup& group = MessageGroup(message);
  const auto backend = group->getBackend(tensor.device().type());
  const int peer = static_cast<int>(message.peer);
  const int tag = MessageTag(message.kind);
  std::vector<at::Tensor> tensors{tensor};
  return IssueWork(
      *group, [&] { return Describe(message, sends); },
      [&] {
        return sends ? backend->send(tensors, peer, tag)
                     : backend->recv(tensors, peer, tag);
      });
}

void StageComm::WaitFor(const Work& work, const StageMessage& message,
                        bool sends) {
  const auto operation = [&] { return Describe(message, sends); };
  const ProcessGroup& group = MessageGroup(message);
  const auto backend =
      group->getBackend(message.tensors.front().device().type());
  if (!IsGloo(*backend)) {
    WaitForWork(work, *group, operation);
    return;
  }
  IssueWork(*group, operation, [&] {
    // Without an argument, wait would use the timeout with which the group was
    // made.
    work->wait(backend->getBackendOptions()->timeout);
    return work;
  });
}

void StageComm::Wait(std::optional<StageTransfer>& transfer) {
  if (!transfer.has_value()) return;
  for (const Work& work : transfer->works) {
    WaitFor(work, transfer->message, /*sends=*/true);
  }
  transfer.reset();
}

StageTransfer StageComm::Send(StageMessage message) {
  StageTransfer transfer{.message = std::move(message), .works = {}};
  for (const at::Tensor& tensor : transfer.message.tensors) {
    transfer.works.push_back(Issue(transfer.message, /*sends=*/true, tensor));
  }
  return transfer;
}

void StageComm::Receive(const StageMessage& message) {
  std::vector<Work> works;
  for (const at::Tensor& tensor : message.tensors) {
    works.push_back(Issue(message, /*sends=*/false, tensor));
  }
  for (const Work& work : works) WaitFor(work, message, /*sends=*/false);
}

std::optional<StageTransfer> StageComm::Exchange(
    std::optional<StageMessage> sent,
    const std::optional<StageMessage>& received) {
  std::optional<StageTransfer> transfer;
  if (sent.has_value()) transfer = Send(*std::move(sent));
  if (received.has_value()) Receive(*received);
  return transfer;
}

StageTransfer StageComm::SendHeader(const StepHeader& header, int64_t peer) {
  return Send({.kind = MessageKind::kHeader,
               .microbatch = 0,
               .peer = peer,
               .tensors = {EncodeStepHeader(header).to(header_device_)}});
}

StepHeader StageComm::ReceiveHeader(int64_t peer) {
  const StageMessage message{
      .kind = MessageKind::kHeader,
      .microbatch = 0,
      .peer = peer,
      .tensors = {
          at::empty({kStepHeaderWords},
                    at::TensorOptions(at::kLong).device(header_device_))}};
  Receive(message);
  return DecodeStepHeader(message.tensors[0].to(c10::kCPU));
}

void StageComm::Abandon() {
  CatchErrorText([&] {
    job_store()->set(ActivityKey(stage_index()),
                     std::vector<uint8_t>(activity_.begin(), activity_.end()));
  });
  CloseAll(*group_);
  if (gradient_group_ != group_) CloseAll(*gradient_group_);
}

}  // namespace fsdp
