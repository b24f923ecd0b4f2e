// A lane takes its files in waves, and the files of a wave one after the other,
// block by block. A batch is a few consecutive blocks; their windows are
// planned together.
//
// [Note: interleaving] When a tensor stored in rows is written in columns, each
// output file needs a stripe of every row. File by file, the source would be
// read once per file. In that case the files of a wave advance side by side:
// the next block is always that of the file that has advanced least in the
// sequence of tensors. The blocks of one batch then need the same stretch of
// the source, which is read once for all of them. For that, every file must
// have a part in every batch, the same number of times: if there are more files
// than blocks, the blocks are cut into pieces.
//
// [Note: steps] A transfer that must survive a kill completes files early: a
// wave ends when enough is written. Files that advance side by side still form
// one wave, because otherwise their source would be read again for each.
//
// [Note: staging] A trainer waits only until its tensors are copied. So blocks
// are copied from sources, one batch after the other, as long as the pool has
// free ones; the file is created only when the first of them is filled in
// order. Here a batch is one block: there is nothing to plan together, and this
// uses the last blocks of the pool too.
#include "dcp/checkpoint/write/image_transfer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "dcp/base/check.h"
#include "dcp/base/checksum.h"
#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/read/window_planner.h"
#include "dcp/io/lane.h"
#include "dcp/plan/chunk_index.h"

namespace dcp {
namespace {

// True when `part` of a row-major `whole` is not one contiguous stretch.
bool IsStriped(const Box& whole, const Box& part) {
  size_t dim = 0;
  while (dim < whole.sizes.size() && part.sizes[dim] == 1) ++dim;
  for (++dim; dim < whole.sizes.size(); ++dim) {
    if (part.sizes[dim] != whole.sizes[dim]) return true;
  }
  return false;
}

// Whether one of `payloads`, all from one stored tensor, needs stripes of what
// is stored.
bool TakesStripes(const TensorEntry& stored,
                  absl::Span<const Payload* const> payloads) {
  const ChunkIndex index(stored.boxes);
  bool striped = false;
  for (const Payload* payload : payloads) {
    index.ForEachOverlap(payload->box, [&](size_t chunk, const Box& overlap) {
      striped = striped || IsStriped(stored.boxes[chunk], overlap);
    });
    if (striped) return true;
  }
  return false;
}

// Goes tensor by tensor, so that the index of each is built only once.
bool NeedsInterleaving(const Output& output) {
  if (output.files.size() < 2) return false;
  std::vector<const Payload*> payloads;
  for (const Payload& payload : output.payloads) {
    if (payload.stored != nullptr) payloads.push_back(&payload);
  }
  const auto is_before = [](const Payload* a, const Payload* b) {
    return std::less<>()(a->stored, b->stored);
  };
  std::sort(payloads.begin(), payloads.end(), is_before);
  const absl::Span<const Payload* const> all(payloads);
  for (size_t first = 0; first < all.size();) {
    size_t last = first + 1;
    while (last < all.size() && all[last]->stored == all[first]->stored) ++last;
    if (TakesStripes(*all[first]->stored, all.subspan(first, last - first))) {
      return true;
    }
    first = last;
  }
  return false;
}

// An output file in progress.
struct OutputState {
  uint32_t index = 0;  // its number in the output
  OutputFile* spec = nullptr;
  File file;
  uint64_t next_offset = 0;  // where the next block to plan begins
  size_t next_part = 0;      // the part at next_offset, or just before
  // For filling, which follows in the same order:
  std::vector<uint32_t> crcs;  // of the parts' payloads
  size_t literal_part = SIZE_MAX;
  std::string literal;  // that of literal_part
  Digest64 digest;
  std::vector<ChunkDigest> digests;  // those of complete payloads

  bool planned() const { return next_offset >= spec->layout.size(); }
};

// Where in a batch a stretch of one file goes.
struct Slot {
  uint32_t block;
  uint64_t position;  // in the block
  uint64_t length;
};

// A stretch of a block that is all literal or all of one payload.
struct Piece {
  OutputState* state;
  uint32_t block;
  uint64_t position;  // in the block
  size_t part;
  bool literal;
  uint64_t begin;  // in the literal or the payload
  uint64_t end;
};

class LaneTransfer {
 public:
  // Where the files go; at most one member is set.
  struct Target {
    Destination* destination = nullptr;
    const StagingSteps* staging = nullptr;
    ByteStream* stream = nullptr;
  };

  LaneTransfer(FileSystem& fs, Output& output, const Target& target,
               const ImageTransferOptions& options, bool interleave,
               absl::Mutex& mutex, std::vector<ChunkDigest>& digests,
               TransferStats& stats)
      : fs_(fs),
        output_(output),
        destination_(target.destination),
        steps_(target.staging),
        stream_(target.stream),
        options_(options),
        interleave_(interleave),
        mutex_(mutex),
        digests_(digests),
        stats_(stats),
        planner_(options.check) {}

  absl::Status Run(Lane& lane, absl::Span<const uint32_t> files,
                   std::stop_token stop) {
    while (!files.empty()) {
      const size_t num_files = WaveSize(files);
      const absl::Status status = RunWave(lane, files.first(num_files), stop);
      files.remove_prefix(num_files);
      AddNumBeyond();
      for (const auto& state : wave_) {
        if (state->file.handle >= 0) fs_.Close(state->file).IgnoreError();
      }
      wave_.clear();
      created_ = false;
      DCP_RETURN_IF_ERROR(status);
    }
    return absl::OkStatus();
  }

  // The bytes that Run would read for these files on a lane of `num_blocks`
  // blocks. The blocks are only used for planning; their memory is not touched.
  absl::StatusOr<uint64_t> CountReads(uint64_t num_blocks,
                                      absl::Span<const uint32_t> files) {
    planner_.TellOfPlans();
    BlockPool pool(BlocksPerBatch(num_blocks));
    uint64_t num_bytes = 0;
    while (!files.empty()) {
      const size_t num_files = WaveSize(files);
      StartWave(files.first(num_files));
      files.remove_prefix(num_files);
      bool more = true;
      while (more) {
        if (options_.stop.stop_requested()) {
          return absl::CancelledError("stopped");
        }
        Batch batch;
        while (pool.num_free() > 0) batch.blocks.push_back(pool.TryAcquire());
        DCP_ASSIGN_OR_RETURN(more, NextBatch(batch));
        for (const PlannedRead& read : batch.reads) num_bytes += read.length;
      }
      wave_.clear();
    }
    return num_bytes;
  }

 private:
  uint64_t BlocksPerBatch(uint64_t num_blocks) const {
    if (steps_ != nullptr) return 1;
    return std::max<uint64_t>(num_blocks / (interleave_ ? 4 : 8), 1);
  }

  void StartWave(absl::Span<const uint32_t> files) {
    for (const uint32_t file : files) {
      auto state = std::make_unique<OutputState>();
      state->index = file;
      state->spec = &output_.files[file];
      state->crcs.resize(state->spec->layout.parts().size());
      wave_.push_back(std::move(state));
    }
  }

  // See [Note: steps].
  size_t WaveSize(absl::Span<const uint32_t> files) const {
    const size_t most = std::min<size_t>(files.size(), kMaxOpenOutputs);
    if (options_.steps == nullptr || interleave_) return most;
    uint64_t bytes = 0;
    for (size_t i = 0; i < most; ++i) {
      bytes += output_.files[files[i]].layout.size();
      if (bytes >= options_.steps->step_bytes) return i + 1;
    }
    return most;
  }

  absl::Status RunWave(Lane& lane, absl::Span<const uint32_t> files,
                       std::stop_token stop) {
    StartWave(files);
    if (steps_ == nullptr && stream_ == nullptr) {
      DCP_RETURN_IF_ERROR(CreateFiles());
    }
    const absl::Status moved = RunPipeline(
        *lane.queue, lane.pool, BlocksPerBatch(lane.pool.num_blocks()),
        [this](Batch& batch) { return NextBatch(batch); },
        [this](FileHandle handle) { return Describe(handle); }, stop, stats_);
    if (!moved.ok()) {
      FlushSources().IgnoreError();
      return moved;
    }
    if (options_.strict_cast && FoundBeyond()) {
      return absl::FailedPreconditionError("a cast is beyond the range");
    }
    if (stream_ != nullptr) return absl::OkStatus();
    DCP_RETURN_IF_ERROR(CreateFiles());  // those that have no bytes
    for (const auto& state : wave_) {
      DCP_RETURN_IF_ERROR(WithSide(Finish(*state), ErrorSide::kDestination));
      DCP_RETURN_IF_ERROR(Report(*state));
    }
    return absl::OkStatus();
  }

  // Reports that the file is durable.
  absl::Status Report(OutputState& state) {
    absl::MutexLock lock(&mutex_);
    digests_.insert(digests_.end(), state.digests.begin(), state.digests.end());
    if (options_.steps == nullptr) return absl::OkStatus();
    return options_.steps->on_file(
        state.index,
        {.digests = state.digests, .num_beyond = NumBeyondOf(*state.spec)});
  }

  // The counts for the payloads of a file of this wave.
  std::vector<NumBeyond> NumBeyondOf(const OutputFile& file) const {
    std::vector<NumBeyond> found;
    if (num_beyond_.empty()) return found;
    for (const LayoutPart& part : file.layout.parts()) {
      if (part.payload_length == 0) continue;
      const uint64_t count = num_beyond_[part.payload];
      if (count > 0) found.push_back({part.payload, count});
    }
    return found;
  }

  // Where elements of a payload that are beyond the range are counted.
  uint64_t* CounterOf(uint32_t payload) {
    const Payload& spec = output_.payloads[payload];
    if (options_.num_beyond == nullptr || spec.stored->dtype == spec.dtype) {
      return nullptr;
    }
    num_beyond_.resize(output_.payloads.size());
    return &num_beyond_[payload];
  }

  bool FoundBeyond() const {
    return std::any_of(num_beyond_.begin(), num_beyond_.end(),
                       [](uint64_t count) { return count > 0; });
  }

  void AddNumBeyond() {
    if (num_beyond_.empty()) return;
    absl::MutexLock lock(&mutex_);
    for (size_t i = 0; i < num_beyond_.size(); ++i) {
      (*options_.num_beyond)[i] += num_beyond_[i];
    }
    num_beyond_.clear();
  }

  // After this, nothing is being copied into the lane's blocks any more.
  absl::Status FlushSources() {
    absl::Status status;
    for (const auto& state : wave_) {
      for (const LayoutPart& part : state->spec->layout.parts()) {
        if (part.payload_length == 0) continue;
        TensorSource* source = output_.payloads[part.payload].source;
        if (source != nullptr) status.Update(source->Flush());
      }
    }
    return status;
  }

  // Does its work once per wave; see [Note: staging].
  absl::Status CreateFiles() {
    if (created_) return absl::OkStatus();
    created_ = true;
    if (destination_ == nullptr) {
      DCP_ASSIGN_OR_RETURN(destination_, steps_->open());
    }
    for (const auto& state : wave_) {
      DCP_RETURN_IF_ERROR(WithSide(Create(*state), ErrorSide::kDestination));
    }
    return absl::OkStatus();
  }

  absl::Status Create(OutputState& state) {
    const FileLayout& layout = state.spec->layout;
    DCP_ASSIGN_OR_RETURN(state.file,
                         fs_.Create(destination_->PathOf(layout.name()),
                                    layout.size(), options_.direct));
    absl::MutexLock lock(&mutex_);
    destination_->Created(layout.name());
    return absl::OkStatus();
  }

  absl::Status Finish(OutputState& state) {
    return Annotate(CloseDurably(state),
                    destination_->PathOf(state.spec->layout.name()),
                    " could not be made durable, so the checkpoint did not "
                    "appear; check its disk and run again");
  }

  absl::Status CloseDurably(OutputState& state) {
    if (state.spec->head != nullptr) {
      DCP_RETURN_IF_ERROR(
          fs_.Write(state.file, 0, AsBytes(state.spec->head(state.digests))));
    }
    // The last block of a direct file was padded.
    DCP_RETURN_IF_ERROR(fs_.Truncate(state.file, state.spec->layout.size()));
    DCP_RETURN_IF_ERROR(fs_.Sync(state.file));
    return fs_.Close(std::exchange(state.file, File()));
  }

  std::string Describe(FileHandle handle) const {
    for (const auto& state : wave_) {
      if (state->file.handle == handle) {
        return destination_->PathOf(state->spec->layout.name());
      }
    }
    for (const Payload& payload : output_.payloads) {
      if (payload.files == nullptr) continue;
      const std::string name = payload.files->Describe(handle);
      if (!name.empty()) return name;
    }
    return "?";
  }

  absl::StatusOr<bool> NextBatch(Batch& batch) {
    // The callback of this batch owns it.
    auto pieces = std::make_unique<std::vector<Piece>>();
    const uint64_t slot_bytes = SlotBytes(batch.blocks.size());
    const uint64_t per_block = kBlockBytes / slot_bytes;
    const uint64_t num_slots = NumSlots(batch.blocks.size() * per_block);
    for (uint64_t i = 0; i < num_slots; ++i) {
      OutputState* state = NextFile();
      if (state == nullptr) break;
      const Slot slot{.block = static_cast<uint32_t>(i / per_block),
                      .position = i % per_block * slot_bytes,
                      .length = slot_bytes};
      DCP_RETURN_IF_ERROR(PlanSlot(*state, slot, batch, *pieces));
    }
    if (steps_ != nullptr && !staged_ && NumUnplanned() == 0) {
      staged_ = true;
      DCP_RETURN_IF_ERROR(FlushSources());
      DCP_RETURN_IF_ERROR(steps_->on_staged());
    }
    if (pieces->empty()) return false;
    DCP_RETURN_IF_ERROR(planner_.Finish(batch));
    batch.on_filled = [this, &batch, pieces = std::move(pieces)](
                          std::vector<Block>& blocks) -> absl::Status {
      if (!created_ && stream_ == nullptr) DCP_RETURN_IF_ERROR(CreateFiles());
      if (steps_ != nullptr) {
        for (PlannedWrite& write : batch.writes) write.file = wave_[0]->file;
      }
      for (const Piece& piece : *pieces) {
        DCP_RETURN_IF_ERROR(Fill(piece, blocks[piece.block].data()));
      }
      return stream_ != nullptr ? Stream(batch, blocks) : absl::OkStatus();
    };
    return true;
  }

  // Replaces the batch's writes, which are in the order of the file.
  absl::Status Stream(Batch& batch, std::vector<Block>& blocks) {
    for (const PlannedWrite& write : batch.writes) {
      const ByteSpan bytes(blocks[write.block].data() + write.position,
                           write.length);
      DCP_RETURN_IF_ERROR(WithSide((*stream_)(bytes), ErrorSide::kDestination));
      stats_.bytes_written += write.length;
      ++stats_.num_writes;
    }
    batch.writes.clear();
    return absl::OkStatus();
  }

  uint64_t NumUnplanned() const {
    return static_cast<uint64_t>(
        std::count_if(wave_.begin(), wave_.end(),
                      [](const auto& state) { return !state->planned(); }));
  }

  // How much of a file is planned at once. See [Note: interleaving].
  uint64_t SlotBytes(uint64_t num_blocks) const {
    if (!interleave_) return kBlockBytes;
    const uint64_t num_files = std::max<uint64_t>(NumUnplanned(), 1);
    const uint64_t share = std::bit_floor(num_blocks * kBlockBytes / num_files);
    return std::clamp(share, kDirectAlignment, kBlockBytes);
  }

  // How many of `most` slots are used: the same number for each file.
  uint64_t NumSlots(uint64_t most) const {
    if (!interleave_) return most;
    const uint64_t num_files = std::clamp<uint64_t>(NumUnplanned(), 1, most);
    return most - most % num_files;
  }

  // See [Note: interleaving].
  OutputState* NextFile() {
    OutputState* next = nullptr;
    std::pair<uint32_t, double> next_key;
    for (const auto& state : wave_) {
      if (state->planned()) continue;
      if (!interleave_) return state.get();
      const std::pair<uint32_t, double> key = SequenceKey(*state);
      if (next == nullptr || key < next_key) {
        next = state.get();
        next_key = key;
      }
    }
    return next;
  }

  // How far the file is in the sequence of tensors: the tensor, and the share
  // of it.
  std::pair<uint32_t, double> SequenceKey(const OutputState& state) const {
    const std::vector<LayoutPart>& parts = state.spec->layout.parts();
    for (size_t i = state.next_part; i < parts.size(); ++i) {
      if (parts[i].payload_length == 0) continue;
      const uint64_t begin = parts[i].payload_offset();
      const double done =
          state.next_offset <= begin
              ? 0
              : static_cast<double>(state.next_offset - begin) /
                    static_cast<double>(parts[i].payload_length);
      return {output_.payloads[parts[i].payload].entry, done};
    }
    return {UINT32_MAX, 1};
  }

  absl::Status PlanSlot(OutputState& state, const Slot& slot, Batch& batch,
                        std::vector<Piece>& pieces) {
    const FileLayout& layout = state.spec->layout;
    const uint64_t offset = state.next_offset;
    const uint64_t length = std::min(slot.length, layout.size() - offset);
    uint64_t position = slot.position;
    absl::Status status;
    layout.ForEachPiece(
        offset, length,
        [&](size_t part, bool literal, uint64_t begin, uint64_t end) {
          const Piece piece{&state,  slot.block, position, part,
                            literal, begin,      end};
          pieces.push_back(piece);
          if (!literal) {
            status.Update(
                PlanPayload(layout.parts()[part], piece,
                            batch.blocks[slot.block].data() + position));
          }
          position += end - begin;
        });
    DCP_RETURN_IF_ERROR(status);
    DCP_CHECK(position == slot.position + length, layout.name(), " at ",
              offset);
    state.next_offset += length;
    while (state.next_part + 1 < layout.parts().size() &&
           layout.parts()[state.next_part].end() <= state.next_offset) {
      ++state.next_part;
    }
    batch.writes.push_back({.file = state.file,
                            .offset = offset,
                            .length = length,
                            .block = slot.block,
                            .position = slot.position});
    return absl::OkStatus();
  }

  absl::Status PlanPayload(const LayoutPart& part, const Piece& piece,
                           uint8_t* dst) {
    const Payload& payload = output_.payloads[part.payload];
    const uint64_t length = piece.end - piece.begin;
    if (payload.source != nullptr) {
      return payload.source->Fill(piece.begin, MutableByteSpan(dst, length));
    }
    const uint64_t element = ElementSize(payload.dtype);
    DCP_CHECK(piece.begin % element == 0 && length % element == 0,
              piece.state->spec->layout.name(), " begin=", piece.begin,
              " length=", length);
    planner_.Add(*payload.stored, *payload.files, payload.box, payload.dtype,
                 piece.begin / element, length / element, dst,
                 CounterOf(part.payload));
    return absl::OkStatus();
  }

  // Runs in the order of the file, because literals may use the checksums of
  // what comes before them.
  absl::Status Fill(const Piece& piece, uint8_t* block) {
    OutputState& state = *piece.state;
    const LayoutPart& part = state.spec->layout.parts()[piece.part];
    const MutableByteSpan bytes(block + piece.position,
                                piece.end - piece.begin);
    if (piece.literal) {
      if (state.literal_part != piece.part) {
        state.literal = state.spec->literal(piece.part, state.crcs);
        state.literal_part = piece.part;
        DCP_CHECK(state.literal.size() == part.literal_length,
                  state.spec->layout.name(), " part ", piece.part);
      }
      std::memcpy(bytes.data(), state.literal.data() + piece.begin,
                  bytes.size());
      return absl::OkStatus();
    }
    TensorSource* source = output_.payloads[part.payload].source;
    if (source != nullptr && !staged_) DCP_RETURN_IF_ERROR(source->Flush());
    if (output_.needs_crcs) {
      state.crcs[piece.part] = ExtendCrc32(state.crcs[piece.part], bytes);
    }
    if (output_.needs_digests) UpdateDigest(piece, part, bytes);
    return absl::OkStatus();
  }

  void UpdateDigest(const Piece& piece, const LayoutPart& part,
                    ByteSpan bytes) {
    OutputState& state = *piece.state;
    if (piece.begin == 0) state.digest.Reset();
    state.digest.Update(bytes);
    if (piece.end < part.payload_length) return;
    state.digests.push_back({.file = state.spec->layout.name(),
                             .offset = part.payload_offset(),
                             .length = part.payload_length,
                             .digest = state.digest.Value()});
  }

  FileSystem& fs_;
  Output& output_;
  Destination* destination_;  // Created() is called under mutex_
  const StagingSteps* const steps_;
  ByteStream* const stream_;
  const ImageTransferOptions& options_;
  const bool interleave_;
  absl::Mutex& mutex_;
  std::vector<ChunkDigest>& digests_;  // under mutex_
  TransferStats& stats_;
  WindowPlanner planner_;
  std::vector<uint64_t> num_beyond_;  // those of this wave by payload, or empty
  std::vector<std::unique_ptr<OutputState>> wave_;
  bool created_ = false;  // the files of the wave were created
  bool staged_ = false;
};

// The files of each lane, distributed by bytes; each lane's stay in order.
std::vector<std::vector<uint32_t>> SpreadFiles(
    const Output& output, const ImageTransferOptions& options) {
  const uint32_t num_lanes = options.num_lanes;
  std::vector<uint32_t> by_size;
  for (uint32_t i = 0; i < output.files.size(); ++i) {
    const bool kept = options.steps != nullptr &&
                      !options.steps->kept.empty() && options.steps->kept[i];
    if (!kept) by_size.push_back(i);
  }
  std::stable_sort(by_size.begin(), by_size.end(), [&](uint32_t a, uint32_t b) {
    return output.files[a].layout.size() > output.files[b].layout.size();
  });
  std::vector<std::vector<uint32_t>> lanes(num_lanes);
  std::vector<uint64_t> bytes(num_lanes);
  for (const uint32_t file : by_size) {
    const size_t lane = static_cast<size_t>(
        std::min_element(bytes.begin(), bytes.end()) - bytes.begin());
    lanes[lane].push_back(file);
    bytes[lane] += output.files[file].layout.size();
  }
  for (std::vector<uint32_t>& lane : lanes) std::sort(lane.begin(), lane.end());
  return lanes;
}

absl::Status Run(
    FileSystem& fs, const ImageTransferOptions& options,
    absl::FunctionRef<absl::Status(Lane& lane, std::stop_token stop)> work) {
  if (options.pool == nullptr) {
    return RunLanes(fs, options.num_lanes, options.memory_bytes, options.stop,
                    work);
  }
  DCP_CHECK(options.num_lanes == 1, "num_lanes=", options.num_lanes);
  return RunLane(fs, *options.pool, options.stop, work);
}

}  // namespace

uint32_t UsefulLanes(const Output& output) {
  // One lane is enough for a disk of a few GB/s; interleaved files share their
  // reads.
  const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  if (NeedsInterleaving(output)) return 1;
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(output.files.size(), 1, std::min(cores, 2u)));
}

absl::StatusOr<std::vector<ChunkDigest>> TransferImages(
    FileSystem& fs, Output& output, Destination& destination,
    const ImageTransferOptions& options, TransferStats& stats) {
  const bool interleave = NeedsInterleaving(output);
  const std::vector<std::vector<uint32_t>> files = SpreadFiles(output, options);
  absl::Mutex mutex;
  std::vector<ChunkDigest> digests;
  DCP_RETURN_IF_ERROR(Run(fs, options, [&](Lane& lane, std::stop_token stop) {
    return LaneTransfer(fs, output, {.destination = &destination}, options,
                        interleave, mutex, digests, stats)
        .Run(lane, files[lane.index], std::move(stop));
  }));
  return digests;
}

absl::StatusOr<uint64_t> PlanTransfer(FileSystem& fs, Output& output,
                                      const ImageTransferOptions& options) {
  const bool interleave = NeedsInterleaving(output);
  const std::vector<std::vector<uint32_t>> files = SpreadFiles(output, options);
  absl::Mutex mutex;
  std::vector<ChunkDigest> digests;
  TransferStats stats;
  uint64_t num_bytes = 0;
  const uint64_t num_blocks =
      BlocksOfLane(options.num_lanes, options.memory_bytes);
  for (const std::vector<uint32_t>& lane : files) {
    LaneTransfer transfer(fs, output, {}, options, interleave, mutex, digests,
                          stats);
    DCP_ASSIGN_OR_RETURN(const uint64_t of_lane,
                         transfer.CountReads(num_blocks, lane));
    num_bytes += of_lane;
  }
  return num_bytes;
}

absl::StatusOr<std::vector<ChunkDigest>> StageAndTransfer(
    FileSystem& fs, Output& output, const StagingSteps& steps,
    const ImageTransferOptions& options, TransferStats& stats) {
  DCP_CHECK(output.files.size() == 1, "files=", output.files.size());
  absl::Mutex mutex;
  std::vector<ChunkDigest> digests;
  const uint32_t file = 0;
  DCP_RETURN_IF_ERROR(Run(fs, options, [&](Lane& lane, std::stop_token stop) {
    return LaneTransfer(fs, output, {.staging = &steps}, options,
                        /*interleave=*/false, mutex, digests, stats)
        .Run(lane, {file}, std::move(stop));
  }));
  return digests;
}

absl::Status StreamImage(FileSystem& fs, Output& output, ByteStream& stream,
                         const ImageTransferOptions& options,
                         TransferStats& stats) {
  DCP_CHECK(output.files.size() == 1 && options.num_lanes == 1,
            "files=", output.files.size(), " num_lanes=", options.num_lanes);
  absl::Mutex mutex;
  std::vector<ChunkDigest> digests;
  const uint32_t file = 0;
  return Run(fs, options, [&](Lane& lane, std::stop_token stop) {
    return LaneTransfer(fs, output, {.stream = &stream}, options,
                        /*interleave=*/false, mutex, digests, stats)
        .Run(lane, {file}, std::move(stop));
  });
}

}  // namespace dcp
