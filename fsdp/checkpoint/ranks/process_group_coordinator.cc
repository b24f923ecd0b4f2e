// SPDX-License-Identifier: Apache-2.0
// [Note: messages] Gather and Scatter move texts of any length, mostly short
// ones. For every text, one Gloo collective sends an envelope with a fixed
// size: the text's length and as much text as fits. Only ranks with a longer
// text send the rest, from rank to rank.
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/full.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/mesh/backend_registry.h"
#include "fsdp/mesh/collective_errors.h"
#include "torch/csrc/distributed/c10d/PrefixStore.hpp"

namespace fsdp {
namespace {

constexpr int64_t kEnvelopeBytes = 256;
constexpr uint64_t kInlineBytes = kEnvelopeBytes - sizeof(uint64_t);
constexpr int kGatherTag = 1;
constexpr int kScatterTag = 2;
constexpr int kTransferTag = 3;

at::Tensor Wrap(const void* data, uint64_t size) {
  return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(size)},
                       at::kByte);
}

at::Tensor EmptyEnvelope() { return at::empty({kEnvelopeBytes}, at::kByte); }

at::Tensor MakeEnvelope(const std::string& text) {
  at::Tensor envelope = EmptyEnvelope();
  auto* const bytes = envelope.mutable_data_ptr<uint8_t>();
  const uint64_t length = text.size();
  std::memset(bytes, 0, kEnvelopeBytes);
  std::memcpy(bytes, &length, sizeof(length));
  std::memcpy(bytes + sizeof(length), text.data(),
              std::min(length, kInlineBytes));
  return envelope;
}

// A string with the text's full length that begins with the envelope's part.
std::string BeginText(const at::Tensor& envelope) {
  const auto* const bytes = envelope.const_data_ptr<uint8_t>();
  uint64_t length = 0;
  std::memcpy(&length, bytes, sizeof(length));
  std::string text(length, '\0');
  std::memcpy(text.data(), bytes + sizeof(length),
              std::min(length, kInlineBytes));
  return text;
}

bool HasRest(const std::string& text) { return text.size() > kInlineBytes; }

at::Tensor TextRest(const std::string& text) {
  return Wrap(text.data() + kInlineBytes, text.size() - kInlineBytes);
}

// How many coordinators were made for a group so far: the same number on each
// rank, because all make the same calls.
int64_t NextNumber(const std::string& group_name) {
  static auto* const numbers = new absl::flat_hash_map<std::string, int64_t>();
  return (*numbers)[group_name]++;
}

ProcessGroup MakeGloo(const ProcessGroup& parent, const std::string& purpose) {
  const std::vector<int64_t> ranks = get_process_group_ranks(parent);
  const std::string name = absl::StrCat("dcp/", parent->getGroupName(), "/",
                                        NextNumber(parent->getGroupName()));
  const BackendKind* gloo = FindBackend("gloo");
  TORCH_CHECK(gloo != nullptr, "the backend \"gloo\" is not registered");
  auto store = c10::make_intrusive<c10d::PrefixStore>(name, job_store());
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, parent->getRank(),
                                                       parent->getSize());
  group->setGroupDesc(purpose);
  const std::chrono::milliseconds timeout =
      parent->getBackend(parent->getDeviceTypes().front().type())
          ->getBackendOptions()
          ->timeout;
  c10::intrusive_ptr<c10d::Backend> backend;
  WithContext(
      [&] { return absl::StrCat(describe(*group), " could not be connected"); },
      [&] {
        backend = gloo->make(
            {.store = store,
             .rank = parent->getRank(),
             .size = parent->getSize(),
             .name = name,
             .ranks = std::vector<uint64_t>(ranks.begin(), ranks.end()),
             .timeout = timeout,
             .local_rank = get_local_rank()});
      });
  group->setBackend(c10::DeviceType::CPU, gloo->type, backend);
  group->setDefaultBackend(gloo->type);
  group->setGroupName(name);
  group->setGroupDesc(purpose);
  return group;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroupCoordinator>>
ProcessGroupCoordinator::Make(const ProcessGroup& group,
                              const std::string& purpose) {
  if (!group && !is_initialized()) {
    return std::unique_ptr<ProcessGroupCoordinator>(
        new ProcessGroupCoordinator(nullptr));
  }
  return CatchTorch([&] {
    const ProcessGroup parent = group ? group : world_group();
    return std::unique_ptr<ProcessGroupCoordinator>(new ProcessGroupCoordinator(
        parent->getSize() == 1 ? nullptr : MakeGloo(parent, purpose)));
  });
}

absl::StatusOr<std::shared_ptr<ProcessGroupCoordinator>>
ProcessGroupCoordinator::ForTraining(const ProcessGroup& group) {
  using Parent = c10::weak_intrusive_ptr<c10d::ProcessGroup>;
  // Weak pointers, because the cache must not keep a destroyed group alive or
  // mistake another group at the same address for it. The cache is never
  // destroyed, because a group with hanging collectives would keep the process
  // from ending.
  static auto* const cache = new std::vector<
      std::pair<Parent, std::shared_ptr<ProcessGroupCoordinator>>>();
  const ProcessGroup parent =
      group || !is_initialized() ? group : world_group();
  if (!parent) return Make(nullptr, "checkpoint");
  std::erase_if(*cache,
                [](const auto& entry) { return entry.first.expired(); });
  for (const auto& [of_group, coordinator] : *cache) {
    if (of_group.lock() == parent) return coordinator;
  }
  DCP_ASSIGN_OR_RETURN(std::shared_ptr<ProcessGroupCoordinator> coordinator,
                       Make(parent, "checkpoint"));
  cache->emplace_back(Parent(parent), coordinator);
  return coordinator;
}

c10d::Backend& ProcessGroupCoordinator::gloo() const {
  return *group_->getBackend(c10::DeviceType::CPU);
}

int64_t ProcessGroupCoordinator::rank() const {
  return group_ ? group_->getRank() : 0;
}

int64_t ProcessGroupCoordinator::num_ranks() const {
  return group_ ? group_->getSize() : 1;
}

absl::StatusOr<std::vector<std::string>> ProcessGroupCoordinator::Gather(
    std::string value) {
  if (!group_) return std::vector<std::string>{std::move(value)};
  return CatchTorch([&] {
    std::vector<std::string> texts;
    std::vector<std::vector<at::Tensor>> envelopes;
    if (rank() == 0) {
      envelopes.emplace_back();
      for (int64_t i = 0; i < num_ranks(); ++i) {
        envelopes[0].push_back(EmptyEnvelope());
      }
    }
    std::vector<at::Tensor> own{MakeEnvelope(value)};
    IssueAndWait(*group_, "gather",
                 [&] { return gloo().gather(envelopes, own, {}); });
    if (rank() != 0) {
      if (!HasRest(value)) return texts;
      std::vector<at::Tensor> rest{TextRest(value)};
      IssueAndWait(*group_, "gather",
                   [&] { return gloo().send(rest, 0, kGatherTag); });
      return texts;
    }
    for (const at::Tensor& envelope : envelopes[0]) {
      texts.push_back(BeginText(envelope));
    }
    texts[0] = std::move(value);
    for (size_t i = 1; i < texts.size(); ++i) {
      if (!HasRest(texts[i])) continue;
      std::vector<at::Tensor> rest{TextRest(texts[i])};
      IssueAndWait(*group_, "gather", [&] {
        return gloo().recv(rest, static_cast<int>(i), kGatherTag);
      });
    }
    return texts;
  });
}

absl::StatusOr<std::string> ProcessGroupCoordinator::Scatter(
    std::vector<std::string> values) {
  if (rank() == 0) {
    DCP_CHECK(values.size() == static_cast<size_t>(num_ranks()),
              "values=", values.size());
  }
  if (!group_) return std::move(values[0]);
  return CatchTorch([&] {
    std::vector<std::vector<at::Tensor>> envelopes;
    if (rank() == 0) {
      envelopes.emplace_back();
      for (const std::string& value : values) {
        envelopes[0].push_back(MakeEnvelope(value));
      }
    }
    std::vector<at::Tensor> own{EmptyEnvelope()};
    IssueAndWait(*group_, "scatter",
                 [&] { return gloo().scatter(own, envelopes, {}); });
    if (rank() != 0) {
      std::string text = BeginText(own[0]);
      if (!HasRest(text)) return text;
      std::vector<at::Tensor> rest{TextRest(text)};
      IssueAndWait(*group_, "scatter",
                   [&] { return gloo().recv(rest, 0, kScatterTag); });
      return text;
    }
    for (size_t i = 1; i < values.size(); ++i) {
      if (!HasRest(values[i])) continue;
      std::vector<at::Tensor> rest{TextRest(values[i])};
      IssueAndWait(*group_, "scatter", [&] {
        return gloo().send(rest, static_cast<int>(i), kScatterTag);
      });
    }
    return std::move(values[0]);
  });
}

absl::StatusOr<std::string> ProcessGroupCoordinator::Broadcast(
    std::string value) {
  std::vector<std::string> values;
  if (rank() == 0) values.assign(static_cast<size_t>(num_ranks()), value);
  return Scatter(std::move(values));
}

absl::StatusOr<bool> ProcessGroupCoordinator::Any(bool mine) {
  if (!group_) return mine;
  return CatchTorch([&] {
    std::vector<at::Tensor> flag{at::full({1}, mine ? 1 : 0, at::kByte)};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    IssueAndWait(*group_, "all-reduce",
                 [&] { return gloo().allreduce(flag, options); });
    return flag[0].item<uint8_t>() != 0;
  });
}

absl::StatusOr<ProcessGroupCoordinator::Transfer> ProcessGroupCoordinator::Send(
    int64_t dst, dcp::ByteSpan bytes) {
  return CatchTorch([&] {
    std::vector<at::Tensor> tensors{Wrap(bytes.data(), bytes.size())};
    return Transfer(IssueWork(*group_, "transfer",
                              [&] {
                                return gloo().send(tensors,
                                                   static_cast<int>(dst),
                                                   kTransferTag);
                              }),
                    group_);
  });
}

absl::StatusOr<ProcessGroupCoordinator::Transfer>
ProcessGroupCoordinator::Receive(int64_t src, dcp::MutableByteSpan bytes) {
  return CatchTorch([&] {
    std::vector<at::Tensor> tensors{Wrap(bytes.data(), bytes.size())};
    return Transfer(IssueWork(*group_, "transfer",
                              [&] {
                                return gloo().recv(tensors,
                                                   static_cast<int>(src),
                                                   kTransferTag);
                              }),
                    group_);
  });
}

absl::Status ProcessGroupCoordinator::Transfer::Wait() {
  const c10::intrusive_ptr<c10d::Work> work = std::exchange(work_, nullptr);
  if (!work) return absl::OkStatus();
  return CatchTorch([&] { WaitForWork(work, *group_, "transfer"); });
}

}  // namespace fsdp
