// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/stage_comm.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/collective_errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"

namespace fsdp::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using MessageKind = StageMessage::Kind;

StepHeader SampleHeader() {
  return {
      .schedule = ScheduleKind::k1F1B,
      .num_microbatches = 5,
      .has_backward = true,
      .activations = {
          {.dtype = at::kBFloat16, .sizes = {2, 3, 0}, .requires_grad = true},
          {.dtype = at::kLong, .sizes = {}, .requires_grad = false}}};
}

TEST(StepHeader, RoundTrips) {
  const StepHeader header = DecodeStepHeader(EncodeStepHeader(SampleHeader()));
  EXPECT_EQ(header.schedule, ScheduleKind::k1F1B);
  EXPECT_EQ(header.num_microbatches, 5);
  EXPECT_TRUE(header.has_backward);
  ASSERT_EQ(header.activations.size(), 2u);
  EXPECT_EQ(header.activations[0].dtype, at::kBFloat16);
  EXPECT_EQ(header.activations[0].sizes, (std::vector<int64_t>{2, 3, 0}));
  EXPECT_TRUE(header.activations[0].requires_grad);
  EXPECT_EQ(header.activations[1].dtype, at::kLong);
  EXPECT_TRUE(header.activations[1].sizes.empty());
  EXPECT_FALSE(header.activations[1].requires_grad);
}

TEST(StepHeader, EnforcesLimits) {
  StepHeader header = SampleHeader();
  header.activations.resize(9, header.activations[0]);
  ExpectError<c10::ValueError>([&] { EncodeStepHeader(header); },
                               {"passes 9 tensors", "at most 8"});
  header = SampleHeader();
  header.activations[0].sizes.assign(9, 1);
  ExpectError<c10::ValueError>([&] { EncodeStepHeader(header); },
                               {"9 dimensions", "at most 8"});
}

TEST(StepHeader, RefusesOtherNumbers) {
  const auto with = [](int64_t index, int64_t value) {
    at::Tensor words = EncodeStepHeader(SampleHeader());
    words[index] = value;
    return words;
  };
  // Magic, schedule, how many activations; then dtype and dimensions of one.
  for (const auto& [index, value] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 7}, {1, kNumScheduleKinds}, {1, -1}, {4, 9}, {4, -1}}) {
    ExpectError<c10::Error>([&] { DecodeStepHeader(with(index, value)); },
                            {"not the header of a step"});
  }
  for (const auto& [index, value] : std::vector<std::pair<int64_t, int64_t>>{
           {5, -1}, {5, 1000}, {7, -1}, {7, 9}}) {
    ExpectError<c10::Error>([&] { DecodeStepHeader(with(index, value)); },
                            {"the header of a step has a tensor of dtype"});
  }
}

// One stage on each rank.
StageComm MakeComm(const DeviceMesh& mesh) {
  std::vector<int64_t> stage_ranks;
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int64_t rank = 0; rank < mesh.size(); ++rank) {
    stage_ranks.push_back(rank);
    if (rank > 0) pairs.emplace_back(rank - 1, rank);
  }
  return StageComm(mesh, stage_ranks, pairs);
}

void ReceiveInto(StageComm& comm, const StageMessage& message) {
  comm.Wait(comm.Receive(message));
}

TEST(StageComm, SendsBothWaysAtOnceAndInOrder) {
  RunRanks(2, [] {
    StartRank();
    StageComm comm = MakeComm(init_device_mesh("cpu", {2}, {"pp"}));
    const int64_t peer = 1 - comm.rank();
    const auto message = [&](int64_t microbatch, double value) {
      return StageMessage{.kind = MessageKind::kActivations,
                          .microbatch = microbatch,
                          .stage = comm.rank(),
                          .peer = peer,
                          .tensors = {at::full({3}, value), at::full({}, 2)}};
    };
    std::vector<StageTransfer> sent;
    for (int64_t i = 0; i < 4; ++i) {
      const StageMessage received = message(i, -1);
      sent.push_back(comm.Send(message(i, get_rank() * 10.0 + i)));
      ReceiveInto(comm, received);
      EXPECT_EQ(received.tensors[0][2].item<double>(), peer * 10.0 + i);
    }
    for (const StageTransfer& transfer : sent) comm.Wait(transfer);
  });
}

// Gloo under another name, so that it is taken for a backend without tags.
class UntaggedBackend : public CountingBackend {
 public:
  using CountingBackend::CountingBackend;
  const std::string getBackendName() const override { return "untagged"; }
  void abort() override { ++num_aborts; }

  int num_aborts = 0;
};

c10::intrusive_ptr<UntaggedBackend> PutUntagged(const ProcessGroup& group) {
  const auto untagged = c10::make_intrusive<UntaggedBackend>(
      group->getBackend(c10::DeviceType::CPU));
  group->setBackend(c10::DeviceType::CPU,
                    c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::intrusive_ptr<c10d::Backend>(untagged));
  return untagged;
}

TEST(StageComm, WithoutTagsLowerRanksUseASecondGroup) {
  RunRanks(2, [] {
    StartRank();
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"pp"});
    const auto first = PutUntagged(mesh.get_group());
    const auto second = PutUntagged(second_group(mesh.get_group()));
    StageComm comm = MakeComm(mesh);
    // Each direction is connected.
    EXPECT_EQ(first->ToString(), get_rank() == 0 ? "send 1" : "recv 1");
    EXPECT_EQ(second->ToString(), get_rank() == 0 ? "recv 1" : "send 1");

    const StageMessage activations{.kind = MessageKind::kActivations,
                                   .microbatch = 0,
                                   .stage = comm.rank(),
                                   .peer = 1 - comm.rank(),
                                   .tensors = {at::full({2}, get_rank())}};
    const StageMessage gradients{.kind = MessageKind::kGradients,
                                 .microbatch = 0,
                                 .stage = comm.rank(),
                                 .peer = 1 - comm.rank(),
                                 .tensors = {at::full({3}, get_rank())}};
    if (get_rank() == 0) {
      const StageTransfer header = comm.SendHeader(SampleHeader(), 0, 1);
      const StageTransfer sent = comm.Send(activations);
      ReceiveInto(comm, gradients);
      EXPECT_EQ(gradients.tensors[0][2].item<double>(), 1);
      comm.Wait(header);
      comm.Wait(sent);
    } else {
      EXPECT_EQ(comm.ReceiveHeader(1, 0).num_microbatches, 5);
      ReceiveInto(comm, activations);
      EXPECT_EQ(activations.tensors[0][1].item<double>(), 0);
      comm.Wait(comm.Send(gradients));
    }
    EXPECT_EQ(first->ToString(), get_rank() == 0 ? "send 3" : "recv 3");
    EXPECT_EQ(second->ToString(), get_rank() == 0 ? "recv 2" : "send 2");

    comm.Abandon();
    EXPECT_EQ(first->num_aborts, 1);
    EXPECT_EQ(second->num_aborts, 1);
  });
}

TEST(StageComm, AnAbandonedStepFailsOnAllStages) {
  RunRanks(3, [] {
    StartRank();
    StageComm comm = MakeComm(init_device_mesh("cpu", {3}, {"pp"}));
    if (comm.rank() == 1) {
      comm.set_activity(1, "the forward of microbatch 6");
      const StepGuard guard(comm);  // left without Finish
    } else {
      const StageMessage received{.kind = MessageKind::kGradients,
                                  .microbatch = 4,
                                  .stage = comm.rank(),
                                  .peer = 1,
                                  .tensors = {at::zeros({2})}};
      const std::string error =
          ThrownMessage([&] { ReceiveInto(comm, received); });
      EXPECT_THAT(
          error,
          AllOf(HasSubstr(get_rank() == 0 ? "rank 0 of 3 in group \"world\""
                                          : "rank 2 of 3 in group \"world\""),
                HasSubstr(get_rank() == 0 ? "stage 0 of 3: receiving"
                                          : "stage 2 of 3: receiving"),
                HasSubstr("the gradients of microbatch 4 from stage 1, which "
                          "is rank 1"),
                HasSubstr("after an error of stage 1 in the forward of "
                          "microbatch 6")));
    }
    WaitForAllRanks();
  });
}

}  // namespace
}  // namespace fsdp::testing
