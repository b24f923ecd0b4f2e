// SPDX-License-Identifier: Apache-2.0
// A save, in time order:
//   1. with a plan from the cache: copy, as much as memory holds
//   2. the ranks meet and get their orders (save_exchange.cc); without a plan,
//      or when another rank has none, copying begins now
//   3. on_staged, when everything is copied; checksums, and the rank's file
//   4. all agree that all files are written, or on the first error
//   5. every rank sends digests and .metadata for the files that it wrote; rank
//      0 merges and commits them; all agree on the result
// After an error, rank 0 removes the files of all ranks: none is being written
// any more, and only rank 0 knows how far the commit came.
//
// Steps 1 to 3 are WriteByOrders for a rank without a plan, and WriteByPlan for
// one that has it; Run has the rest.
#include "dcp/checkpoint/save/save.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/save_id.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/output/dcp_output.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/checkpoint/save/metadata_builder.h"
#include "dcp/checkpoint/save/save_exchange.h"
#include "dcp/checkpoint/write/image_transfer.h"
#include "dcp/checkpoint/write/staged_transfer.h"
#include "dcp/format/index/dcp_metadata.h"
#include "dcp/format/index/dcp_metadata_writer.h"
#include "dcp/format/pickle/pickle_writer.h"

namespace dcp {
namespace {

using Phase = SaveExchange::Phase;

// Checks rules that the types in SaveState do not enforce. Rank 0 checks all
// ranks together.
absl::Status CheckState(const SaveState& state) {
  DCP_RETURN_IF_ERROR(state.status);
  absl::flat_hash_map<absl::string_view, const SaveTensor*> by_name;
  absl::flat_hash_set<std::pair<absl::string_view, Dims>> begins;
  for (const SaveTensor& tensor : state.tensors) {
    if (!CheckedVolume(tensor.shape).has_value() ||
        !Contains(WholeBox(tensor.shape), tensor.box)) {
      return absl::InvalidArgumentError(
          absl::StrCat(tensor.fqn, ": ", ToString(tensor.box),
                       " is not inside shape ", ShapeToString(tensor.shape)));
    }
    const SaveTensor& first =
        *by_name.emplace(tensor.fqn, &tensor).first->second;
    if (first.dtype != tensor.dtype || first.shape != tensor.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          tensor.fqn, " is listed as ", TorchName(first.dtype), " ",
          ShapeToString(first.shape), " and as ", TorchName(tensor.dtype), " ",
          ShapeToString(tensor.shape)));
    }
    if (!begins.emplace(tensor.fqn, tensor.box.offsets).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(tensor.fqn, ": two parts begin at ",
                       ShapeToString(tensor.box.offsets)));
    }
  }
  absl::flat_hash_set<absl::string_view> objects;
  for (const SaveObject& object : state.objects) {
    if (by_name.contains(object.fqn) || !objects.insert(object.fqn).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(object.fqn, " is listed twice"));
    }
  }
  return absl::OkStatus();
}

// A state's items are first the tensors, then the objects.
size_t NumItems(const SaveState& state) {
  return state.tensors.size() + state.objects.size();
}

// Adds item `item` of `state` to `file`.
StorageInfo AddItem(const SaveState& state, size_t item, DcpFileBuilder& file) {
  if (item < state.tensors.size()) {
    const SaveTensor& tensor = state.tensors[item];
    return file.AddTensor(
        {.source = tensor.source, .box = tensor.box, .dtype = tensor.dtype});
  }
  const SaveObject& object = state.objects[item - state.tensors.size()];
  return file.AddObject(WritePickle(object.value), {});
}

class Saver {
 public:
  Saver(FileSystem& fs, absl::string_view path, const SaveState& state,
        Coordinator& coordinator, const SaveOptions& options)
      : fs_(fs),
        path_(path),
        state_(state),
        coordinator_(coordinator),
        options_(options),
        exchange_(fs, path, state, coordinator, options.overwrite,
                  options.plan_cache) {}

  absl::Status Run() {
    const absl::Status written = exchange_.has_plan()
                                     ? WriteByPlan()
                                     : WriteByOrders(CheckState(state_));
    if (exchange_.phase() == Phase::kOver) return exchange_.status();
    DCP_RETURN_IF_ERROR(Agree(coordinator_, written));
    DCP_ASSIGN_OR_RETURN(
        const std::vector<std::string> all,
        coordinator_.Gather(absl::StrCat(
            WriteDigests(digests_), WriteDcpMetadata(written_.metadata()))));
    const absl::Status committed =
        coordinator_.rank() == 0 ? Commit(all) : absl::OkStatus();
    return Agree(coordinator_, committed);
  }

 private:
  // Meets, gets the order, then copies and writes. `mine` is this rank's status
  // so far.
  absl::Status WriteByOrders(const absl::Status& mine) {
    DCP_RETURN_IF_ERROR(exchange_.Meet(mine));
    return ReceiveAndWrite();
  }

  absl::Status ReceiveAndWrite() {
    DCP_RETURN_IF_ERROR(exchange_.Receive(absl::OkStatus()));
    return WriteFile({.on_staged = [this] { return ReportStaged(); },
                      .open = [this] { return Begin(); }});
  }

  // Copies before it meets and gets the order. Whatever ends the transfer, this
  // rank takes part in both steps, because the others wait for it.
  absl::Status WriteByPlan() {
    absl::Status mine =
        WriteFile({.on_staged = [this] { return MeetAndReportStaged(); },
                   .open = [this] { return MeetAndBegin(); }});
    if (exchange_.phase() == Phase::kBegun) {
      DCP_RETURN_IF_ERROR(exchange_.Meet(mine));
    }
    if (exchange_.phase() != Phase::kMet) return mine;
    // Another rank has no plan: the copied data is dropped.
    if (!exchange_.has_plan()) return ReceiveAndWrite();
    DCP_CHECK(!mine.ok());  // or the transfer had asked for the order
    exchange_.Receive(mine).IgnoreError();
    return mine;
  }

  // See [Note: staged after the meeting] in save_exchange.cc.
  absl::Status MeetAndReportStaged() {
    DCP_RETURN_IF_ERROR(MeetOnce());
    return ReportStaged();
  }

  absl::StatusOr<Destination*> MeetAndBegin() {
    DCP_RETURN_IF_ERROR(MeetOnce());
    DCP_RETURN_IF_ERROR(exchange_.Receive(absl::OkStatus()));
    return Begin();
  }

  // Meets unless the other step has; an error if the plan is not kept.
  absl::Status MeetOnce() {
    if (exchange_.phase() == Phase::kBegun) {
      DCP_RETURN_IF_ERROR(exchange_.Meet(absl::OkStatus()));
    }
    if (exchange_.has_plan()) return absl::OkStatus();
    return absl::CancelledError("the ranks plan again");
  }

  absl::Status ReportStaged() {
    if (options_.on_staged != nullptr) options_.on_staged();
    return absl::OkStatus();
  }

  // The order is here: names the file, and returns the destination.
  absl::StatusOr<Destination*> Begin() {
    output_.files[0].layout.set_name(exchange_.file_name());
    written_.metadata().files.push_back(exchange_.file_name());
    return exchange_.destination();
  }

  // Copies and writes this rank's items.
  absl::Status WriteFile(const StagingSteps& steps) {
    output_ = Output();
    output_.needs_crcs = true;
    output_.needs_digests = true;
    written_ = MetadataBuilder();
    DcpFileBuilder file("", output_.payloads);
    for (const size_t item : exchange_.items()) {
      const StorageInfo storage = AddItem(state_, item, file);
      if (item < state_.tensors.size()) {
        written_.AddChunk(state_.tensors[item], storage);
      } else {
        written_.AddObject(state_.objects[item - state_.tensors.size()],
                           storage);
      }
    }
    output_.files.push_back(std::move(file).Finish());
    TransferStats own_stats;
    DCP_ASSIGN_OR_RETURN(const OutputBlocks blocks,
                         OutputBlocksFor(fs_, path_, output_));
    DCP_ASSIGN_OR_RETURN(
        digests_,
        StageAndTransfer(
            fs_, output_, steps,
            {.direct = options_.direct,
             .memory_bytes = std::max(options_.memory_bytes,
                                      kMinBlocks * blocks.block_bytes),
             .block_bytes = blocks.block_bytes,
             .pool = options_.pool,
             .max_rate = options_.max_rate,
             .stop = options_.stop},
            options_.stats != nullptr ? *options_.stats : own_stats));
    return absl::OkStatus();
  }

  // Called on rank 0.
  absl::Status Commit(const std::vector<std::string>& all) {
    MetadataBuilder merged;
    std::vector<ChunkDigest> digests;
    for (const std::string& text : all) {
      DCP_ASSIGN_OR_RETURN(const size_t length, DigestsLength(text));
      DCP_ASSIGN_OR_RETURN(
          std::vector<ChunkDigest> some,
          ParseDigests(absl::string_view(text).substr(0, length)));
      std::move(some.begin(), some.end(), std::back_inserter(digests));
      DCP_ASSIGN_OR_RETURN(
          Metadata metadata,
          ParseDcpMetadata(AsBytes(absl::string_view(text).substr(length))));
      DCP_RETURN_IF_ERROR(merged.Merge(std::move(metadata)));
    }
    // Complements the check of the plan: only whole tensors become a
    // checkpoint.
    DCP_RETURN_IF_ERROR(merged.CheckWhole());
    merged.metadata().save_id = NewSaveId();
    return exchange_.destination()->Commit(
        kDcpMetadataName, WriteDcpMetadata(merged.metadata()),
        DigestsName(merged.metadata().save_id), digests);
  }

  // The digests end with a line that begins with "end"; the pickle follows.
  static absl::StatusOr<size_t> DigestsLength(absl::string_view text) {
    const size_t end = text.find("\nend ");
    const size_t newline =
        end == absl::string_view::npos ? end : text.find('\n', end + 1);
    if (newline == absl::string_view::npos) {
      return absl::DataLossError(
          "expected the digests of a rank, found something else");
    }
    return newline + 1;
  }

  FileSystem& fs_;
  const absl::string_view path_;
  const SaveState& state_;
  Coordinator& coordinator_;
  const SaveOptions& options_;
  SaveExchange exchange_;
  Output output_;  // this rank's file
  MetadataBuilder written_;
  std::vector<ChunkDigest> digests_;
};

}  // namespace

absl::Status Save(FileSystem& fs, absl::string_view path,
                  const SaveState& state, Coordinator& coordinator,
                  const SaveOptions& options) {
  return Saver(fs, path, state, coordinator, options).Run();
}

uint64_t StagingBytes(const SaveState& state) {
  std::vector<Payload> payloads;
  DcpFileBuilder file("", payloads);
  for (size_t item = 0; item < NumItems(state); ++item) {
    AddItem(state, item, file);
  }
  return std::max(AlignUp(file.size(), kBlockBytes), kMinMemoryBytes);
}

}  // namespace dcp
