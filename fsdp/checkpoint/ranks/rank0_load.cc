// SPDX-License-Identifier: Apache-2.0
// [Note: loading from rank 0]
//   1. Every rank sends a request, an index of names and boxes.
//   2. Rank 0 opens the checkpoint, checks all requests, reads the plain
//      values, and answers each rank with a pickle: (window bytes, [absent
//      name], {name: value}).
//   3. Rank 0 reads each box once, in the order of names and offsets, and
//      writes it to its own memory and to the streams of the ranks that asked
//      for it. Every rank reads its stream in the same order.
#include "fsdp/checkpoint/ranks/rank0_load.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <variant>

#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/load/tensor_sink.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/format/index/dcp_metadata.h"
#include "dcp/format/index/dcp_metadata_writer.h"
#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "fsdp/checkpoint/ranks/rank_stream.h"
#include "fsdp/checkpoint/source/target_check.h"
#include "fsdp/checkpoint/state/payload_bytes.h"

namespace fsdp {
namespace {

using Kind = dcp::Value::Kind;

bool NameThenPlace(const dcp::LoadTensor& a, const dcp::LoadTensor& b) {
  return std::tie(a.fqn, a.box.offsets) < std::tie(b.fqn, b.box.offsets);
}

// Places a box in this rank's memory and in the other ranks' streams.
class FanOutSink final : public dcp::TensorSink {
 public:
  void AddLocal(dcp::TensorSink* sink) { locals_.push_back(sink); }
  void AddStream(RankStreamWriter* stream) { streams_.push_back(stream); }

  absl::Status Place(uint64_t offset, dcp::ByteSpan src) override {
    for (dcp::TensorSink* sink : locals_) {
      DCP_RETURN_IF_ERROR(sink->Place(offset, src));
    }
    // A source places a tensor's bytes in order, and tensors in the order in
    // which they were given, which is also the order in the streams.
    for (RankStreamWriter* stream : streams_) {
      DCP_RETURN_IF_ERROR(stream->Write(src));
    }
    return absl::OkStatus();
  }
  absl::Status Flush() override {
    absl::Status status;
    for (dcp::TensorSink* sink : locals_) status.Update(sink->Flush());
    return status;
  }

 private:
  std::vector<dcp::TensorSink*> locals_;
  std::vector<RankStreamWriter*> streams_;
};

// A box that rank 0 reads, and where it goes.
struct Target {
  dcp::LoadTensor tensor;
  FanOutSink sink;
};

// Every box once, in stream order.
class Targets {
 public:
  Target& Add(const dcp::LoadTensor& tensor) {
    Target& target = targets_[{tensor.fqn, tensor.box.offsets, tensor.box.sizes,
                               tensor.dtype}];
    target.tensor = tensor;
    return target;
  }

  std::vector<dcp::LoadTensor> Tensors() {
    std::vector<dcp::LoadTensor> tensors;
    for (auto& [key, target] : targets_) {
      target.tensor.sink = &target.sink;
      tensors.push_back(target.tensor);
    }
    return tensors;
  }

 private:
  std::map<std::tuple<std::string, dcp::Dims, dcp::Dims, dcp::DType>, Target>
      targets_;
};

// The answer to a request: the plain values that it names, from `values`.
std::string EncodeAnswer(
    const dcp::Metadata& request, uint64_t window_bytes,
    const absl::flat_hash_set<std::string>& all_absent,
    const absl::flat_hash_map<std::string, dcp::Value>& values) {
  dcp::ValueArena arena;
  std::vector<dcp::Value> absent;
  std::vector<dcp::Value> objects;
  for (const dcp::MetadataEntry& entry : request.entries) {
    if (all_absent.contains(entry.fqn)) absent.push_back(arena.Str(entry.fqn));
    const auto value = values.find(entry.fqn);
    if (value == values.end()) continue;
    objects.push_back(arena.Str(entry.fqn));
    objects.push_back(value->second);
  }
  return dcp::WritePickle(
      arena.Tuple({dcp::Value::Int(static_cast<int64_t>(window_bytes)),
                   arena.List(absent), arena.Dict(objects)}));
}

absl::Status Malformed() {
  return absl::DataLossError(
      "rank 0 must answer with a window, absent names and objects, and sent "
      "something else");
}

}  // namespace

absl::Status Rank0Load::Ask(const dcp::Metadata& request, Open open) {
  DCP_ASSIGN_OR_RETURN(const std::vector<std::string> requests,
                       coordinator_.Gather(dcp::WriteDcpMetadata(request)));
  absl::StatusOr<std::vector<std::string>> answers = std::vector<std::string>();
  if (coordinator_.rank() == 0) answers = Answer(requests, open);
  DCP_RETURN_IF_ERROR(dcp::Agree(coordinator_, answers.status()));
  DCP_ASSIGN_OR_RETURN(const std::string answer,
                       coordinator_.Scatter(*std::move(answers)));
  return dcp::Agree(coordinator_, Accept(answer));
}

absl::StatusOr<std::vector<std::string>> Rank0Load::Answer(
    absl::Span<const std::string> requests, Open open) {
  absl::flat_hash_set<std::string> names;
  for (const std::string& request : requests) {
    DCP_ASSIGN_OR_RETURN(requests_.emplace_back(),
                         dcp::ParseDcpMetadata(dcp::AsBytes(request)));
    for (const dcp::MetadataEntry& entry : requests_.back().entries) {
      if (std::holds_alternative<dcp::BytesStorageMetadata>(entry.value)) {
        names.insert(entry.fqn);
      }
    }
  }
  DCP_ASSIGN_OR_RETURN(source_, open());
  DCP_ASSIGN_OR_RETURN(
      absent_, CheckTargets(*source_, requests_, options_.allow_partial));
  DCP_RETURN_IF_ERROR(source_->CheckTies({.first = 0, .end = 1, .count = 1},
                                         {.memory_bytes = options_.memory_bytes,
                                          .stop = options_.stop,
                                          .stats = options_.stats}));
  DCP_ASSIGN_OR_RETURN(const auto values,
                       source_->ReadObjects(names, options_.stop));
  // Half of the budget is for reading.
  const uint64_t window_bytes =
      StreamWindowBytes(options_.memory_bytes / 2, coordinator_.num_ranks());
  std::vector<std::string> answers;
  for (const dcp::Metadata& request : requests_) {
    answers.push_back(EncodeAnswer(request, window_bytes, absent_, values));
  }
  return answers;
}

absl::Status Rank0Load::Accept(const std::string& answer) {
  DCP_ASSIGN_OR_RETURN(
      const dcp::PickleResult pickle,
      dcp::ReadPickle(dcp::AsBytes(answer),
                      {.allow_global = dcp::IsStateDictGlobal}, arena_));
  if (!pickle.root.is(Kind::kTuple)) return Malformed();
  const absl::Span<const dcp::Value> fields = pickle.root.items();
  if (fields.size() != 3 || !fields[0].is(Kind::kInt) ||
      !fields[1].is(Kind::kList) || !fields[2].is(Kind::kDict)) {
    return Malformed();
  }
  const int64_t window_bytes = fields[0].int_value();
  if (window_bytes <= 0 ||
      static_cast<uint64_t>(window_bytes) > dcp::kBlockBytes) {
    return Malformed();
  }
  window_bytes_ = static_cast<uint64_t>(window_bytes);
  for (const dcp::Value& name : fields[1].items()) {
    if (!name.is(Kind::kStr)) return Malformed();
    absent_.insert(std::string(name.text()));
  }
  const absl::Span<const dcp::Value> objects = fields[2].items();
  for (size_t i = 0; i + 1 < objects.size(); i += 2) {
    if (!objects[i].is(Kind::kStr)) return Malformed();
    objects_[std::string(objects[i].text())] = objects[i + 1];
  }
  return absl::OkStatus();
}

absl::Status Rank0Load::Move(absl::Span<const dcp::LoadTensor> tensors) {
  return dcp::Agree(coordinator_, coordinator_.rank() == 0 ? Send(tensors)
                                                           : Receive(tensors));
}

absl::Status Rank0Load::Send(absl::Span<const dcp::LoadTensor> own) {
  Targets targets;
  for (const dcp::LoadTensor& tensor : own) {
    targets.Add(tensor).sink.AddLocal(tensor.sink);
  }
  std::vector<uint64_t> num_bytes(requests_.size());
  std::vector<std::vector<Target*>> wanted(requests_.size());
  for (size_t rank = 1; rank < requests_.size(); ++rank) {
    for (const dcp::MetadataEntry& entry : requests_[rank].entries) {
      const auto* tensor =
          std::get_if<dcp::TensorStorageMetadata>(&entry.value);
      if (tensor == nullptr || absent_.contains(entry.fqn)) continue;
      for (const dcp::ChunkStorageMetadata& chunk : tensor->chunks) {
        Target& target = targets.Add({.fqn = entry.fqn,
                                      .dtype = tensor->dtype,
                                      .shape = tensor->size,
                                      .box = chunk.box});
        num_bytes[rank] += PayloadBytes(target.tensor);
        wanted[rank].push_back(&target);
      }
    }
  }
  RankStreams streams(coordinator_, num_bytes, window_bytes_);
  for (size_t rank = 1; rank < requests_.size(); ++rank) {
    for (Target* target : wanted[rank]) {
      target->sink.AddStream(&streams.To(rank));
    }
  }
  const std::vector<dcp::LoadTensor> tensors = targets.Tensors();
  return streams.End(source_->ReadTensors(
      tensors, {.memory_bytes = MemoryFor(
                    PayloadBytes(tensors),
                    std::max(options_.memory_bytes / 2, dcp::kMinMemoryBytes)),
                .stop = options_.stop,
                .stats = options_.stats}));
}

absl::Status Rank0Load::Receive(absl::Span<const dcp::LoadTensor> tensors) {
  std::vector<dcp::LoadTensor> order(tensors.begin(), tensors.end());
  std::sort(order.begin(), order.end(), NameThenPlace);
  size_t next = 0;
  uint64_t offset = 0;
  return ReadRankStream(
      coordinator_, PayloadBytes(order), window_bytes_,
      [&](dcp::ByteSpan bytes) {
        std::vector<dcp::TensorSink*> touched;
        absl::Status status;
        while (!bytes.empty() && status.ok()) {
          const dcp::LoadTensor& tensor = order[next];
          const uint64_t length =
              std::min<uint64_t>(bytes.size(), PayloadBytes(tensor) - offset);
          if (length > 0) {
            touched.push_back(tensor.sink);
            status = tensor.sink->Place(offset, bytes.first(length));
          }
          offset += length;
          bytes = bytes.subspan(length);
          if (offset == PayloadBytes(tensor)) {
            ++next;
            offset = 0;
          }
        }
        for (dcp::TensorSink* sink : touched) status.Update(sink->Flush());
        return status;
      });
}

}  // namespace fsdp
