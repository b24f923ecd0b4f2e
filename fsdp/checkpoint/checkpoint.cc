// A load has three steps. Between steps the ranks agree on whether anything
// went wrong on any of them, so that all take the next step or none does:
//   1. look at the state, open the checkpoint, compare names; meet
//   2. read objects, then the tensors that this rank reads; agree
//   3. exchange replicas, give objects back to the state; agree
// Nothing changes before step 2, and plain values only in step 3. With
// load_from_rank0, rank 0 learns what all ranks want and compares it, and sends
// the others through streams what they would read.
#include "fsdp/checkpoint/checkpoint.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/load.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/save/state_file.h"
#include "dcp/format/dcp_metadata.h"
#include "dcp/format/pickle_reader.h"
#include "dcp/format/pickle_writer.h"
#include "fsdp/checkpoint/async_saver.h"
#include "fsdp/checkpoint/file_save.h"
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"
#include "fsdp/checkpoint/ranks/rank_stream.h"
#include "fsdp/checkpoint/ranks/replica_exchange.h"
#include "fsdp/checkpoint/source/checkpoint_source.h"
#include "fsdp/checkpoint/state/held_state.h"
#include "fsdp/checkpoint/state/tensor_io.h"
#include "fsdp/checkpoint/state/wanted_state.h"

namespace fsdp {
namespace {

constexpr uint64_t kMaxWindowBytes = uint64_t{64} << 20;

// The absent names, and the plain values, which are complete before payload
// moves.
struct Objects {
  absl::flat_hash_set<std::string> absent;
  std::vector<std::pair<const StateLeaf*, StateValue>> values;
};

// The sinks of a load, with the memory and streams that they need.
class Sinks {
 public:
  absl::Status Add(const WantedTensor& tensor, const TensorPart& part) {
    DCP_ASSIGN_OR_RETURN(std::shared_ptr<TransferStream> stream,
                         streams_.For(part.local.device()));
    owned_.push_back(
        std::make_unique<TorchTensorSink>(part.local, std::move(stream)));
    tensors_.push_back({.fqn = tensor.fqn,
                        .dtype = tensor.dtype,
                        .shape = tensor.shape,
                        .box = part.box,
                        .sink = owned_.back().get()});
    return absl::OkStatus();
  }
  const std::vector<dcp::LoadTensor>& tensors() const { return tensors_; }

 private:
  TransferStreams streams_;
  std::vector<std::unique_ptr<TorchTensorSink>> owned_;
  std::vector<dcp::LoadTensor> tensors_;
};

uint64_t NumBytes(const dcp::LoadTensor& tensor) {
  return static_cast<uint64_t>(dcp::Volume(tensor.box.sizes)) *
         dcp::ElementSize(tensor.dtype);
}

// The memory for `payload_bytes`: a small state takes only a little of the
// budget, because memory must be mapped and locked before it is used.
uint64_t MemoryFor(uint64_t payload_bytes, uint64_t budget_bytes) {
  return std::min(budget_bytes, dcp::kMinMemoryBytes + 4 * payload_bytes);
}

uint64_t NumBytes(const std::vector<dcp::LoadTensor>& tensors) {
  uint64_t num_bytes = 0;
  for (const dcp::LoadTensor& tensor : tensors) num_bytes += NumBytes(tensor);
  return num_bytes;
}

bool NameThenPlace(const dcp::LoadTensor& a, const dcp::LoadTensor& b) {
  return std::tie(a.fqn, a.box.offsets) < std::tie(b.fqn, b.box.offsets);
}

// Adds the parts of the tensors of `wanted` that `exchange` leaves to this
// rank.
absl::Status AddReadParts(const WantedState& wanted,
                          const ReplicaExchange& exchange,
                          const absl::flat_hash_set<std::string>& absent,
                          Sinks& sinks) {
  for (size_t i = 0; i < wanted.tensors.size(); ++i) {
    const WantedTensor& tensor = wanted.tensors[i];
    if (!exchange.Reads(i) || absent.contains(tensor.fqn)) continue;
    for (const TensorPart& part : tensor.parts) {
      DCP_RETURN_IF_ERROR(dcp::Annotate(sinks.Add(tensor, part), tensor.fqn));
    }
  }
  return absl::OkStatus();
}

absl::Status TakeObjects(
    const WantedState& wanted,
    const absl::flat_hash_map<std::string, dcp::Value>& values,
    Objects& objects) {
  for (const StateLeaf& leaf : wanted.objects) {
    const auto it = values.find(leaf.fqn);
    if (it == values.end()) continue;  // absent
    absl::StatusOr<StateValue> value = FromValue(it->second);
    if (!value.ok()) return dcp::Annotate(value.status(), leaf.fqn);
    objects.values.emplace_back(&leaf, *std::move(value));
  }
  return absl::OkStatus();
}

class Loading {
 public:
  Loading(StateDict& state, const std::string& path,
          const TorchLoadOptions& options, ProcessGroupCoordinator& coordinator)
      : state_(state),
        path_(path),
        options_(options),
        coordinator_(coordinator) {}

  absl::Status Run() {
    std::unique_ptr<CheckpointSource> source;
    absl::Status status = Look();
    if (status.ok()) status = Open(source);
    DCP_RETURN_IF_ERROR(Meet(status));
    DCP_RETURN_IF_ERROR(dcp::Agree(coordinator_, Read(*source)));
    return Finish();
  }

  absl::Status RunFromRank0();

 private:
  absl::Status Look() {
    DCP_ASSIGN_OR_RETURN(wanted_, WantState(state_));
    return absl::OkStatus();
  }

  absl::Status Open(std::unique_ptr<CheckpointSource>& source) {
    DCP_ASSIGN_OR_RETURN(source, OpenSource(path_, options_));
    const dcp::Metadata wanted =
        DescribeWanted(*wanted_, [](size_t) { return false; });
    DCP_ASSIGN_OR_RETURN(
        objects_.absent,
        CheckWanted(*source, {wanted}, options_.allow_partial_load));
    return absl::OkStatus();
  }

  absl::Status Meet(absl::Status status) {
    const ProcessGroup group = options_.process_group || !is_initialized()
                                   ? options_.process_group
                                   : world_group();
    absl::StatusOr<ReplicaExchange> exchange = ReplicaExchange::Make(
        wanted_.get(), group, options_.broadcast_to_replicas);
    status.Update(exchange.status());
    if (!exchange.ok()) exchange = ReplicaExchange::Make(nullptr, group, false);
    exchange_ = *std::move(exchange);
    return exchange_->Meet(coordinator_, status);
  }

  absl::Status Read(CheckpointSource& source) {
    absl::flat_hash_set<std::string> names;
    for (const StateLeaf& leaf : wanted_->objects) names.insert(leaf.fqn);
    DCP_ASSIGN_OR_RETURN(const auto values,
                         source.ReadObjects(names, options_.stop));
    DCP_RETURN_IF_ERROR(TakeObjects(*wanted_, values, objects_));
    Sinks sinks;
    DCP_RETURN_IF_ERROR(
        AddReadParts(*wanted_, *exchange_, objects_.absent, sinks));
    return source.ReadTensors(
        sinks.tensors(), {.memory_bytes = MemoryFor(NumBytes(sinks.tensors()),
                                                    options_.memory_bytes),
                          .stop = options_.stop,
                          .stats = options_.stats});
  }

  absl::Status Finish() {
    absl::Status status = exchange_->Run(
        objects_.absent,
        std::clamp<uint64_t>(options_.memory_bytes, 1, kMaxWindowBytes));
    if (status.ok()) {
      for (auto& [leaf, value] : objects_.values) {
        *leaf->value = std::move(value);
      }
      status = RestoreState(wanted_->expanded, state_);
    }
    return dcp::Agree(coordinator_, status);
  }

  // Rank 0's answers in load_from_rank0.
  struct Answers {
    std::unique_ptr<CheckpointSource> source;
    std::vector<dcp::Metadata> requests;
    std::vector<std::string> texts;  // one for each rank
  };
  absl::Status Answer(const std::vector<std::string>& requests,
                      Answers& answers);
  absl::Status Accept(const std::string& answer, Sinks& sinks,
                      uint64_t& window_bytes);
  absl::Status SendAll(Answers& answers, const Sinks& sinks,
                       uint64_t window_bytes);
  absl::Status Receive(const Sinks& sinks, uint64_t window_bytes);
  uint64_t WindowBytes() const;

  StateDict& state_;
  const std::string path_;
  const TorchLoadOptions& options_;
  ProcessGroupCoordinator& coordinator_;
  std::unique_ptr<WantedState> wanted_;
  std::optional<ReplicaExchange> exchange_;
  Objects objects_;
};

// Places a box in this rank's memory and in the streams of others.
class FanOutSink final : public dcp::TensorSink {
 public:
  void AddLocal(dcp::TensorSink* sink) { locals_.push_back(sink); }
  void AddStream(RankStreamWriter* stream) { streams_.push_back(stream); }

  absl::Status Place(uint64_t offset, dcp::ByteSpan src) override {
    for (dcp::TensorSink* sink : locals_) {
      DCP_RETURN_IF_ERROR(sink->Place(offset, src));
    }
    // A source places the bytes of a tensor in their order, and tensors in the
    // order in which they were given, which is that of the streams.
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

// Half of the budget is for reading; each of the other ranks has two messages
// in flight.
uint64_t Loading::WindowBytes() const {
  const auto num_others =
      static_cast<uint64_t>(std::max<int64_t>(coordinator_.num_ranks() - 1, 1));
  return std::clamp<uint64_t>(options_.memory_bytes / 4 / num_others,
                              uint64_t{64} << 10, dcp::kBlockBytes);
}

// On rank 0: the answer to each request, a pickled {"window": bytes, "absent":
// [name], "objects": {name: value}}.
absl::Status Loading::Answer(const std::vector<std::string>& requests,
                             Answers& answers) {
  for (const std::string& request : requests) {
    DCP_ASSIGN_OR_RETURN(dcp::Metadata wanted,
                         dcp::ParseDcpMetadata(dcp::AsBytes(request)));
    answers.requests.push_back(std::move(wanted));
  }
  DCP_ASSIGN_OR_RETURN(answers.source, OpenSource(path_, options_));
  DCP_ASSIGN_OR_RETURN(objects_.absent,
                       CheckWanted(*answers.source, answers.requests,
                                   options_.allow_partial_load));
  absl::flat_hash_set<std::string> names;
  for (const dcp::Metadata& request : answers.requests) {
    for (const dcp::MetadataEntry& entry : request.entries) {
      if (std::holds_alternative<dcp::BytesStorageMetadata>(entry.value)) {
        names.insert(entry.fqn);
      }
    }
  }
  DCP_ASSIGN_OR_RETURN(const auto values,
                       answers.source->ReadObjects(names, options_.stop));
  for (const dcp::Metadata& request : answers.requests) {
    dcp::ValueArena arena;
    std::vector<dcp::Value> absent;
    std::vector<dcp::Value> objects;
    for (const dcp::MetadataEntry& entry : request.entries) {
      if (objects_.absent.contains(entry.fqn)) {
        absent.push_back(arena.Str(entry.fqn));
      }
      const auto value = values.find(entry.fqn);
      if (value == values.end()) continue;
      objects.push_back(arena.Str(entry.fqn));
      objects.push_back(value->second);
    }
    answers.texts.push_back(dcp::WritePickle(
        arena.Tuple({dcp::Value::Int(static_cast<int64_t>(WindowBytes())),
                     arena.List(absent), arena.Dict(objects)})));
  }
  return absl::OkStatus();
}

absl::Status Loading::Accept(const std::string& answer, Sinks& sinks,
                             uint64_t& window_bytes) {
  dcp::ValueArena arena;
  DCP_ASSIGN_OR_RETURN(
      const dcp::PickleResult pickle,
      dcp::ReadPickle(dcp::AsBytes(answer),
                      {.allow_global = dcp::IsStateDictGlobal}, arena));
  const absl::Span<const dcp::Value> fields = pickle.root.items();
  window_bytes = static_cast<uint64_t>(fields[0].int_value());
  for (const dcp::Value& name : fields[1].items()) {
    objects_.absent.insert(std::string(name.text()));
  }
  absl::flat_hash_map<std::string, dcp::Value> values;
  const absl::Span<const dcp::Value> objects = fields[2].items();
  for (size_t i = 0; i + 1 < objects.size(); i += 2) {
    values[std::string(objects[i].text())] = objects[i + 1];
  }
  DCP_RETURN_IF_ERROR(TakeObjects(*wanted_, values, objects_));
  return AddReadParts(*wanted_, *exchange_, objects_.absent, sinks);
}

absl::Status Loading::SendAll(Answers& answers, const Sinks& sinks,
                              uint64_t window_bytes) {
  // Every box once, with all ranks that want it, in the order of the streams.
  struct Target {
    dcp::LoadTensor tensor;
    FanOutSink sink;
  };
  std::map<std::tuple<std::string, dcp::Dims, dcp::Dims, dcp::DType>, Target>
      targets;
  const auto target_of = [&](const dcp::LoadTensor& tensor) -> Target& {
    Target& target = targets[{tensor.fqn, tensor.box.offsets, tensor.box.sizes,
                              tensor.dtype}];
    target.tensor = tensor;
    return target;
  };
  for (const dcp::LoadTensor& tensor : sinks.tensors()) {
    target_of(tensor).sink.AddLocal(tensor.sink);
  }
  std::vector<std::unique_ptr<RankStreamWriter>> streams;
  for (size_t rank = 1; rank < answers.requests.size(); ++rank) {
    uint64_t num_bytes = 0;
    std::vector<Target*> wanted;
    for (const dcp::MetadataEntry& entry : answers.requests[rank].entries) {
      const auto* tensor =
          std::get_if<dcp::TensorStorageMetadata>(&entry.value);
      if (tensor == nullptr || objects_.absent.contains(entry.fqn)) continue;
      for (const dcp::ChunkStorageMetadata& chunk : tensor->chunks) {
        Target& target = target_of({.fqn = entry.fqn,
                                    .dtype = tensor->dtype,
                                    .shape = tensor->size,
                                    .box = chunk.box});
        num_bytes += NumBytes(target.tensor);
        wanted.push_back(&target);
      }
    }
    streams.push_back(std::make_unique<RankStreamWriter>(
        coordinator_, static_cast<int64_t>(rank), num_bytes, window_bytes));
    for (Target* target : wanted) target->sink.AddStream(streams.back().get());
  }
  std::vector<dcp::LoadTensor> tensors;
  for (auto& [key, target] : targets) {
    target.tensor.sink = &target.sink;
    tensors.push_back(target.tensor);
  }
  absl::Status status = answers.source->ReadTensors(
      tensors, {.memory_bytes = MemoryFor(
                    NumBytes(tensors),
                    std::max(options_.memory_bytes / 2, dcp::kMinMemoryBytes)),
                .stop = options_.stop,
                .stats = options_.stats});
  for (const auto& stream : streams) {
    if (status.ok()) {
      status = stream->Finish();
    } else {
      stream->Abandon();
    }
  }
  return status;
}

absl::Status Loading::Receive(const Sinks& sinks, uint64_t window_bytes) {
  std::vector<dcp::LoadTensor> order(sinks.tensors());
  std::sort(order.begin(), order.end(), NameThenPlace);
  const uint64_t num_bytes = NumBytes(order);
  size_t next = 0;
  uint64_t offset = 0;
  return ReadRankStream(
      coordinator_, num_bytes, window_bytes, [&](dcp::ByteSpan bytes) {
        std::vector<dcp::TensorSink*> touched;
        absl::Status status;
        while (!bytes.empty() && status.ok()) {
          const dcp::LoadTensor& tensor = order[next];
          const uint64_t length =
              std::min<uint64_t>(bytes.size(), NumBytes(tensor) - offset);
          if (length > 0) {
            touched.push_back(tensor.sink);
            status = tensor.sink->Place(offset, bytes.first(length));
          }
          offset += length;
          bytes = bytes.subspan(length);
          if (offset == NumBytes(tensor)) {
            ++next;
            offset = 0;
          }
        }
        for (dcp::TensorSink* sink : touched) status.Update(sink->Flush());
        return status;
      });
}

absl::Status Loading::RunFromRank0() {
  DCP_RETURN_IF_ERROR(Meet(Look()));
  const dcp::Metadata request = DescribeWanted(
      *wanted_, [&](size_t tensor) { return exchange_->Reads(tensor); });
  DCP_ASSIGN_OR_RETURN(const std::vector<std::string> requests,
                       coordinator_.Gather(dcp::WriteDcpMetadata(request)));
  const bool is_first = coordinator_.rank() == 0;
  Answers answers;
  DCP_RETURN_IF_ERROR(dcp::Agree(
      coordinator_, is_first ? Answer(requests, answers) : absl::OkStatus()));
  DCP_ASSIGN_OR_RETURN(const std::string answer,
                       coordinator_.Scatter(std::move(answers.texts)));
  Sinks sinks;
  uint64_t window_bytes = 0;
  DCP_RETURN_IF_ERROR(
      dcp::Agree(coordinator_, Accept(answer, sinks, window_bytes)));
  const absl::Status moved = is_first ? SendAll(answers, sinks, window_bytes)
                                      : Receive(sinks, window_bytes);
  DCP_RETURN_IF_ERROR(dcp::Agree(coordinator_, moved));
  return Finish();
}

}  // namespace

absl::Status save(const StateDict& state, const std::string& path,
                  const TorchSaveOptions& options) {
  DCP_RETURN_IF_ERROR(RefuseDaemon(path, "a save"));
  DCP_ASSIGN_OR_RETURN(
      const std::shared_ptr<ProcessGroupCoordinator> coordinator,
      ProcessGroupCoordinator::OfTraining(options.process_group));
  const std::unique_ptr<HeldState> held =
      HoldState(state, coordinator->num_ranks());
  dcp::FileSystem& fs = FileSystemOr(options.file_system);
  dcp::SaveOptions save{.overwrite = options.overwrite,
                        .direct = options.direct,
                        .memory_bytes = options.memory_bytes,
                        .stop = options.stop,
                        .stats = options.stats};
  if (dcp::NamesStateFile(path)) {
    return SaveFile(fs, path, held->state, *coordinator, save);
  }
  save.memory_bytes = MemoryFor(held->share_bytes, options.memory_bytes);
  return dcp::Save(fs, path, held->state, *coordinator, save);
}

absl::Status load(StateDict& state, const std::string& path,
                  const TorchLoadOptions& options) {
  DCP_ASSIGN_OR_RETURN(
      const std::shared_ptr<ProcessGroupCoordinator> coordinator,
      ProcessGroupCoordinator::OfTraining(options.process_group));
  return Loading(state, path, options, *coordinator).Run();
}

absl::Status load_from_rank0(StateDict& state, const std::string& path,
                             const TorchLoadOptions& options) {
  DCP_ASSIGN_OR_RETURN(
      const std::shared_ptr<ProcessGroupCoordinator> coordinator,
      ProcessGroupCoordinator::OfTraining(options.process_group));
  return Loading(state, path, options, *coordinator).RunFromRank0();
}

}  // namespace fsdp
