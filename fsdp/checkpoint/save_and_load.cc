// SPDX-License-Identifier: Apache-2.0
// A load has three steps. Between steps the ranks agree on whether any rank
// failed, so that all take the next step or none does:
//   1. look at the state, open the checkpoint, compare names; meet
//   2. read objects, then the tensors that this rank reads, in steps; agree
//      after each step, and exchange replicas while the next step is read
//   3. give objects back to the state; agree
// Nothing changes before step 2, and plain values only in step 3. With
// load_from_rank0, rank 0 receives and compares all ranks' requests, and sends
// the others the data that they would read (rank0_load).
#include "fsdp/checkpoint/save_and_load.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/base/thread.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/save/state_file.h"
#include "dcp/tensor/metadata.h"
#include "fsdp/checkpoint/file_save.h"
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"
#include "fsdp/checkpoint/ranks/rank0_load.h"
#include "fsdp/checkpoint/ranks/replica_exchange.h"
#include "fsdp/checkpoint/source/checkpoint_source.h"
#include "fsdp/checkpoint/source/default_file_system.h"
#include "fsdp/checkpoint/source/open_source.h"
#include "fsdp/checkpoint/source/target_check.h"
#include "fsdp/checkpoint/state/load_targets.h"
#include "fsdp/checkpoint/state/payload_bytes.h"
#include "fsdp/checkpoint/state/plain_value.h"
#include "fsdp/checkpoint/state/save_sources.h"
#include "fsdp/checkpoint/state/state_leaves.h"
#include "fsdp/checkpoint/state/step_number.h"
#include "fsdp/checkpoint/state/tensor_io.h"

namespace fsdp {
namespace {

constexpr uint64_t kMaxWindowBytes = uint64_t{64} << 20;
// Names in one log line.
constexpr size_t kMostListed = 20;

// The absent names, and the plain values, which are complete before payload
// moves.
struct Objects {
  absl::flat_hash_set<std::string> absent;
  std::vector<std::pair<const StateLeaf*, StateValue>> values;
};

// A load's sinks, with the memory and streams that they need.
class Sinks {
 public:
  absl::Status Add(const TargetTensor& tensor, const LocalPart& part) {
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

SourceOptions MakeSourceOptions(const TorchLoadOptions& options) {
  return {.stop = options.stop,
          .file_system = options.file_system,
          .verify = options.verify,
          .map = options.map,
          .daemon = options.daemon};
}

// For each tensor in `targets`: adds the parts that `exchange` leaves to this
// rank to the tensor's entry in `sinks_of`.
absl::Status AddReadParts(const LoadTargets& targets,
                          const ReplicaExchange& exchange,
                          const absl::flat_hash_set<std::string>& absent,
                          absl::FunctionRef<Sinks&(size_t)> sinks_of) {
  for (size_t i = 0; i < targets.tensors.size(); ++i) {
    const TargetTensor& tensor = targets.tensors[i];
    if (!exchange.Reads(i) || absent.contains(tensor.fqn)) continue;
    Sinks& sinks = sinks_of(i);
    for (const LocalPart& part : tensor.parts) {
      DCP_RETURN_IF_ERROR(dcp::Annotate(sinks.Add(tensor, part), tensor.fqn));
    }
  }
  return absl::OkStatus();
}

absl::Status TakeObjects(
    const LoadTargets& targets,
    const absl::flat_hash_map<std::string, dcp::Value>& values,
    Objects& objects) {
  for (const StateLeaf& leaf : targets.objects) {
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
    const bool decides = status.ok() && !options_.broadcast_to_replicas;
    DCP_RETURN_IF_ERROR(Meet(status, decides ? source->CachedAs() : ""));
    DCP_RETURN_IF_ERROR(ReadAndExchange(*source));
    return Finish();
  }

  absl::Status RunFromRank0();

 private:
  absl::Status Look() {
    DCP_ASSIGN_OR_RETURN(targets_, MakeLoadTargets(state_));
    return absl::OkStatus();
  }

  absl::Status Open(std::unique_ptr<CheckpointSource>& source) {
    DCP_ASSIGN_OR_RETURN(source,
                         OpenSource(path_, MakeSourceOptions(options_)));
    const dcp::Metadata wanted =
        DescribeTargets(*targets_, [](size_t) { return false; });
    DCP_ASSIGN_OR_RETURN(
        objects_.absent,
        CheckTargets(*source, {wanted}, options_.allow_partial_load));
    const auto rank = static_cast<uint32_t>(coordinator_.rank());
    return source->CheckTies(
        {.first = rank,
         .end = rank + 1,
         .count = static_cast<uint32_t>(coordinator_.num_ranks())},
        {.memory_bytes = options_.memory_bytes,
         .stop = options_.stop,
         .stats = options_.stats});
  }

  // See ReplicaExchange::Meet.
  absl::Status Meet(absl::Status status, const std::string& cached_as = "") {
    const ProcessGroup group = options_.process_group || !is_initialized()
                                   ? options_.process_group
                                   : world_group();
    absl::StatusOr<ReplicaExchange> exchange = ReplicaExchange::Make(
        targets_.get(), group, options_.broadcast_to_replicas.value_or(true));
    status.Update(exchange.status());
    if (!exchange.ok()) exchange = ReplicaExchange::Make(nullptr, group, false);
    exchange_ = *std::move(exchange);
    return exchange_->Meet(coordinator_, status, cached_as);
  }

  absl::Status ReadObjects(CheckpointSource& source) {
    absl::flat_hash_set<std::string> names;
    for (const StateLeaf& leaf : targets_->objects) names.insert(leaf.fqn);
    DCP_ASSIGN_OR_RETURN(const auto values,
                         source.ReadObjects(names, options_.stop));
    return TakeObjects(*targets_, values, objects_);
  }

  absl::Status ReadTensors(CheckpointSource& source, const Sinks& sinks) {
    const uint64_t memory_bytes = Overlaps()
                                      ? options_.memory_bytes - WindowBytes()
                                      : options_.memory_bytes;
    return source.ReadTensors(
        sinks.tensors(),
        {.memory_bytes = MemoryFor(PayloadBytes(sinks.tensors()), memory_bytes),
         .stop = options_.stop,
         .stats = options_.stats});
  }

  absl::Status ReadAndExchange(CheckpointSource& source) {
    std::vector<Sinks> steps(exchange_->num_steps());
    absl::Status status = ReadObjects(source);
    if (status.ok()) {
      status = AddReadParts(
          *targets_, *exchange_, objects_.absent,
          [&](size_t i) -> Sinks& { return steps[exchange_->ReadStep(i)]; });
    }
    if (status.ok()) status = ReadTensors(source, steps[0]);
    for (size_t step = 0; step < steps.size(); ++step) {
      DCP_RETURN_IF_ERROR(dcp::Agree(coordinator_, status));
      absl::Status read;
      const auto read_next = [&, step] {
        if (step + 1 == steps.size()) return;
        read = ReadTensors(source, steps[step + 1]);
      };
      absl::StatusOr<dcp::Thread> reader = absl::CancelledError();
      if (Overlaps()) reader = dcp::Thread::Start(read_next);
      status = exchange_->Run(step, objects_.absent, WindowBytes());
      // Without a thread, it is read after the exchange.
      if (reader.ok()) {
        reader->Join();
      } else {
        read_next();
      }
      status.Update(read);
    }
    return dcp::Agree(coordinator_, status);
  }

  uint64_t WindowBytes() const {
    return std::clamp<uint64_t>(options_.memory_bytes / 2, 1, kMaxWindowBytes);
  }

  // Whether there is enough memory to read during an exchange.
  bool Overlaps() const {
    return exchange_->num_steps() > 1 &&
           options_.memory_bytes >= WindowBytes() + dcp::kMinMemoryBytes;
  }

  absl::Status Finish() {
    for (auto& [leaf, value] : objects_.values) {
      *leaf->value = std::move(value);
    }
    LogAbsent();
    for (const TargetTensor& tensor : targets_->tensors) {
      if (!objects_.absent.contains(tensor.fqn)) StepWasLoaded(tensor.local);
    }
    return dcp::Agree(coordinator_, RestoreState(targets_->expanded, state_));
  }

  // Tensors that were left alone may have no values yet, as after to_empty.
  void LogAbsent() const {
    if (objects_.absent.empty()) return;
    std::vector<std::string> names(objects_.absent.begin(),
                                   objects_.absent.end());
    std::sort(names.begin(), names.end());
    const size_t num_more = names.size() - std::min(names.size(), kMostListed);
    names.resize(names.size() - num_more);
    DCP_LOG(kWarning) << "event=partial_load rank=" << coordinator_.rank()
                      << " path=" << path_
                      << " lacks=" << absl::StrJoin(names, ",")
                      << (num_more > 0
                              ? absl::StrCat(" and ", num_more, " more")
                              : "");
  }

  StateDict& state_;
  const std::string path_;
  const TorchLoadOptions& options_;
  ProcessGroupCoordinator& coordinator_;
  std::unique_ptr<LoadTargets> targets_;
  std::optional<ReplicaExchange> exchange_;
  Objects objects_;
};

absl::Status Loading::RunFromRank0() {
  DCP_RETURN_IF_ERROR(Meet(Look()));
  Rank0Load transfer(coordinator_,
                     {.allow_partial = options_.allow_partial_load,
                      .memory_bytes = options_.memory_bytes,
                      .stop = options_.stop,
                      .stats = options_.stats});
  DCP_RETURN_IF_ERROR(transfer.Ask(
      DescribeTargets(*targets_,
                      [&](size_t tensor) { return exchange_->Reads(tensor); }),
      [&] { return OpenSource(path_, MakeSourceOptions(options_)); }));
  objects_.absent = transfer.absent();
  Sinks sinks;
  absl::Status status = TakeObjects(*targets_, transfer.objects(), objects_);
  if (status.ok()) {
    status = AddReadParts(*targets_, *exchange_, objects_.absent,
                          [&](size_t) -> Sinks& { return sinks; });
  }
  DCP_RETURN_IF_ERROR(dcp::Agree(coordinator_, status));
  DCP_RETURN_IF_ERROR(transfer.Move(sinks.tensors()));
  for (size_t step = 0; step < exchange_->num_steps() && status.ok(); ++step) {
    status = exchange_->Run(step, objects_.absent, WindowBytes());
  }
  DCP_RETURN_IF_ERROR(dcp::Agree(coordinator_, status));
  return Finish();
}

}  // namespace

absl::Status save(const StateDict& state, const std::string& path,
                  const TorchSaveOptions& options) {
  DCP_RETURN_IF_ERROR(RefuseDaemon(path, "a save"));
  DCP_ASSIGN_OR_RETURN(
      const std::shared_ptr<ProcessGroupCoordinator> coordinator,
      ProcessGroupCoordinator::ForTraining(options.process_group));
  const std::unique_ptr<SaveSources> sources =
      MakeSaveSources(state, coordinator->num_ranks());
  dcp::FileSystem& fs = FileSystemOr(options.file_system);
  dcp::SaveOptions save{.overwrite = options.overwrite,
                        .direct = options.direct,
                        .memory_bytes = options.memory_bytes,
                        .max_rate = options.max_rate,
                        .stop = options.stop,
                        .stats = options.stats};
  if (dcp::NamesStateFile(path)) {
    return SaveFile(fs, path, sources->state, *coordinator, save);
  }
  save.memory_bytes = MemoryFor(sources->share_bytes, options.memory_bytes);
  return dcp::Save(fs, path, sources->state, *coordinator, save);
}

absl::Status load(StateDict& state, const std::string& path,
                  const TorchLoadOptions& options) {
  DCP_ASSIGN_OR_RETURN(
      const std::shared_ptr<ProcessGroupCoordinator> coordinator,
      ProcessGroupCoordinator::ForTraining(options.process_group));
  return Loading(state, path, options, *coordinator).Run();
}

absl::Status load_from_rank0(StateDict& state, const std::string& path,
                             const TorchLoadOptions& options) {
  DCP_ASSIGN_OR_RETURN(
      const std::shared_ptr<ProcessGroupCoordinator> coordinator,
      ProcessGroupCoordinator::ForTraining(options.process_group));
  return Loading(state, path, options, *coordinator).RunFromRank0();
}

}  // namespace fsdp
