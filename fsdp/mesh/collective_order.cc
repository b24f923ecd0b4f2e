#include "fsdp/mesh/collective_order.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
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

// What one rank tells its neighbour before a collective.
struct Message {
  uint64_t number;       // among the collectives of this group
  uint64_t fingerprint;  // of the collective's whole text
  char text[240];        // collective and reason, truncated; zero-terminated
};
static_assert(std::is_trivially_copyable_v<Message> && sizeof(Message) == 256);

// What the check keeps for a process group.
struct Channel {
  // Weak, so that it neither keeps the group alive nor mistakes another group
  // at its address for it.
  c10::weak_intrusive_ptr<c10d::ProcessGroup> group;
  uint64_t number = 0;  // of its next collective
  bool has_gloo = false;
  at::Tensor out, in;  // of the message in flight
  c10::intrusive_ptr<c10d::Work> sending;
};

bool HasGloo(c10d::ProcessGroup& group) {
  const auto types = group.getDeviceTypes();
  return std::any_of(types.begin(), types.end(),
                     [](c10::Device device) { return device.is_cpu(); }) &&
         group.getBackend(c10::kCPU)->getBackendName() == "gloo";
}

// The collectives of one group come from one thread at a time.
Channel& ChannelOf(const ProcessGroup& group) {
  using Channels = std::unordered_map<const c10d::ProcessGroup*, Channel>;
  static auto* const mutex = new std::mutex;
  static auto* const channels = new Channels;
  const std::lock_guard<std::mutex> lock(*mutex);
  const auto found = channels->find(group.get());
  if (found != channels->end()) return found->second;
  std::erase_if(*channels,
                [](const auto& item) { return item.second.group.expired(); });
  const auto options = at::TensorOptions(at::kByte).device(at::kCPU);
  const int64_t size = sizeof(Message);
  return channels
      ->emplace(
          group.get(),
          Channel{.group = c10::weak_intrusive_ptr<c10d::ProcessGroup>(group),
                  .has_gloo = HasGloo(*group),
                  .out = at::empty({size}, options),
                  .in = at::empty({size}, options),
                  .sending = nullptr})
      .first->second;
}

std::string RankIsAt(int64_t rank, const std::string& collective,
                     const std::string& reason) {
  return absl::StrCat("rank ", rank, " is at the ", collective, " for ",
                      reason);
}

// Advice for the user, based on what two ranks are about to do.
std::string Advice(const std::string& mine, const std::string& other) {
  const bool differ_in_gradients =
      (absl::StrContains(mine, kWithoutGradients) ||
       absl::StrContains(other, kWithoutGradients)) &&
      mine.substr(0, mine.find(kWithoutGradients)) ==
          other.substr(0, other.find(kWithoutGradients));
  return differ_in_gradients
             ? ". Where ranks use different parameters of a group, such as "
               "experts without tokens, call set_zero_missing_gradients(true) "
               "on its FSDPModule"
             : ". Every rank must make the same calls in the same order";
}

void CheckNeighbor(const ProcessGroup& ranks, uint64_t number, Channel& channel,
                   const std::string& collective, const std::string& reason) {
  const int rank = ranks->getRank();
  const int size = ranks->getSize();
  const int previous = (rank + size - 1) % size;
  const auto operation = [&] {
    return absl::StrCat(collective, " for ", reason, " (waiting for rank ",
                        previous, ")");
  };
  WaitForWork(std::exchange(channel.sending, nullptr), *ranks, operation);
  Message mine = {.number = number,
                  .fingerprint = std::hash<std::string>()(collective),
                  .text = {}};
  absl::StrCat(collective, "\n", reason).copy(mine.text, sizeof(mine.text) - 1);
  std::memcpy(channel.out.mutable_data_ptr(), &mine, sizeof(mine));
  std::vector<at::Tensor> out{channel.out};
  std::vector<at::Tensor> in{channel.in};
  const auto gloo = ranks->getBackend(c10::kCPU);
  channel.sending = IssueWork(*ranks, operation, [&] {
    return gloo->send(out, (rank + 1) % size, kOrderCheckTag);
  });
  IssueWork(*ranks, operation, [&] {
    const auto work = gloo->recv(in, previous, kOrderCheckTag);
    // Without an argument, wait would use the timeout with which the group was
    // made.
    work->wait(gloo->getBackendOptions()->timeout);
    return work;
  });
  Message theirs;
  std::memcpy(&theirs, channel.in.const_data_ptr(), sizeof(theirs));
  if (theirs.number == mine.number && theirs.fingerprint == mine.fingerprint) {
    return;
  }
  theirs.text[sizeof(theirs.text) - 1] = '\0';
  const std::pair<std::string, std::string> said =
      absl::StrSplit(theirs.text, absl::MaxSplits('\n', 1));
  TORCH_CHECK(false, "fsdp: ", describe(*ranks),
              " and its neighbour have diverged: ",
              RankIsAt(rank, collective, reason), ", collective ", mine.number,
              "; ", RankIsAt(previous, said.first, said.second),
              ", collective ", theirs.number, Advice(collective, said.first));
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
  // Slices of one mesh have groups with the same name; the first member tells
  // them apart.
  const std::string name = absl::StrCat(ranks->getGroupName(), ".",
                                        get_process_group_ranks(ranks).front());
  std::vector<std::string> missing;
  std::vector<std::string> said;
  std::string other;
  const auto compare = [&] {
    store->set(Key(name, number, ranks->getRank()),
               AsBytes(absl::StrCat(collective, "\n", reason)));
    for (int64_t rank = 0; rank < ranks->getSize(); ++rank) {
      const std::string key = Key(name, number, rank);
      if (!ErrorTextOf([&] { store->wait({key}); }).empty()) {
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
                            ": asking the job's store before "
                            "the ",
                            collective, " failed");
      },
      compare);
  TORCH_CHECK(missing.empty(), "fsdp: ", describe(*ranks), " is at the ",
              collective, " for ", reason,
              ", but never came: ", absl::StrJoin(missing, ", "));
  TORCH_CHECK(other.empty(), "fsdp: the ranks of ", describe(*ranks),
              " have diverged at collective ", number, ": ",
              absl::StrJoin(said, "; "), Advice(collective, other));
}

}  // namespace

void set_debug_mode(bool enabled) { DebugMode() = enabled; }

bool debug_mode() { return DebugMode(); }

void set_order_check(bool enabled) { OrderCheck() = enabled; }

bool order_check() { return OrderCheck(); }

void CheckInStep(const ProcessGroup& ranks, const std::string& collective,
                 const std::string& reason) {
  if (ranks->getSize() == 1 || (!debug_mode() && !order_check())) return;
  Channel& channel = ChannelOf(ranks);
  const uint64_t number = channel.number++;
  if (debug_mode()) {
    CheckAllRanks(ranks, number, collective, reason);
  } else if (channel.has_gloo) {
    CheckNeighbor(ranks, number, channel, collective, reason);
  }
}

}  // namespace fsdp
