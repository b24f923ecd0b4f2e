// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/ranks/replica_exchange.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ATen/ops/empty.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/engine/lazy/shard_use.h"
#include "fsdp/mesh/mesh_collectives.h"

namespace fsdp {
namespace {

// Tensors smaller than this share a broadcast.
constexpr uint64_t kPackedBytes = uint64_t{1} << 20;
// More steps overlap more, but each has to begin and to end.
constexpr size_t kNumSteps = 4;
// In a greeting, for replicas that do not say where bytes are cached.
constexpr char kNotCached[] = "-";

// Whether `group` can move tensors on this device.
bool Serves(const ProcessGroup& group, const at::Tensor& tensor) {
  const std::vector<c10::Device> devices = group->getDeviceTypes();
  return std::any_of(devices.begin(), devices.end(), [&](c10::Device device) {
    return device.type() == tensor.device().type();
  });
}

bool TravelsAlone(const at::Tensor& tensor) {
  return tensor.is_contiguous() && tensor.nbytes() >= kPackedBytes;
}

// The description that must be equal on all ranks that exchange a tensor.
std::string TensorDescription(const TargetTensor& tensor) {
  std::string text =
      absl::StrCat(tensor.fqn, "\n", dcp::TorchName(tensor.dtype),
                   dcp::ShapeToString(tensor.shape),
                   TravelsAlone(tensor.local) ? "alone" : "packed",
                   static_cast<int>(tensor.local.device().type()));
  if (tensor.spec.has_value()) {
    absl::StrAppend(&text, to_string(tensor.spec->placements),
                    absl::StrJoin(tensor.spec->mesh.shape(), ","), ":",
                    absl::StrJoin(tensor.spec->mesh.ranks(), ","));
  }
  return absl::StrCat(text, "\n");
}

// A greeting, and rank 0's answer, begin with "<code> <bytes of message>" and
// the message, a line each. In a greeting, a line follows for every set:
// "<digest> <cached as> <rank>,<rank>,...". In an answer, the step count
// follows, and the ranks in each set that exchanges, a line each.
struct Parsed {
  absl::Status status;
  std::vector<std::vector<std::string>> lines;  // each line's words
};

absl::StatusOr<Parsed> Parse(absl::string_view text) {
  const absl::Status bad = absl::DataLossError(
      "expected the greeting of a rank, found something else");
  const std::pair<absl::string_view, absl::string_view> head =
      absl::StrSplit(text, absl::MaxSplits('\n', 1));
  const std::pair<absl::string_view, absl::string_view> numbers =
      absl::StrSplit(head.first, absl::MaxSplits(' ', 1));
  int code = 0;
  size_t length = 0;
  if (!absl::SimpleAtoi(numbers.first, &code) ||
      !absl::SimpleAtoi(numbers.second, &length) ||
      length > head.second.size()) {
    return bad;
  }
  Parsed parsed;
  parsed.status = absl::Status(static_cast<absl::StatusCode>(code),
                               head.second.substr(0, length));
  for (const absl::string_view line :
       absl::StrSplit(head.second.substr(length), '\n', absl::SkipEmpty())) {
    parsed.lines.push_back(absl::StrSplit(line, ' '));
  }
  return parsed;
}

absl::StatusOr<Parsed> ParseGreeting(absl::string_view text) {
  DCP_ASSIGN_OR_RETURN(Parsed parsed, Parse(text));
  for (const std::vector<std::string>& line : parsed.lines) {
    if (line.size() != 3) {
      return absl::DataLossError(
          "expected a set of replicas in the greeting of a rank, found "
          "something else");
    }
  }
  return parsed;
}

// Joins all ranks' errors; ranks with the same message are listed together.
absl::Status Join(const std::vector<Parsed>& ranks) {
  std::vector<std::pair<std::string, std::vector<size_t>>> messages;
  absl::StatusCode code = absl::StatusCode::kOk;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const absl::Status& status = ranks[rank].status;
    if (status.ok()) continue;
    if (code == absl::StatusCode::kOk) code = status.code();
    const std::string message(status.message());
    auto it = std::find_if(messages.begin(), messages.end(),
                           [&](const auto& m) { return m.first == message; });
    if (it == messages.end()) it = messages.insert(it, {message, {}});
    it->second.push_back(rank);
  }
  std::vector<std::string> texts;
  for (const auto& [message, who] : messages) {
    texts.push_back(absl::StrCat(who.size() == 1 ? "rank " : "ranks ",
                                 absl::StrJoin(who, ", "), ": ", message));
  }
  return absl::Status(code, absl::StrJoin(texts, "\n"));
}

std::string EncodeHead(const absl::Status& status) {
  return absl::StrCat(static_cast<int>(status.code()), " ",
                      status.message().size(), "\n", status.message(), "\n");
}

// The greetings from a set's members.
struct Votes {
  size_t num_members = 0;
  absl::flat_hash_set<std::string> digests;
  absl::flat_hash_set<std::string> cached_as;

  bool Exchanges(absl::string_view members) const {
    const auto num_named = static_cast<size_t>(
        std::count(members.begin(), members.end(), ',') + 1);
    const bool same_cache =
        cached_as.size() == 1 && *cached_as.begin() != kNotCached;
    return num_members == num_named && digests.size() == 1 && !same_cache;
  }
};

// Rank 0's answers: the joined status, and the sets in which all members gave
// the same digest and do not read from the same cache.
std::vector<std::string> Judge(const std::vector<Parsed>& ranks) {
  absl::flat_hash_map<std::string, Votes> votes;
  for (const Parsed& rank : ranks) {
    for (const std::vector<std::string>& line : rank.lines) {
      Votes& of_set = votes[line[2]];
      ++of_set.num_members;
      of_set.digests.insert(line[0]);
      of_set.cached_as.insert(line[1]);
    }
  }
  const bool any = std::any_of(votes.begin(), votes.end(), [](const auto& set) {
    return set.second.Exchanges(set.first);
  });
  const std::string head =
      absl::StrCat(EncodeHead(Join(ranks)), any ? kNumSteps : 1, "\n");
  std::vector<std::string> answers;
  for (const Parsed& rank : ranks) {
    std::string answer = head;
    for (const std::vector<std::string>& line : rank.lines) {
      if (votes[line[2]].Exchanges(line[2])) {
        absl::StrAppend(&answer, line[2], "\n");
      }
    }
    answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace

absl::StatusOr<ReplicaExchange> ReplicaExchange::Make(
    const LoadTargets* targets, const ProcessGroup& group, bool enabled) {
  ReplicaExchange exchange;
  exchange.targets_ = targets;
  if (targets == nullptr) return exchange;
  exchange.reads_.assign(targets->tensors.size(), true);
  exchange.steps_.assign(targets->tensors.size(), 0);
  if (!enabled || !group) return exchange;
  DCP_RETURN_IF_ERROR(CatchTorch([&] {
    for (size_t i = 0; i < targets->tensors.size(); ++i) exchange.Add(i, group);
  }));
  return exchange;
}

void ReplicaExchange::Add(size_t tensor, const ProcessGroup& group) {
  const TargetTensor& target = targets_->tensors[tensor];
  if (target.local.numel() == 0) return;
  Item item{.tensor = tensor, .axes = {}, .reader = {}};
  std::vector<int64_t> ranks;
  if (!target.spec.has_value()) {
    item.axes.push_back({group, group->getSize(), group->getRank()});
    ranks = get_process_group_ranks(group);
  } else {
    const DeviceMesh& mesh = target.spec->mesh;
    const std::vector<int64_t> own = *mesh.get_coordinate();
    // Indices into the mesh's ranks: the ranks that differ only on replicated
    // axes.
    std::vector<int64_t> indices{0};
    for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
      const size_t a = static_cast<size_t>(axis);
      const bool shared = !target.spec->placements[a].is_shard();
      std::vector<int64_t> next;
      for (const int64_t index : indices) {
        for (int64_t c = 0; c < mesh.size(axis); ++c) {
          if (shared || c == own[a])
            next.push_back(index * mesh.size(axis) + c);
        }
      }
      indices = std::move(next);
      if (shared && mesh.size(axis) > 1) {
        item.axes.push_back({mesh.get_group(axis), mesh.size(axis), own[a]});
      }
    }
    for (const int64_t index : indices) {
      ranks.push_back(mesh.ranks()[static_cast<size_t>(index)]);
    }
  }
  const bool served = std::all_of(
      item.axes.begin(), item.axes.end(),
      [&](const Axis& axis) { return Serves(axis.group, target.local); });
  if (ranks.size() > 1 && served) {
    sets_[std::move(ranks)].items.push_back(std::move(item));
  }
}

std::string ReplicaExchange::Greeting(const absl::Status& mine,
                                      absl::string_view cached_as) const {
  std::string greeting = EncodeHead(mine);
  for (const auto& [ranks, set] : sets_) {
    dcp::Digest64 digest;
    for (const Item& item : set.items) {
      digest.Update(
          dcp::AsBytes(TensorDescription(targets_->tensors[item.tensor])));
    }
    absl::StrAppend(&greeting, digest.Value(), " ",
                    cached_as.empty() ? kNotCached : cached_as, " ",
                    absl::StrJoin(ranks, ","), "\n");
  }
  return greeting;
}

absl::Status ReplicaExchange::Meet(dcp::Coordinator& coordinator,
                                   const absl::Status& mine,
                                   absl::string_view cached_as) {
  DCP_ASSIGN_OR_RETURN(const std::vector<std::string> greetings,
                       coordinator.Gather(Greeting(mine, cached_as)));
  std::vector<Parsed> ranks;
  for (const std::string& greeting : greetings) {
    DCP_ASSIGN_OR_RETURN(Parsed parsed, ParseGreeting(greeting));
    ranks.push_back(std::move(parsed));
  }
  DCP_ASSIGN_OR_RETURN(const std::string answer,
                       coordinator.Scatter(coordinator.rank() == 0
                                               ? Judge(ranks)
                                               : std::vector<std::string>()));
  DCP_ASSIGN_OR_RETURN(const Parsed verdict, Parse(answer));
  DCP_RETURN_IF_ERROR(verdict.status);
  if (verdict.lines.empty() ||
      !absl::SimpleAtoi(verdict.lines[0][0], &num_steps_) || num_steps_ == 0) {
    return absl::DataLossError("rank 0 sent no number of steps");
  }
  absl::flat_hash_set<std::string> agreed;
  for (size_t i = 1; i < verdict.lines.size(); ++i) {
    agreed.insert(verdict.lines[i][0]);
  }
  // Tensors that nobody receives are read while the rest is exchanged.
  steps_.assign(steps_.size(), num_steps_ - 1);
  for (auto& [members, set] : sets_) {
    set.agreed = agreed.contains(absl::StrJoin(members, ","));
    if (set.agreed) ChooseReaders(set);
  }
  return absl::OkStatus();
}

// Each item goes to the replica with the fewest bytes so far, and the steps get
// about equally many bytes. All replicas decide the same, because they have the
// same items.
void ReplicaExchange::ChooseReaders(Set& set) {
  std::map<std::vector<int64_t>, uint64_t> bytes;
  uint64_t all_bytes = 0;
  for (const Item& item : set.items) {
    all_bytes += targets_->tensors[item.tensor].local.nbytes();
  }
  uint64_t bytes_before = 0;
  for (Item& item : set.items) {
    std::vector<int64_t> index(item.axes.size(), 0);
    std::vector<int64_t> own;
    for (const Axis& axis : item.axes) own.push_back(axis.own);
    std::optional<uint64_t> least;
    for (bool more = true; more;) {
      if (!least.has_value() || bytes[index] < *least) {
        least = bytes[index];
        item.reader = index;
      }
      more = false;
      for (size_t a = index.size(); a-- > 0 && !more;) {
        more = ++index[a] < item.axes[a].size;
        if (!more) index[a] = 0;
      }
    }
    const uint64_t num_bytes = targets_->tensors[item.tensor].local.nbytes();
    bytes[item.reader] += num_bytes;
    steps_[item.tensor] =
        std::min<size_t>(static_cast<size_t>(static_cast<double>(bytes_before) /
                                             static_cast<double>(all_bytes) *
                                             static_cast<double>(num_steps_)),
                         num_steps_ - 1);
    bytes_before += num_bytes;
    reads_[item.tensor] = item.reader == own;
  }
}

// Broadcasts along one axis after the other: before each broadcast, the ranks
// that share the reader's index on the remaining axes have the tensor.
void ReplicaExchange::Broadcast(const Item& item,
                                const at::Tensor& bytes) const {
  for (size_t a = 0; a < item.axes.size(); ++a) {
    bool takes_part = true;
    for (size_t b = a + 1; b < item.axes.size(); ++b) {
      takes_part = takes_part && item.axes[b].own == item.reader[b];
    }
    if (takes_part) {
      fsdp::Broadcast(bytes, item.reader[a], item.axes[a].group);
    }
  }
}

void ReplicaExchange::BroadcastPacked(const std::vector<const Item*>& items,
                                      uint64_t window_bytes) const {
  // A window holds whole tensors; a longer tensor has its own window.
  for (size_t first = 0; first < items.size();) {
    uint64_t size = 0;
    size_t end = first;
    for (; end < items.size(); ++end) {
      const at::Tensor& local = targets_->tensors[items[end]->tensor].local;
      if (end > first && size + local.nbytes() > window_bytes) break;
      size += local.nbytes();
    }
    const Item& leader = *items[first];
    const at::Tensor window = at::empty(
        {static_cast<int64_t>(size)},
        targets_->tensors[leader.tensor].local.options().dtype(at::kByte));
    int64_t position = 0;
    const auto piece_of = [&](const at::Tensor& local) {
      const auto length = static_cast<int64_t>(local.nbytes());
      const at::Tensor piece = window.narrow(0, position, length);
      position += length;
      return piece;
    };
    if (reads_[leader.tensor]) {
      for (size_t i = first; i < end; ++i) {
        const at::Tensor local =
            targets_->tensors[items[i]->tensor].local.detach().contiguous();
        piece_of(local).copy_(local.view({-1}).view(at::kByte));
      }
    }
    Broadcast(leader, window);
    position = 0;
    for (size_t i = first; !reads_[leader.tensor] && i < end; ++i) {
      at::Tensor local = targets_->tensors[items[i]->tensor].local.detach();
      // A separate copy is aligned for the type.
      local.copy_(piece_of(local)
                      .clone()
                      .view(local.scalar_type())
                      .view(local.sizes()));
    }
    first = end;
  }
}

void ReplicaExchange::RunSet(const Set& set, size_t step,
                             const absl::flat_hash_set<std::string>& absent,
                             uint64_t window_bytes) const {
  // Groups of small tensors that travel the same way, ordered by first tensor.
  std::vector<std::vector<const Item*>> packed;
  for (const Item& item : set.items) {
    const TargetTensor& target = targets_->tensors[item.tensor];
    if (steps_[item.tensor] != step || absent.contains(target.fqn)) continue;
    if (TravelsAlone(target.local)) {
      if (!reads_[item.tensor]) NoteShardWrite(target.local);
      const at::Tensor bytes = target.local.detach().view({-1}).view(at::kByte);
      const auto window = static_cast<int64_t>(window_bytes);
      for (int64_t i = 0; i < bytes.numel(); i += window) {
        Broadcast(item,
                  bytes.narrow(0, i, std::min(window, bytes.numel() - i)));
      }
      continue;
    }
    const auto same =
        std::find_if(packed.begin(), packed.end(), [&](const auto& items) {
          return items[0]->reader == item.reader &&
                 items[0]->axes == item.axes &&
                 targets_->tensors[items[0]->tensor].local.device() ==
                     target.local.device();
        });
    if (same != packed.end()) {
      same->push_back(&item);
    } else {
      packed.push_back({&item});
    }
  }
  for (const auto& items : packed) BroadcastPacked(items, window_bytes);
}

absl::Status ReplicaExchange::Run(
    size_t step, const absl::flat_hash_set<std::string>& absent,
    uint64_t window_bytes) const {
  return CatchTorch([&] {
    for (const auto& [ranks, set] : sets_) {
      if (set.agreed) RunSet(set, step, absent, window_bytes);
    }
  });
}

}  // namespace fsdp
