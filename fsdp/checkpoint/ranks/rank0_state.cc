// [Note: copies from rank 0]
//   1. Every rank tells rank 0 which boxes of which tensors it needs.
//   2. Rank 0 checks that all need the same tensors, and tells them which
//      tensors every rank needs whole, and how large a window is.
//   3. These tensors are broadcast, window by window.
//   4. From the others, each rank gets its boxes as one stream of bytes from
//      rank 0, cut into windows; rank 0 fills and sends one window for every
//      rank, then the next. A rank that cannot use what it receives continues
//      to receive.
//   5. All ranks agree on the result.
#include "fsdp/checkpoint/ranks/rank0_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ATen/ops/empty.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/format/pickle_reader.h"
#include "dcp/format/pickle_writer.h"
#include "fsdp/checkpoint/ranks/part_stream.h"
#include "fsdp/checkpoint/state/flat_state.h"
#include "fsdp/checkpoint/state/torch_status.h"

namespace fsdp {
namespace {

// Smaller messages cost more in round trips than they save.
constexpr uint64_t kMinWindowBytes = uint64_t{64} << 10;

// Tensors become persistent ids: (type, sizes...).
absl::StatusOr<dcp::Value> Describe(const StateValue& value,
                                    dcp::ValueArena& arena) {
  if (const auto* tensor = value.get_if<at::Tensor>()) {
    if (!tensor->defined()) return absl::InvalidArgumentError("is undefined");
    std::vector<dcp::Value> id = {
        dcp::Value::Int(static_cast<int64_t>(tensor->scalar_type()))};
    for (const int64_t size : tensor->sizes())
      id.push_back(dcp::Value::Int(size));
    return arena.Persistent(arena.Tuple(id));
  }
  if (value.get_if<DTensor>() != nullptr) {
    return absl::InvalidArgumentError(
        "is a DTensor; rank 0 gives whole tensors, as full_state_dict makes "
        "them");
  }
  std::vector<dcp::Value> items;
  if (const auto* list = value.get_if<StateList>()) {
    for (const StateValue& item : *list) {
      DCP_ASSIGN_OR_RETURN(items.emplace_back(), Describe(item, arena));
    }
    return arena.List(items);
  }
  if (const auto* dict = value.get_if<StateDict>()) {
    for (const auto& [key, item] : *dict) {
      absl::StatusOr<dcp::Value> described = Describe(item, arena);
      if (!described.ok()) return dcp::Annotate(described.status(), key);
      items.push_back(arena.Str(key));
      items.push_back(*described);
    }
    return arena.Dict(items);
  }
  return ToValue(value, arena);
}

absl::StatusOr<StateValue> FromDescription(const dcp::Value& value) {
  const absl::Span<const dcp::Value> items =
      value.is(dcp::Value::Kind::kList) || value.is(dcp::Value::Kind::kDict)
          ? value.items()
          : absl::Span<const dcp::Value>();
  if (value.is(dcp::Value::Kind::kPersistent)) {
    const absl::Span<const dcp::Value> id = value.persistent_id().items();
    std::vector<int64_t> sizes;
    for (const dcp::Value& size : id.subspan(1))
      sizes.push_back(size.int_value());
    const auto type = static_cast<at::ScalarType>(id[0].int_value());
    DCP_ASSIGN_OR_RETURN(
        at::Tensor tensor, CatchTorch([&] {
          return at::empty(sizes, at::TensorOptions(type).device(at::kMeta));
        }));
    return StateValue(std::move(tensor));
  }
  if (value.is(dcp::Value::Kind::kList)) {
    StateList list;
    for (const dcp::Value& item : items) {
      DCP_ASSIGN_OR_RETURN(list.emplace_back(), FromDescription(item));
    }
    return StateValue(std::move(list));
  }
  if (value.is(dcp::Value::Kind::kDict)) {
    StateDict dict;
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      DCP_ASSIGN_OR_RETURN(dict[std::string(items[i].text())],
                           FromDescription(items[i + 1]));
    }
    return StateValue(std::move(dict));
  }
  return FromValue(value);
}

absl::StatusOr<dcp::Value> Unpickle(const std::string& pickle,
                                    dcp::ValueArena& arena) {
  DCP_ASSIGN_OR_RETURN(const dcp::PickleResult result,
                       dcp::ReadPickle(dcp::AsBytes(pickle),
                                       {.allow_global = dcp::IsStateDictGlobal,
                                        .allow_persistent_ids = true},
                                       arena));
  return result.root;
}

using Boxes = std::vector<dcp::Box>;

// The copy requests of one rank: the name and the boxes of each.
struct Wanted {
  std::vector<std::string> names;
  std::vector<Boxes> boxes;
};

std::string Encode(absl::Span<const TensorCopy> copies,
                   absl::Span<const std::vector<CopyPart>> parts) {
  dcp::ValueArena arena;
  std::vector<dcp::Value> items;
  for (size_t i = 0; i < copies.size(); ++i) {
    items.push_back(arena.Str(copies[i].name));
    std::vector<dcp::Value> boxes;
    for (const CopyPart& part : parts[i]) {
      std::vector<dcp::Value> numbers;
      for (const dcp::Dims* dims : {&part.box.offsets, &part.box.sizes}) {
        for (const int64_t number : *dims) {
          numbers.push_back(dcp::Value::Int(number));
        }
      }
      boxes.push_back(arena.List(numbers));
    }
    items.push_back(arena.List(boxes));
  }
  return dcp::WritePickle(arena.List(items));
}

absl::StatusOr<Wanted> Decode(const std::string& text) {
  dcp::ValueArena arena;
  DCP_ASSIGN_OR_RETURN(const dcp::Value root, Unpickle(text, arena));
  Wanted wanted;
  for (size_t i = 0; i < root.items().size(); i += 2) {
    wanted.names.emplace_back(root.items()[i].text());
    Boxes& boxes = wanted.boxes.emplace_back();
    for (const dcp::Value& numbers : root.items()[i + 1].items()) {
      dcp::Box& box = boxes.emplace_back();
      const size_t num_dims = numbers.items().size() / 2;
      for (size_t d = 0; d < num_dims; ++d) {
        box.offsets.push_back(numbers.items()[d].int_value());
        box.sizes.push_back(numbers.items()[num_dims + d].int_value());
      }
    }
  }
  return wanted;
}

const at::Tensor& SourceOf(const TensorCopy& copy) {
  return *copy.src.get_if<at::Tensor>();
}

bool IsWhole(const Boxes& boxes, const at::Tensor& whole) {
  return boxes.size() == 1 && boxes[0] == dcp::WholeBox({whole.sizes().data(),
                                                         whole.sizes().size()});
}

// Rank 0's answer to these requests.
struct Answer {
  uint64_t window_bytes = 0;  // of one rank
  std::string whole;          // '1' for a copy that every rank needs whole
};

absl::Status CheckSameNames(absl::Span<const TensorCopy> copies,
                            const Wanted& wanted, size_t rank) {
  const size_t num = std::min(copies.size(), wanted.names.size());
  size_t i = 0;
  while (i < num && copies[i].name == wanted.names[i]) ++i;
  if (i == copies.size() && i == wanted.names.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the ranks want different tensors: rank ", rank, " wants ",
      i < wanted.names.size() ? wanted.names[i] : "no more", ", rank 0 ",
      i < copies.size() ? copies[i].name : "no more"));
}

// One call of CopyFromRank0, on any rank.
class Transfer {
 public:
  Transfer(ProcessGroupCoordinator& coordinator,
           absl::Span<const TensorCopy> copies, uint64_t window_bytes)
      : coordinator_(coordinator),
        copies_(copies),
        window_bytes_(window_bytes) {}

  absl::Status Run() {
    const absl::Status planned = FindParts();
    DCP_RETURN_IF_ERROR(dcp::Agree(coordinator_, planned));
    DCP_RETURN_IF_ERROR(Exchange());
    absl::Status ended = BroadcastWhole();
    if (ended.ok()) ended = is_source() ? SendParts() : ReceiveParts();
    if (ended.ok() && is_source()) ended = CopyOwn();
    return dcp::Agree(coordinator_, ended);
  }

 private:
  bool is_source() const { return coordinator_.rank() == 0; }
  size_t num_ranks() const {
    return static_cast<size_t>(coordinator_.num_ranks());
  }
  at::ScalarType WireType(size_t i) const {
    return SourceOf(copies_[i]).scalar_type();
  }

  absl::Status FindParts() {
    for (const TensorCopy& copy : copies_) {
      DCP_ASSIGN_OR_RETURN(parts_.emplace_back(), PartsOfCopy(copy));
    }
    return absl::OkStatus();
  }

  // Steps 1 and 2.
  absl::Status Exchange();
  absl::Status Decide(const std::vector<std::string>& texts);

  absl::Status BroadcastWhole();
  absl::Status SendParts();
  absl::Status ReceiveParts();
  absl::Status CopyOwn() {
    for (const TensorCopy& copy : copies_) {
      DCP_RETURN_IF_ERROR(RunCopy(copy));
    }
    return absl::OkStatus();
  }

  ProcessGroupCoordinator& coordinator_;
  const absl::Span<const TensorCopy> copies_;
  const uint64_t window_bytes_;
  std::vector<std::vector<CopyPart>> parts_;  // this rank's, by copy
  std::vector<Wanted> wanted_;                // on rank 0: by rank
  Answer answer_;
};

absl::Status Transfer::Decide(const std::vector<std::string>& texts) {
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    DCP_ASSIGN_OR_RETURN(wanted_.emplace_back(), Decode(texts[rank]));
    DCP_RETURN_IF_ERROR(CheckSameNames(copies_, wanted_[rank], rank));
  }
  answer_.window_bytes =
      dcp::AlignUp(std::max(kMinWindowBytes, window_bytes_ / (num_ranks() - 1)),
                   PartStream::kAlignment);
  for (size_t i = 0; i < copies_.size(); ++i) {
    const bool whole =
        std::all_of(wanted_.begin(), wanted_.end(), [&](const Wanted& wanted) {
          return IsWhole(wanted.boxes[i], SourceOf(copies_[i]));
        });
    answer_.whole += whole ? '1' : '0';
  }
  return absl::OkStatus();
}

absl::Status Transfer::Exchange() {
  DCP_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                       coordinator_.Gather(Encode(copies_, parts_)));
  const absl::Status decided = is_source() ? Decide(texts) : absl::OkStatus();
  DCP_RETURN_IF_ERROR(dcp::Agree(coordinator_, decided));
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       coordinator_.Broadcast(absl::StrCat(
                           answer_.window_bytes, " ", answer_.whole)));
  const size_t space = text.find(' ');
  DCP_CHECK(space != std::string::npos &&
                absl::SimpleAtoi(text.substr(0, space), &answer_.window_bytes),
            "text=", text);
  answer_.whole = text.substr(space + 1);
  DCP_CHECK(answer_.whole.size() == copies_.size(), "copies=", copies_.size());
  return absl::OkStatus();
}

absl::Status Transfer::BroadcastWhole() {
  PartStream stream;
  for (size_t i = 0; i < copies_.size(); ++i) {
    if (answer_.whole[i] == '0') continue;
    stream.Add(is_source() ? SourceOf(copies_[i]) : parts_[i][0].view,
               WireType(i));
  }
  absl::Status first_error;
  for (uint64_t offset = 0; offset < stream.num_bytes();) {
    const uint64_t length =
        std::min(stream.num_bytes() - offset,
                 dcp::AlignUp(std::max(kMinWindowBytes, window_bytes_),
                              PartStream::kAlignment));
    std::string window;
    absl::Status error;
    if (is_source()) {
      window.resize(length);
      error = CatchTorch([&] {
        stream.Read(offset,
                    {reinterpret_cast<uint8_t*>(window.data()), length});
      });
    }
    DCP_ASSIGN_OR_RETURN(window, coordinator_.Broadcast(std::move(window)));
    if (!is_source()) {
      error = CatchTorch([&] { stream.Write(offset, dcp::AsBytes(window)); });
    }
    first_error.Update(error);
    offset += length;
  }
  return first_error;
}

absl::Status Transfer::SendParts() {
  std::vector<PartStream> streams(num_ranks());
  uint64_t longest = 0;
  for (size_t rank = 1; rank < num_ranks(); ++rank) {
    for (size_t i = 0; i < copies_.size(); ++i) {
      if (answer_.whole[i] == '1') continue;
      for (const dcp::Box& box : wanted_[rank].boxes[i]) {
        streams[rank].Add(ViewOfBox(SourceOf(copies_[i]), box), WireType(i));
      }
    }
    longest = std::max(longest, streams[rank].num_bytes());
  }
  const uint64_t window = std::min(answer_.window_bytes, longest);
  std::vector<std::vector<uint8_t>> buffers(num_ranks());
  absl::Status first_error;
  for (uint64_t offset = 0; offset < longest; offset += window) {
    std::vector<ProcessGroupCoordinator::Transfer> transfers;
    for (size_t rank = 1; rank < num_ranks(); ++rank) {
      if (offset >= streams[rank].num_bytes()) continue;
      buffers[rank].resize(
          std::min(window, streams[rank].num_bytes() - offset));
      first_error.Update(
          CatchTorch([&] { streams[rank].Read(offset, buffers[rank]); }));
      DCP_ASSIGN_OR_RETURN(
          transfers.emplace_back(),
          coordinator_.Send(static_cast<int64_t>(rank), buffers[rank]));
    }
    for (auto& transfer : transfers) DCP_RETURN_IF_ERROR(transfer.Wait());
  }
  return first_error;
}

absl::Status Transfer::ReceiveParts() {
  PartStream stream;
  for (size_t i = 0; i < copies_.size(); ++i) {
    if (answer_.whole[i] == '1') continue;
    for (const CopyPart& part : parts_[i]) stream.Add(part.view, WireType(i));
  }
  std::vector<uint8_t> buffer(
      std::min(answer_.window_bytes, stream.num_bytes()));
  absl::Status first_error;
  for (uint64_t offset = 0; offset < stream.num_bytes();) {
    const dcp::MutableByteSpan window(
        buffer.data(),
        std::min<uint64_t>(buffer.size(), stream.num_bytes() - offset));
    DCP_ASSIGN_OR_RETURN(auto transfer, coordinator_.Receive(0, window));
    DCP_RETURN_IF_ERROR(transfer.Wait());
    first_error.Update(CatchTorch([&] { stream.Write(offset, window); }));
    offset += window.size();
  }
  return first_error;
}

}  // namespace

absl::StatusOr<StateDict> ShareStateOfRank0(
    ProcessGroupCoordinator& coordinator, const StateDict& state) {
  if (coordinator.num_ranks() == 1) return state;
  dcp::ValueArena arena;
  absl::StatusOr<dcp::Value> described = dcp::Value();
  if (coordinator.rank() == 0) described = Describe(StateValue(state), arena);
  DCP_RETURN_IF_ERROR(dcp::Agree(coordinator, described.status()));
  DCP_ASSIGN_OR_RETURN(const std::string pickle,
                       coordinator.Broadcast(dcp::WritePickle(*described)));
  StateDict shared = state;
  const auto read = [&]() -> absl::Status {
    DCP_ASSIGN_OR_RETURN(const dcp::Value root, Unpickle(pickle, arena));
    DCP_ASSIGN_OR_RETURN(const StateValue value, FromDescription(root));
    shared = *value.get_if<StateDict>();
    return absl::OkStatus();
  };
  const absl::Status status =
      coordinator.rank() == 0 ? absl::OkStatus() : read();
  DCP_RETURN_IF_ERROR(dcp::Agree(coordinator, status));
  return shared;
}

absl::Status CopyFromRank0(ProcessGroupCoordinator& coordinator,
                           absl::Span<const TensorCopy> copies,
                           uint64_t window_bytes) {
  if (coordinator.num_ranks() > 1) {
    return Transfer(coordinator, copies, window_bytes).Run();
  }
  for (const TensorCopy& copy : copies) DCP_RETURN_IF_ERROR(RunCopy(copy));
  return absl::OkStatus();
}

}  // namespace fsdp
