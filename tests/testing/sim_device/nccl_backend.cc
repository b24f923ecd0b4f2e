// SPDX-License-Identifier: Apache-2.0
// The backend "nccl" on the simulated device: treats streams as
// ProcessGroupNCCL does, and moves the bytes with Gloo.
//   - A collective runs on the current stream if asyncOp is false, and then
//     there is no work to wait for. Otherwise it runs on the communicator's own
//     stream, which waits for the current one; Work::wait makes the then
//     current stream wait.
//   - Nothing makes the host wait, except barrier() and a communicator's first
//     use.
//   - Messages between two ranks use the pair's own communicator, in order and
//     without regard to tags, and a send ends when the receive does. Messages
//     that are issued together (startCoalescing) use the group's communicator.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "c10/core/DeviceGuard.h"
#include "c10/core/Event.h"
#include "fsdp/mesh/backend_registry.h"
#include "fsdp/mesh/launch.h"
#include "tests/testing/sim_device/alias.h"
#include "tests/testing/sim_device/communicator.h"
#include "tests/testing/sim_device/cost_model.h"
#include "tests/testing/sim_device/options.h"
#include "tests/testing/sim_device/simulation.h"
#include "torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"

namespace sim {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
// Moves the bytes; both lists are on the CPU.
using Transfer = std::function<void(Tensors& inputs, Tensors& outputs)>;

class StreamWork final : public c10d::Work {
 public:
  // `kept` lives until the work is awaited.
  StreamWork(c10::Stream stream, Tensors kept, bool blocks_host)
      : event_(kType),
        device_(stream.device_index()),
        kept_(std::move(kept)),
        blocks_host_(blocks_host) {
    event_.record(stream);
  }
  bool isCompleted() override { return event_.query(); }
  bool isSuccess() const override { return true; }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    event_.block(CurrentStream(device_));
    kept_.clear();
    if (blocks_host_) event_.synchronize();
    return true;
  }

 private:
  c10::Event event_;
  const c10::DeviceIndex device_;
  Tensors kept_;
  const bool blocks_host_;
};

// NCCL can multiply before it adds up; returns the operation for Gloo after
// that.
c10d::ReduceOp Scale(const c10d::ReduceOp& op, Tensors& tensors) {
  if (op != c10d::ReduceOp::PREMUL_SUM) return op;
  const auto* const factor =
      static_cast<c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  for (at::Tensor& tensor : tensors) tensor.mul_(factor->double_factor);
  return c10d::ReduceOp::SUM;
}

uint64_t NumBytes(const Tensors& tensors) {
  uint64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

void CheckTensor(const std::string& operation, const at::Tensor& tensor) {
  TORCH_CHECK(IsOurs(tensor), operation, " of nccl takes a tensor on ",
              tensor.device());
  TORCH_CHECK(tensor.is_contiguous(), operation,
              " of nccl takes a tensor that is not contiguous");
  TORCH_CHECK(
      tensor.scalar_type() != at::kShort && tensor.scalar_type() != at::kUInt16,
      operation, " of nccl takes no ", tensor.scalar_type());
}

class NcclBackend final : public c10d::Backend {
 public:
  explicit NcclBackend(const fsdp::BackendRequest& request)
      : c10d::Backend(request.rank, request.size),
        name_(request.name),
        ranks_(request.ranks),
        store_(request.store),
        options_(c10::make_intrusive<Options>("nccl", request.timeout)) {
    auto gloo = c10d::ProcessGroupGloo::Options::create(request.timeout);
    gloo->devices = {
        c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
    gloo_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
        request.store, request.rank, request.size, gloo);
  }

  const std::string getBackendName() const override { return "nccl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsCoalescing() const override { return true; }
  bool supportsTensorAlloc(c10::DeviceIndex /*device*/) override {
    return true;
  }
  at::Tensor allocateTensor(long size, at::TensorOptions how) override {
    return at::empty({size}, how);
  }
  void abort() override {}

  WorkPtr allreduce(Tensors& tensors,
                    const c10d::AllreduceOptions& opts) override {
    return Collective("all-reduce", tensors, tensors, opts.asyncOp,
                      [this, op = opts.reduceOp](Tensors& /*in*/, Tensors& to) {
                        c10d::AllreduceOptions options;
                        options.reduceOp = Scale(op, to);
                        gloo_->allreduce(to, options)->wait();
                      });
  }
  WorkPtr broadcast(Tensors& tensors,
                    const c10d::BroadcastOptions& opts) override {
    return Collective(
        "broadcast", tensors, tensors, opts.asyncOp,
        [this, root = opts.rootRank](Tensors& /*in*/, Tensors& to) {
          c10d::BroadcastOptions options;
          options.rootRank = root;
          gloo_->broadcast(to, options)->wait();
        });
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    return Collective("reduce", tensors, tensors, opts.asyncOp,
                      [this, opts](Tensors& /*in*/, Tensors& to) {
                        c10d::ReduceOptions options;
                        options.reduceOp = Scale(opts.reduceOp, to);
                        options.rootRank = opts.rootRank;
                        gloo_->reduce(to, options)->wait();
                      });
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override {
    return Collective("all-gather", {input}, {output}, opts.asyncOp,
                      [this](Tensors& from, Tensors& to) {
                        gloo_->_allgather_base(to[0], from[0])->wait();
                      });
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override {
    return Collective("all-gather", inputs, outputs[0], opts.asyncOp,
                      [this](Tensors& from, Tensors& to) {
                        std::vector<Tensors> lists{to};
                        gloo_->allgather(lists, from)->wait();
                      });
  }
  WorkPtr _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& opts) override {
    return Collective(
        "reduce-scatter", {input}, {output}, opts.asyncOp,
        [this, op = opts.reduceOp](Tensors& from, Tensors& to) {
          c10d::ReduceScatterOptions options;
          from[0] = from[0].clone();
          options.reduceOp = Scale(op, from);
          gloo_->_reduce_scatter_base(to[0], from[0], options)->wait();
        });
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& opts) override {
    return Collective("scatter", inputs.empty() ? Tensors() : inputs[0],
                      outputs, opts.asyncOp,
                      [this, root = opts.rootRank](Tensors& from, Tensors& to) {
                        c10d::ScatterOptions options;
                        options.rootRank = root;
                        std::vector<Tensors> lists;
                        if (!from.empty()) lists.push_back(from);
                        gloo_->scatter(to, lists, options)->wait();
                      });
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& opts) override {
    return Collective("gather", inputs,
                      outputs.empty() ? Tensors() : outputs[0], opts.asyncOp,
                      [this, root = opts.rootRank](Tensors& from, Tensors& to) {
                        c10d::GatherOptions options;
                        options.rootRank = root;
                        std::vector<Tensors> lists;
                        if (!to.empty()) lists.push_back(to);
                        gloo_->gather(lists, from, options)->wait();
                      });
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts) override {
    return Collective(
        "all-to-all", {input}, {output}, opts.asyncOp,
        [this, output_splits, input_splits](Tensors& from, Tensors& to) {
          std::vector<int64_t> received = output_splits;
          std::vector<int64_t> sent = input_splits;
          gloo_->alltoall_base(to[0], from[0], received, sent)->wait();
        });
  }
  WorkPtr barrier(const c10d::BarrierOptions& /*opts*/) override {
    const c10::Device device(kType, CurrentDevice());
    const Tensors one{
        at::zeros({1}, at::TensorOptions(at::kByte).device(device))};
    return Collective(
        "barrier", one, one, /*is_async=*/true,
        [this](Tensors& /*in*/, Tensors& /*out*/) { gloo_->barrier()->wait(); },
        /*blocks_host=*/true);
  }
  WorkPtr send(Tensors& tensors, int peer, int /*tag*/) override {
    return SendOrReceive(tensors[0], peer, /*sends=*/true);
  }
  WorkPtr recv(Tensors& tensors, int peer, int /*tag*/) override {
    return SendOrReceive(tensors[0], peer, /*sends=*/false);
  }
  void startCoalescing() override { together_.emplace(); }
  WorkPtr endCoalescing() override {
    TORCH_CHECK(!options().clock,
                "the simulated clock does not time messages that are issued "
                "together");
    const std::vector<Message> messages =
        *std::exchange(together_, std::nullopt);
    if (messages.empty()) return nullptr;
    Tensors sent, received;
    std::vector<int> to, from;
    for (const Message& message : messages) {
      (message.sends ? sent : received).push_back(message.tensor);
      (message.sends ? to : from).push_back(message.peer);
    }
    return Collective("messages", sent, received, /*is_async=*/true,
                      [this, to, from](Tensors& in, Tensors& out) {
                        std::vector<WorkPtr> works;
                        for (size_t i = 0; i < in.size(); ++i) {
                          Tensors one{in[i]};
                          works.push_back(gloo_->send(one, to[i], kGroupTag));
                        }
                        for (size_t i = 0; i < out.size(); ++i) {
                          Tensors one{out[i]};
                          works.push_back(gloo_->recv(one, from[i], kGroupTag));
                        }
                        for (const WorkPtr& work : works) work->wait();
                      });
  }

 private:
  struct Message {
    at::Tensor tensor;
    int peer;
    bool sends;
  };

  static constexpr int kPairTag = 71;
  static constexpr int kArrivedTag = 72;
  static constexpr int kGroupTag = 73;

  WorkPtr Collective(const std::string& operation, Tensors inputs,
                     Tensors outputs, bool is_async, Transfer transfer,
                     bool blocks_host = false) {
    return Issue(operation, std::nullopt, std::move(inputs), std::move(outputs),
                 is_async, std::move(transfer), blocks_host);
  }

  WorkPtr SendOrReceive(const at::Tensor& tensor, int peer, bool sends) {
    if (together_.has_value()) {
      together_->push_back({.tensor = tensor, .peer = peer, .sends = sends});
      return nullptr;
    }
    const Tensors none;
    return Issue(
        sends ? "send" : "receive", peer, sends ? Tensors{tensor} : none,
        sends ? none : Tensors{tensor}, /*is_async=*/true,
        [this, peer, sends](Tensors& from, Tensors& to) {
          Tensors arrived{at::zeros({1}, at::kByte)};
          if (sends) {
            gloo_->send(from, peer, kPairTag)->wait();
            gloo_->recv(arrived, peer, kArrivedTag)->wait();
          } else {
            gloo_->recv(to, peer, kPairTag)->wait();
            gloo_->send(arrived, peer, kArrivedTag)->wait();
          }
        },
        /*blocks_host=*/false);
  }

  // The time, on the simulated clock, at which the last rank has come.
  double LatestTime(double now_us, std::optional<int> peer) {
    Tensors own{at::full({1}, now_us, at::kDouble)};
    if (!peer.has_value()) {
      c10d::AllreduceOptions options;
      options.reduceOp = c10d::ReduceOp::MAX;
      gloo_->allreduce(own, options)->wait();
      return own[0].item<double>();
    }
    Tensors other{at::empty({1}, at::kDouble)};
    const WorkPtr sent = gloo_->send(own, *peer, kPairTag);
    gloo_->recv(other, *peer, kPairTag)->wait();
    sent->wait();
    return std::max(now_us, other[0].item<double>());
  }

  bool IsOnOneMachine(std::optional<int> peer) const {
    const auto machine = [this](int rank) {
      return ranks_[static_cast<size_t>(rank)] /
             static_cast<uint64_t>(options().ranks_per_machine);
    };
    if (peer.has_value()) return machine(*peer) == machine(getRank());
    for (int rank = 0; rank < getSize(); ++rank) {
      if (machine(rank) != machine(0)) return false;
    }
    return true;
  }

  // The communicator for this rank and `peer`, or for the group.
  std::shared_ptr<Communicator> CommunicatorWith(std::optional<int> peer,
                                                 c10::DeviceIndex device) {
    std::shared_ptr<Communicator>& found = communicators_[peer];
    if (found) return found;
    std::string name = name_;
    std::vector<int> members(static_cast<size_t>(getSize()));
    std::iota(members.begin(), members.end(), 0);
    if (peer.has_value()) {
      members = {std::min(*peer, getRank()), std::max(*peer, getRank())};
      absl::StrAppend(&name, " ", members[0], ":", members[1]);
    }
    found = std::make_shared<Communicator>(name, *store_, getRank(), members,
                                           device);
    return found;
  }

  WorkPtr Issue(const std::string& operation, std::optional<int> peer,
                Tensors inputs, Tensors outputs, bool is_async,
                Transfer transfer, bool blocks_host) {
    std::vector<Access> accesses;
    std::vector<Alias> from, to;
    for (const at::Tensor& tensor : inputs) {
      CheckTensor(operation, tensor);
      accesses.push_back(Reads(tensor));
      from.emplace_back(tensor);
    }
    for (const at::Tensor& tensor : outputs) {
      CheckTensor(operation, tensor);
      accesses.push_back(Writes(tensor));
      to.emplace_back(tensor);
    }
    const c10::DeviceIndex device =
        (inputs.empty() ? outputs : inputs).front().device().index();
    const std::shared_ptr<Communicator> communicator =
        CommunicatorWith(peer, device);
    c10::Stream stream = CurrentStream(device);
    if (is_async) {
      Simulation::Event ready;
      Simulation::Get().Record(ready, stream);
      stream = communicator->stream();
      Simulation::Get().MakeWait(stream, ready);
    }
    const std::string name = absl::StrCat("nccl ", operation);
    const uint64_t ticket = communicator->TakeTicket();
    const auto self = c10::intrusive_ptr<NcclBackend>::reclaim_copy(this);
    if (options().clock) {
      const double micros = CollectiveMicros(
          operation, std::max(NumBytes(inputs), NumBytes(outputs)),
          peer.has_value() ? 2 : getSize(), IsOnOneMachine(peer));
      Simulation::Get().IssueTimed(
          stream, name, accesses,
          [communicator, ticket, peer, micros, self](double now_us) {
            double begin_us = now_us;
            communicator->Run(
                ticket, [&] { begin_us = self->LatestTime(now_us, peer); });
            return Simulation::Period{.begin_us = begin_us,
                                      .end_us = begin_us + micros};
          });
    } else {
      Simulation::Get().Issue(stream, name, accesses,
                              [communicator, ticket, from, to,
                               transfer = std::move(transfer), self] {
                                communicator->Run(ticket, [&] {
                                  Tensors in, out;
                                  for (const Alias& alias : from)
                                    in.push_back(alias.OnCpu());
                                  for (const Alias& alias : to)
                                    out.push_back(alias.OnCpu());
                                  transfer(in, out);
                                });
                              });
    }
    if (!is_async) return nullptr;
    inputs.insert(inputs.end(), outputs.begin(), outputs.end());
    return c10::make_intrusive<StreamWork>(stream, std::move(inputs),
                                           blocks_host);
  }

  const std::string name_;
  const std::vector<uint64_t> ranks_;  // in the default group
  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<Options> options_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  std::map<std::optional<int>, std::shared_ptr<Communicator>> communicators_;
  std::optional<std::vector<Message>> together_;
};

[[maybe_unused]] const bool kRegistered =
    options().enabled &&
    fsdp::RegisterBackend(
        {.name = "nccl",
         .device_type = kType,
         .type = c10d::ProcessGroup::BackendType::NCCL,
         .is_available = [] { return options().num_devices > 0; },
         .make = [](const fsdp::BackendRequest& request)
             -> c10::intrusive_ptr<c10d::Backend> {
           const int64_t index = fsdp::ChooseDeviceIndex(
               request.local_rank, options().num_devices, fsdp::GetEnvironment);
           c10::impl::getDeviceGuardImpl(kType)->setDevice(
               {kType, static_cast<c10::DeviceIndex>(index)});
           return c10::make_intrusive<NcclBackend>(request);
         }});

}  // namespace
}  // namespace sim
