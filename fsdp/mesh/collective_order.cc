// SPDX-License-Identifier: Apache-2.0

#include "fsdp/mesh/collective_order.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "fsdp/mesh/collective_errors.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace fsdp {
namespace {

bool IsSet(const char* variable, const char* text) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::strcmp(value, text) == 0;
}

std::atomic<bool>& DebugMode() {
  static std::atomic<bool> enabled = IsSet("TESSERA_FSDP_DEBUG", "1");
  return enabled;
}

std::atomic<bool>& OrderCheck() {
  static std::atomic<bool> enabled = !IsSet("TESSERA_FSDP_ORDER_CHECK", "0");
  return enabled;
}

// The message that a rank sends to a neighbour before a collective.
struct Message {
  uint64_t number;       // among this group's collectives
  uint64_t fingerprint;  // hash of the whole text of the collective
  char text[232];        // collective and reason, truncated; zero-terminated
  uint64_t has_arrived;  // not zero; TCP delivers it last
};
static_assert(std::is_trivially_copyable_v<Message> && sizeof(Message) == 256);

// This rank's collective, and the neighbour's message with the same number.
struct Unread {
  uint64_t number;
  std::string collective;
  std::string reason;
  at::Tensor message;
  c10::intrusive_ptr<c10d::Work> receiving;
};

// The check's state for one process group.
struct Channel {
  // Weak, so that it neither keeps the group alive nor mistakes another group
  // at the same address for it.
  c10::weak_intrusive_ptr<c10d::ProcessGroup> group;
  uint64_t number = 0;  // the next collective's number
  bool has_gloo = false;
  std::deque<Unread> unread;
  std::deque<c10::intrusive_ptr<c10d::Work>> sending;
};

// A group's collectives come from one thread at a time. Only that thread uses
// the group's channel, except for `unread`: a backward on another thread may
// take that.
struct Channels {
  std::mutex mutex;  // not held while waiting for a neighbour
  std::unordered_map<const c10d::ProcessGroup*, Channel> by_group;
};

Channels& AllChannels() {
  static auto* const channels = new Channels;
  return *channels;
}

bool HasGloo(c10d::ProcessGroup& group) {
  const auto types = group.getDeviceTypes();
  return std::any_of(types.begin(), types.end(),
                     [](c10::Device device) { return device.is_cpu(); }) &&
         group.getBackend(c10::kCPU)->getBackendName() == "gloo";
}

Channel& ChannelFor(const ProcessGroup& group) {
  Channels& channels = AllChannels();
  const std::lock_guard<std::mutex> lock(channels.mutex);
  const auto found = channels.by_group.find(group.get());
  if (found != channels.by_group.end()) return found->second;
  std::erase_if(channels.by_group,
                [](const auto& item) { return item.second.group.expired(); });
  return channels.by_group
      .emplace(
          group.get(),
          Channel{.group = c10::weak_intrusive_ptr<c10d::ProcessGroup>(group),
                  .has_gloo = HasGloo(*group),
                  .unread = {},
                  .sending = {}})
      .first->second;
}

std::string RankIsAt(int64_t rank, const std::string& collective,
                     const std::string& reason) {
  return absl::StrCat("rank ", rank, " is at the ", collective, " for ",
                      reason);
}

// Advice for the user, based on the two collectives that two ranks announced.
std::string Advice(const std::string& mine, const std::string& other) {
  const bool differ_in_gradients =
      (absl::StrContains(mine, kWithoutGradients) ||
       absl::StrContains(other, kWithoutGradients)) &&
      mine.substr(0, mine.find(kWithoutGradients)) ==
          other.substr(0, other.find(kWithoutGradients));
  return differ_in_gradients
             ? ". Where ranks use different parameters of a group, such as "
               "experts without tokens, call "
               "set_reduce_scatter_unused_params(true) "
               "on its FSDPModule"
             : ". Every rank must make the same calls in the same order";
}

int PreviousRank(const c10d::ProcessGroup& ranks) {
  return (ranks.getRank() + ranks.getSize() - 1) % ranks.getSize();
}

// Describes the awaited ranks, for errors while messages are sent or received.
std::string WaitingFor(const c10d::ProcessGroup& ranks,
                       const std::string& collective,
                       const std::string& reason) {
  return absl::StrCat(collective, " for ", reason, " (waiting for rank ",
                      PreviousRank(ranks), ")");
}

// Tells the next rank about this collective, and begins to receive the previous
// rank's message.
Unread Post(const ProcessGroup& ranks, Channel& channel, uint64_t number,
            const std::string& collective, const std::string& reason) {
  Message mine = {.number = number,
                  .fingerprint = std::hash<std::string>()(collective),
                  .text = {},
                  .has_arrived = 1};
  absl::StrCat(collective, "\n", reason).copy(mine.text, sizeof(mine.text) - 1);
  const auto options = at::TensorOptions(at::kByte).device(at::kCPU);
  const int64_t size = sizeof(Message);
  std::vector<at::Tensor> out{at::empty({size}, options)};
  std::vector<at::Tensor> in{at::zeros({size}, options)};
  std::memcpy(out[0].mutable_data_ptr(), &mine, sizeof(mine));
  const auto operation = [&] { return WaitingFor(*ranks, collective, reason); };
  const auto gloo = ranks->getBackend(c10::kCPU);
  channel.sending.push_back(IssueWork(*ranks, operation, [&] {
    return gloo->send(out, (ranks->getRank() + 1) % ranks->getSize(),
                      kOrderCheckTag);
  }));
  return {.number = number,
          .collective = collective,
          .reason = reason,
          .message = in[0],
          .receiving = IssueWork(*ranks, operation, [&] {
            return gloo->recv(in, PreviousRank(*ranks), kOrderCheckTag);
          })};
}

// Waits until the next rank has received all messages but the latest
// `num_left`.
void FinishSending(const ProcessGroup& ranks, Channel& channel, size_t num_left,
                   const std::string& collective, const std::string& reason) {
  while (channel.sending.size() > num_left) {
    const auto work = std::move(channel.sending.front());
    channel.sending.pop_front();
    WaitForWork(work, *ranks,
                [&] { return WaitingFor(*ranks, collective, reason); });
  }
}

// Whether the message can be read without a wait. Gloo cannot tell, so this
// looks at the memory in which the message arrives. It is a hint: Compare waits
// for gloo, which orders the message's bytes.
bool HasArrived(const Unread& unread) {
  auto* const message = static_cast<Message*>(unread.message.data_ptr());
  return std::atomic_ref<uint64_t>(message->has_arrived).load() != 0;
}

// Waits for the message and compares it with this rank's own.
void Compare(const ProcessGroup& ranks, const Unread& unread) {
  const auto gloo = ranks->getBackend(c10::kCPU);
  IssueWork(
      *ranks,
      [&] { return WaitingFor(*ranks, unread.collective, unread.reason); },
      [&] {
        // Without an argument, wait would use the timeout with which the group
        // was made.
        unread.receiving->wait(gloo->getBackendOptions()->timeout);
        return unread.receiving;
      });
  Message theirs;
  std::memcpy(&theirs, unread.message.const_data_ptr(), sizeof(theirs));
  if (theirs.number == unread.number &&
      theirs.fingerprint == std::hash<std::string>()(unread.collective)) {
    return;
  }
  theirs.text[sizeof(theirs.text) - 1] = '\0';
  const std::pair<std::string, std::string> said =
      absl::StrSplit(theirs.text, absl::MaxSplits('\n', 1));
  TORCH_CHECK(
      false, "fsdp: ", describe(*ranks), " and its neighbour have diverged: ",
      RankIsAt(ranks->getRank(), unread.collective, unread.reason),
      ", collective ", unread.number, "; ",
      RankIsAt(PreviousRank(*ranks), said.first, said.second), ", collective ",
      theirs.number, Advice(unread.collective, said.first));
}

// The oldest message, if more than `num_left` are unread or it has come.
std::optional<Unread> TakeUnread(Channel& channel, size_t num_left) {
  const std::lock_guard<std::mutex> lock(AllChannels().mutex);
  std::deque<Unread>& unread = channel.unread;
  if (unread.empty()) return std::nullopt;
  if (unread.size() <= num_left && !HasArrived(unread.front())) {
    return std::nullopt;
  }
  Unread oldest = std::move(unread.front());
  unread.pop_front();
  return oldest;
}

// Compares the messages that have arrived. Waits for others until at most
// `num_left` are unread.
void ReadAll(const ProcessGroup& ranks, Channel& channel, size_t num_left) {
  while (const std::optional<Unread> unread = TakeUnread(channel, num_left)) {
    Compare(ranks, *unread);
  }
}

void CheckNeighbor(const ProcessGroup& ranks, uint64_t number, Channel& channel,
                   bool may_be_ahead, const std::string& collective,
                   const std::string& reason) {
  const size_t num_left = may_be_ahead ? kMaxUnread : 0;
  FinishSending(ranks, channel, num_left, collective, reason);
  Unread own = Post(ranks, channel, number, collective, reason);
  {
    const std::lock_guard<std::mutex> lock(AllChannels().mutex);
    channel.unread.push_back(std::move(own));
  }
  ReadAll(ranks, channel, num_left);
}

std::string Key(const std::string& group, uint64_t number, int64_t rank) {
  return absl::StrCat("in_step/", group, "/", number, "/", rank);
}

std::vector<uint8_t> AsBytes(const std::string& text) {
  return {text.begin(), text.end()};
}

void CheckAllRanks(const ProcessGroup& ranks, uint64_t number,
                   const std::string& collective, const std::string& reason) {
  const auto store = job_store();
  const std::string name = key_of(ranks);
  std::vector<std::string> missing;
  std::vector<std::string> said;
  std::string other;
  const auto compare = [&] {
    store->set(Key(name, number, ranks->getRank()),
               AsBytes(absl::StrCat(collective, "\n", reason)));
    for (int64_t rank = 0; rank < ranks->getSize(); ++rank) {
      const std::string key = Key(name, number, rank);
      if (!CatchErrorText([&] { store->wait({key}); }).empty()) {
        missing.push_back(absl::StrCat("rank ", rank));
        continue;
      }
      const std::vector<uint8_t> bytes = store->get(key);
      const std::string text(bytes.begin(), bytes.end());
      const size_t end = text.find('\n');
      if (text.substr(0, end) != collective) other = text.substr(0, end);
      said.push_back(RankIsAt(rank, text.substr(0, end), text.substr(end + 1)));
    }
    // The other ranks have read the keys of two collectives ago.
    if (number >= 2) {
      store->deleteKey(Key(name, number - 2, ranks->getRank()));
    }
  };
  WithContext(
      [&] {
        return absl::StrCat(describe(*ranks),
                            ": asking the job's store before the ", collective,
                            " failed");
      },
      compare);
  TORCH_CHECK(missing.empty(), "fsdp: ", describe(*ranks), " is at the ",
              collective, " for ", reason,
              ", but these never came: ", absl::StrJoin(missing, ", "));
  TORCH_CHECK(other.empty(), "fsdp: the ranks of ", describe(*ranks),
              " have diverged at collective ", number, ": ",
              absl::StrJoin(said, "; "), Advice(collective, other));
}

}  // namespace

void set_debug_mode(bool enabled) { DebugMode() = enabled; }

bool debug_mode() { return DebugMode(); }

void set_order_check(bool enabled) { OrderCheck() = enabled; }

bool order_check() { return OrderCheck(); }

void CheckInStep(const ProcessGroup& ranks, c10::DeviceType device,
                 const std::string& collective, const std::string& reason) {
  if (ranks->getSize() == 1 || (!debug_mode() && !order_check())) return;
  Channel& channel = ChannelFor(ranks);
  const uint64_t number = channel.number++;
  if (debug_mode()) {
    CheckAllRanks(ranks, number, collective, reason);
  } else if (channel.has_gloo) {
    CheckNeighbor(ranks, number, channel,
                  /*may_be_ahead=*/device != c10::DeviceType::CPU, collective,
                  reason);
  }
}

void FinishOrderCheck() {
  std::vector<std::pair<ProcessGroup, Channel*>> behind;
  {
    Channels& channels = AllChannels();
    const std::lock_guard<std::mutex> lock(channels.mutex);
    for (auto& [key, channel] : channels.by_group) {
      ProcessGroup group = channel.group.lock();
      if (!group || channel.unread.empty()) continue;
      behind.emplace_back(std::move(group), &channel);
    }
  }
  for (const auto& [group, channel] : behind) ReadAll(group, *channel, 0);
}

}  // namespace fsdp
