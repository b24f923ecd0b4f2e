// SPDX-License-Identifier: Apache-2.0
// [Note: copies from rank 0]
//   1. Every rank tells rank 0 which boxes of which tensors it needs.
//   2. Rank 0 checks that all need the same tensors, and tells them how large a
//      window is, and which tensors every rank needs whole.
//   3. These tensors are broadcast, window by window.
//   4. Each rank gets boxes of the other tensors as one stream from rank 0
//      (rank_stream.h), which writes one window for every rank, then the next.
//      A rank that cannot use the data continues to receive.
//   5. All ranks agree on the result.
#include "fsdp/checkpoint/ranks/rank0_state.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/ops/empty.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/format/index/dcp_metadata.h"
#include "dcp/format/index/dcp_metadata_writer.h"
#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/tensor/metadata.h"
#include "fsdp/checkpoint/ranks/part_stream.h"
#include "fsdp/checkpoint/ranks/rank_stream.h"
#include "fsdp/checkpoint/state/load_targets.h"
#include "fsdp/checkpoint/state/local_parts.h"
#include "fsdp/checkpoint/state/plain_value.h"
#include "fsdp/checkpoint/state/tensor_io.h"
#include "fsdp/checkpoint/state/torch_status.h"

namespace fsdp {
namespace {

// Smaller messages cost more in round trips than they save.
constexpr uint64_t kMinPieceBytes = uint64_t{64} << 10;

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

// The type and sizes in a tensor's id.
absl::StatusOr<std::vector<int64_t>> DecodeNumbers(const dcp::Value& id) {
  std::vector<int64_t> numbers;
  if (id.is(dcp::Value::Kind::kTuple)) {
    for (const dcp::Value& number : id.items()) {
      if (!number.is(dcp::Value::Kind::kInt)) break;
      numbers.push_back(number.int_value());
    }
    if (!numbers.empty() && numbers.size() == id.items().size()) {
      if (numbers[0] >= 0 &&
          numbers[0] < static_cast<int64_t>(at::ScalarType::Undefined)) {
        return numbers;
      }
    }
  }
  return absl::DataLossError(
      "rank 0 must describe a tensor as its type and sizes, and sent something "
      "else");
}

absl::StatusOr<StateValue> FromDescription(const dcp::Value& value) {
  const absl::Span<const dcp::Value> items =
      value.is(dcp::Value::Kind::kList) || value.is(dcp::Value::Kind::kDict)
          ? value.items()
          : absl::Span<const dcp::Value>();
  if (value.is(dcp::Value::Kind::kPersistent)) {
    DCP_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers,
                         DecodeNumbers(value.persistent_id()));
    const std::vector<int64_t> sizes(numbers.begin() + 1, numbers.end());
    const auto type = static_cast<at::ScalarType>(numbers[0]);
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
      if (!items[i].is(dcp::Value::Kind::kStr)) {
        return absl::DataLossError(
            "rank 0 must describe dicts with text as keys, and sent another");
      }
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

const at::Tensor& LocalTensor(const TensorCopy& copy) {
  return *copy.src.get_if<at::Tensor>();
}

// One rank's request: the copies' names, and the boxes of each.
absl::StatusOr<std::string> RequestFor(
    absl::Span<const TensorCopy> copies,
    absl::Span<const std::vector<LocalPart>> parts) {
  dcp::Metadata request;
  request.files.emplace_back("wanted");
  for (size_t i = 0; i < copies.size(); ++i) {
    const at::Tensor& whole = LocalTensor(copies[i]);
    DCP_ASSIGN_OR_RETURN(const dcp::DType dtype, ToDType(whole.scalar_type()));
    request.entries.push_back(DescribeTensor(
        copies[i].name, dtype,
        dcp::Dims(whole.sizes().begin(), whole.sizes().end()), parts[i]));
  }
  return dcp::WriteDcpMetadata(request);
}

using Chunks = std::vector<dcp::ChunkStorageMetadata>;

const Chunks& TensorChunks(const dcp::MetadataEntry& entry) {
  return std::get<dcp::TensorStorageMetadata>(entry.value).chunks;
}

bool IsWhole(const Chunks& chunks, const at::Tensor& whole) {
  return chunks.size() == 1 &&
         chunks[0].box ==
             dcp::WholeBox({whole.sizes().data(), whole.sizes().size()});
}

// Rank 0's answer to these requests.
struct Answer {
  uint64_t window_bytes = 0;  // for one rank
  std::string whole;          // '1' for a copy that every rank needs whole
};

absl::StatusOr<Answer> ParseAnswer(const std::string& text, size_t num_copies) {
  const std::pair<std::string, std::string> fields =
      absl::StrSplit(text, absl::MaxSplits(' ', 1));
  Answer answer{.whole = fields.second};
  if (!absl::SimpleAtoi(fields.first, &answer.window_bytes) ||
      answer.window_bytes == 0 || answer.window_bytes > dcp::kBlockBytes ||
      answer.whole.size() != num_copies ||
      answer.whole.find_first_not_of("01") != std::string::npos) {
    return absl::DataLossError(
        absl::StrCat("rank 0 must answer with a window and ", num_copies,
                     " times 0 or 1, and sent '",
                     absl::CHexEscape(text.substr(0, 80)), "'"));
  }
  return answer;
}

absl::Status CheckSameTensors(absl::Span<const TensorCopy> copies,
                              const dcp::Metadata& request, size_t rank) {
  const size_t num = std::min(copies.size(), request.entries.size());
  size_t i = 0;
  while (i < num && copies[i].name == request.entries[i].fqn) ++i;
  if (i < copies.size() || i < request.entries.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the ranks ask for different tensors: rank ", rank, " asks for ",
        i < request.entries.size() ? request.entries[i].fqn : "no more",
        ", rank 0 for ", i < copies.size() ? copies[i].name : "no more"));
  }
  for (i = 0; i < copies.size(); ++i) {
    const auto* tensor =
        std::get_if<dcp::TensorStorageMetadata>(&request.entries[i].value);
    const at::IntArrayRef sizes = LocalTensor(copies[i]).sizes();
    if (tensor == nullptr ||
        tensor->size != dcp::Dims(sizes.begin(), sizes.end())) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " asks for ", copies[i].name,
                       " in a shape that differs from rank 0's"));
    }
  }
  return absl::OkStatus();
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
    return LocalTensor(copies_[i]).scalar_type();
  }

  absl::Status FindParts() {
    for (const TensorCopy& copy : copies_) {
      DCP_ASSIGN_OR_RETURN(parts_.emplace_back(), FindDestinationParts(copy));
    }
    DCP_ASSIGN_OR_RETURN(request_, RequestFor(copies_, parts_));
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
  std::vector<std::vector<LocalPart>> parts_;  // this rank's, by copy
  std::vector<dcp::Metadata> requests_;        // on rank 0: by rank
  std::string request_;                        // this rank's
  Answer answer_;
};

absl::Status Transfer::Decide(const std::vector<std::string>& texts) {
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    DCP_ASSIGN_OR_RETURN(requests_.emplace_back(),
                         dcp::ParseDcpMetadata(dcp::AsBytes(texts[rank])));
    DCP_RETURN_IF_ERROR(CheckSameTensors(copies_, requests_[rank], rank));
  }
  answer_.window_bytes =
      StreamWindowBytes(window_bytes_, coordinator_.num_ranks());
  for (size_t i = 0; i < copies_.size(); ++i) {
    const bool whole = std::all_of(
        requests_.begin(), requests_.end(), [&](const dcp::Metadata& request) {
          return IsWhole(TensorChunks(request.entries[i]),
                         LocalTensor(copies_[i]));
        });
    answer_.whole += whole ? '1' : '0';
  }
  return absl::OkStatus();
}

absl::Status Transfer::Exchange() {
  DCP_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                       coordinator_.Gather(request_));
  const absl::Status decided = is_source() ? Decide(texts) : absl::OkStatus();
  DCP_RETURN_IF_ERROR(dcp::Agree(coordinator_, decided));
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       coordinator_.Broadcast(absl::StrCat(
                           answer_.window_bytes, " ", answer_.whole)));
  absl::StatusOr<Answer> answer = ParseAnswer(text, copies_.size());
  DCP_RETURN_IF_ERROR(dcp::Agree(coordinator_, answer.status()));
  answer_ = *std::move(answer);
  return absl::OkStatus();
}

absl::Status Transfer::BroadcastWhole() {
  PartStream stream;
  for (size_t i = 0; i < copies_.size(); ++i) {
    if (answer_.whole[i] == '0') continue;
    stream.Add(is_source() ? LocalTensor(copies_[i]) : parts_[i][0].local,
               WireType(i));
  }
  absl::Status first_error;
  for (uint64_t offset = 0; offset < stream.num_bytes();) {
    const uint64_t length =
        std::min(stream.num_bytes() - offset,
                 dcp::AlignUp(std::max(kMinPieceBytes, window_bytes_),
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
  std::vector<PartStream> parts(num_ranks());
  std::vector<uint64_t> num_bytes(num_ranks());
  uint64_t longest = 0;
  for (size_t rank = 1; rank < num_ranks(); ++rank) {
    for (size_t i = 0; i < copies_.size(); ++i) {
      if (answer_.whole[i] == '1') continue;
      for (const auto& chunk : TensorChunks(requests_[rank].entries[i])) {
        parts[rank].Add(BoxView(LocalTensor(copies_[i]), chunk.box),
                        WireType(i));
      }
    }
    num_bytes[rank] = parts[rank].num_bytes();
    longest = std::max(longest, num_bytes[rank]);
  }
  RankStreams streams(coordinator_, num_bytes, answer_.window_bytes);
  std::vector<uint8_t> window(std::min(answer_.window_bytes, longest));
  // One window for every rank, then the next.
  absl::Status status;
  for (uint64_t offset = 0; offset < longest; offset += window.size()) {
    for (size_t rank = 1; rank < num_ranks() && status.ok(); ++rank) {
      if (offset >= num_bytes[rank]) continue;
      const dcp::MutableByteSpan piece(
          window.data(),
          std::min<uint64_t>(window.size(), num_bytes[rank] - offset));
      status = CatchTorch([&] { parts[rank].Read(offset, piece); });
      if (status.ok()) status = streams.To(rank).Write(piece);
    }
  }
  return streams.End(std::move(status));
}

absl::Status Transfer::ReceiveParts() {
  PartStream stream;
  for (size_t i = 0; i < copies_.size(); ++i) {
    if (answer_.whole[i] == '1') continue;
    for (const LocalPart& part : parts_[i]) stream.Add(part.local, WireType(i));
  }
  uint64_t offset = 0;
  return ReadRankStream(coordinator_, stream.num_bytes(), answer_.window_bytes,
                        [&](dcp::ByteSpan piece) {
                          const absl::Status written =
                              CatchTorch([&] { stream.Write(offset, piece); });
                          offset += piece.size();
                          return written;
                        });
}

}  // namespace

absl::StatusOr<StateDict> ShareRank0State(ProcessGroupCoordinator& coordinator,
                                          const StateDict& state) {
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
    const auto* dict = value.get_if<StateDict>();
    if (dict == nullptr) {
      return absl::DataLossError(
          "rank 0 must describe a state dict, and sent something else");
    }
    shared = *dict;
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
