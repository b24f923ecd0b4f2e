// SPDX-License-Identifier: Apache-2.0
// One turn of the loop: start batches as memory allows, fill the oldest, submit
// all that can be submitted, and repeat until nothing is left but to wait for
// completions; then handle these. A batch goes through
//
//   started -> reads submitted -> reads done -> filled -> writes submitted
//           -> writes done -> its blocks are free
//
// and becomes filled only after every earlier batch. Later batches' reads run
// at the same time as earlier batches' writes because each side has a separate
// share of the pool and the queue's depth: neither can starve the other.
//
// [Note: order of work] A trainer may be waiting for the copying that `next`
// does before it continues; nothing waits for checksums. So batches are filled
// one at a time, and whenever that may have freed a block, further batches are
// started first. Also, a batch is filled only when all writes of earlier
// batches have been submitted to the kernel: filling it earlier would only
// delay the handling of completions.
//
// [Note: no deadlock] A read holds a block only while it is in flight, and
// batches never hold the reads' share once a batch with reads has been seen.
// Hence the oldest batch that is not filled can always submit its reads, and
// they complete. It is filled once the earlier batches' writes are submitted;
// those need no block, only a place in the queue, which every completion frees.
// The batch's own writes need no further block either. So as long as there is a
// batch, something is in flight or can be done at once: the loop never waits
// for a block that only the loop itself could free.
#include "dcp/io/pipeline.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/base/error_place.h"
#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/io/posix_error.h"

namespace dcp {
namespace {

static_assert(kMaxReadBytes + 2 * (kMaxDirectAlignment - 1) +
                  kReadMarginBytes <=
              kBlockBytes);
static_assert(MaxReadBytes(kBlockBytes) == kMaxReadBytes);

struct BatchState {
  Batch batch;
  size_t num_reads_submitted = 0;
  size_t num_reads_done = 0;
  size_t num_writes_submitted = 0;
  size_t num_writes_done = 0;
  bool finished = false;
};

// One planned read or write in progress: several requests, one after the other,
// if the kernel moves it in pieces.
struct Operation {
  IoRequest request;  // for the bytes still to be moved
  BatchState* batch = nullptr;
  size_t index = 0;  // among the batch's reads or writes
  File file;
  Block block;              // filled by a read
  uint8_t* data = nullptr;  // the file's byte `begin`
  uint64_t begin = 0;       // has the file's alignment
  uint64_t needed = 0;      // bytes from `begin` on that must be moved
  uint64_t asked = 0;       // `needed`, rounded up to the alignment
  uint64_t done = 0;
  uint32_t num_tries = 0;  // since the last progress
};

class Transfer {
 public:
  Transfer(IoQueue& queue, BlockPool& pool, uint64_t blocks_per_batch,
           NextBatch next, absl::FunctionRef<std::string(FileHandle)> describe,
           std::stop_token stop, TransferStats& stats);

  absl::Status Run();

 private:
  bool CanStart() const;
  void StartBatches();
  bool StartBatch();
  void SubmitReads();
  bool FillNext();
  void SubmitWrites();
  void FinishIfDone(BatchState& state);
  void ReapAndHandle();

  bool QueueTakes(uint64_t num_same) const {
    return num_same < depth_each_ && queue_.in_flight() < queue_.depth();
  }
  void StartRead(BatchState& state, Block block);
  void StartWrite(BatchState& state);
  void Submit(Operation& operation);
  void Handle(Operation& operation);
  void Retry(Operation& operation, int64_t result);
  void Complete(Operation& operation);
  Operation& Acquire(IoRequest::Op op);
  void Release(Operation& operation);
  void FailAndRelease(Operation& operation, absl::Status status);
  std::string Describe(const Operation& operation) const;
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  IoQueue& queue_;
  BlockPool& pool_;
  const NextBatch next_;
  const absl::FunctionRef<std::string(FileHandle)> describe_;
  const std::stop_token stop_;
  TransferStats& stats_;

  const uint64_t num_blocks_;  // blocks free at the start
  const uint64_t depth_each_;  // maximum reads, and maximum writes, in flight
  uint64_t blocks_per_batch_;
  uint64_t read_blocks_;  // for reads

  absl::Status status_;
  bool exhausted_ = false;  // `next_` has no more
  bool saw_reads_ = false;

  // Oldest first. Each index points at the first batch that is not through a
  // stage.
  std::vector<std::unique_ptr<BatchState>> batches_;
  size_t first_unread_ = 0;
  size_t first_unfilled_ = 0;
  size_t first_unwritten_ = 0;
  uint64_t batch_blocks_held_ = 0;
  bool freed_ = false;  // a batch gave blocks back in this turn of the loop
  std::vector<std::unique_ptr<BatchState>> spare_batches_;

  std::vector<Operation> operations_;
  std::vector<Operation*> spare_operations_;
  uint64_t reads_in_flight_ = 0;
  uint64_t writes_in_flight_ = 0;
  std::vector<IoRequest*> reaped_;
  uint32_t num_failed_reaps_ = 0;
};

Transfer::Transfer(IoQueue& queue, BlockPool& pool, uint64_t blocks_per_batch,
                   NextBatch next,
                   absl::FunctionRef<std::string(FileHandle)> describe,
                   std::stop_token stop, TransferStats& stats)
    : queue_(queue),
      pool_(pool),
      next_(next),
      describe_(describe),
      stop_(std::move(stop)),
      stats_(stats),
      num_blocks_(pool.num_free()),
      depth_each_(std::max(queue.depth() / 2, uint32_t{1})),
      operations_(queue.depth()) {
  DCP_CHECK(num_blocks_ >= 2, "free=", num_blocks_);
  DCP_CHECK(queue.in_flight() == 0, "in_flight=", queue.in_flight());
  // At least two batches fit in addition to the reads, so that one is written
  // while the next one fills.
  read_blocks_ = blocks_per_batch == 0 ? num_blocks_
                                       : std::min(num_blocks_ / 2, depth_each_);
  blocks_per_batch_ =
      std::min(blocks_per_batch,
               std::max((num_blocks_ - read_blocks_) / 2, uint64_t{1}));
  for (Operation& operation : operations_) {
    operation.request.context = &operation;
    spare_operations_.push_back(&operation);
  }
  reaped_.reserve(queue.depth());
}

absl::Status Transfer::Run() {
  const std::stop_callback on_stop(stop_, [this] { queue_.Cancel(); });
  while (status_.ok()) {
    bool again = true;
    while (status_.ok() && again) {
      freed_ = false;
      StartBatches();
      const bool filled = FillNext();
      SubmitWrites();
      // A batch without writes ends as soon as it is filled: no completion
      // would lead here again, and the next batch may be waiting for its
      // blocks.
      again = filled || freed_;
    }
    if (reads_in_flight_ + writes_in_flight_ == 0) {
      DCP_CHECK(!status_.ok() || (exhausted_ && batches_.empty()));
      break;
    }
    ReapAndHandle();
  }
  if (reads_in_flight_ + writes_in_flight_ > 0) queue_.Cancel();
  while (reads_in_flight_ + writes_in_flight_ > 0) ReapAndHandle();
  return status_;
}

bool Transfer::CanStart() const {
  // One batch ahead of the current reads is enough to keep them busy; more
  // would only hold blocks.
  if (exhausted_ || batches_.size() - first_unread_ >= 2) return false;
  // Batches without blocks are limited too.
  if (batches_.size() >= num_blocks_) return false;
  const uint64_t reserve = saw_reads_ ? read_blocks_ : 0;
  if (batch_blocks_held_ + blocks_per_batch_ + reserve > num_blocks_) {
    return false;
  }
  return pool_.num_free() >= blocks_per_batch_;
}

void Transfer::StartBatches() {
  bool started = true;
  while (status_.ok() && started) {
    if (stop_.stop_requested()) return Fail(absl::CancelledError("stopped"));
    started = CanStart() && StartBatch();
    SubmitReads();
  }
}

bool Transfer::StartBatch() {
  if (spare_batches_.empty()) {
    spare_batches_.push_back(std::make_unique<BatchState>());
  }
  std::unique_ptr<BatchState> state = std::move(spare_batches_.back());
  spare_batches_.pop_back();
  Batch& batch = state->batch;
  for (uint64_t i = 0; i < blocks_per_batch_; ++i) {
    batch.blocks.push_back(pool_.TryAcquire());
  }
  const absl::StatusOr<bool> more = next_(batch);
  if (!more.ok()) Fail(more.status());
  exhausted_ = more.ok() && !*more;
  if (!status_.ok() || exhausted_) return false;
  DCP_CHECK(batch.reads.empty() || batch.on_read != nullptr);
  saw_reads_ = saw_reads_ || !batch.reads.empty();
  batch_blocks_held_ += blocks_per_batch_;
  batches_.push_back(std::move(state));
  return true;
}

void Transfer::SubmitReads() {
  while (status_.ok() && first_unread_ < batches_.size()) {
    BatchState& state = *batches_[first_unread_];
    if (state.num_reads_submitted == state.batch.reads.size()) {
      ++first_unread_;
      continue;
    }
    if (!QueueTakes(reads_in_flight_) || reads_in_flight_ >= read_blocks_) {
      return;
    }
    Block block = pool_.TryAcquire();
    if (!block) return;
    StartRead(state, std::move(block));
  }
}

// See [Note: order of work].
bool Transfer::FillNext() {
  if (!status_.ok() || first_unfilled_ == first_unread_) return false;
  if (first_unwritten_ < first_unfilled_) return false;
  BatchState& state = *batches_[first_unfilled_];
  if (state.num_reads_done < state.batch.reads.size()) return false;
  if (state.batch.on_filled != nullptr) {
    Fail(state.batch.on_filled(state.batch.blocks));
  }
  if (state.batch.num_bytes_read > 0) {
    stats_.bytes_read.fetch_add(state.batch.num_bytes_read,
                                std::memory_order_relaxed);
  }
  ++first_unfilled_;
  return true;
}

void Transfer::SubmitWrites() {
  while (status_.ok() && first_unwritten_ < first_unfilled_) {
    BatchState& state = *batches_[first_unwritten_];
    if (state.num_writes_submitted < state.batch.writes.size()) {
      if (!QueueTakes(writes_in_flight_)) return;
      StartWrite(state);
      continue;
    }
    ++first_unwritten_;
    FinishIfDone(state);
  }
}

// Gives the batch's blocks back once all writes are done. Batches may finish in
// any order, but leave the list in order.
void Transfer::FinishIfDone(BatchState& state) {
  if (state.num_writes_done < state.batch.writes.size()) return;
  batch_blocks_held_ -= blocks_per_batch_;
  state.batch.blocks.clear();
  state.finished = true;
  freed_ = true;
  while (first_unwritten_ > 0 && batches_.front()->finished) {
    std::unique_ptr<BatchState> old = std::move(batches_.front());
    batches_.erase(batches_.begin());
    --first_unread_;
    --first_unfilled_;
    --first_unwritten_;
    // The vectors keep their capacity.
    Batch batch = std::move(old->batch);
    *old = BatchState();
    batch.reads.clear();
    batch.writes.clear();
    batch.on_read = nullptr;
    batch.on_filled = nullptr;
    batch.num_bytes_read = 0;
    old->batch = std::move(batch);
    spare_batches_.push_back(std::move(old));
  }
}

void Transfer::ReapAndHandle() {
  reaped_.clear();
  const absl::Status status = queue_.Reap(reaped_);
  if (!status.ok()) {
    Fail(status);
    // The kernel still owns blocks and there is no way to get them back:
    // continuing would reuse memory that it still writes to.
    DCP_CHECK(++num_failed_reaps_ < kMaxIoTries, status.message());
  }
  for (IoRequest* request : reaped_) {
    Handle(*static_cast<Operation*>(request->context));
    // Gives the disk work while the next completion is handled.
    SubmitReads();
  }
}

void Transfer::StartRead(BatchState& state, Block block) {
  const size_t index = state.num_reads_submitted++;
  const PlannedRead& read = state.batch.reads[index];
  DCP_CHECK(read.length > 0 && read.length <= MaxReadBytes(block.size()),
            "length=", read.length);
  Operation& operation = Acquire(IoRequest::Op::kRead);
  operation.batch = &state;
  operation.index = index;
  operation.file = read.file;
  if (read.offset > read.file.size ||
      read.length > read.file.size - read.offset) {
    return FailAndRelease(operation, absl::DataLossError(absl::StrCat(
                                         Describe(operation), ": file ends at ",
                                         read.file.size)));
  }
  const uint64_t end =
      std::min(read.offset + read.length + kReadMarginBytes, read.file.size);
  operation.begin = AlignDown(read.offset, read.file.alignment);
  operation.needed = end - operation.begin;
  operation.asked = AlignUp(operation.needed, read.file.alignment);
  operation.data = block.data();
  operation.block = std::move(block);
  Submit(operation);
}

void Transfer::StartWrite(BatchState& state) {
  const size_t index = state.num_writes_submitted++;
  const PlannedWrite& write = state.batch.writes[index];
  DCP_CHECK(write.block < state.batch.blocks.size(), "block=", write.block);
  const uint64_t block_bytes = state.batch.blocks[write.block].size();
  DCP_CHECK(write.length > 0 && write.position <= block_bytes &&
                write.length <= block_bytes - write.position,
            "position=", write.position, " length=", write.length);
  Operation& operation = Acquire(IoRequest::Op::kWrite);
  operation.batch = &state;
  operation.index = index;
  operation.file = write.file;
  operation.begin = write.offset;
  operation.data = state.batch.blocks[write.block].data() + write.position;
  DCP_CHECK((write.offset | write.position) % write.file.alignment == 0,
            "offset=", write.offset, " position=", write.position);
  operation.needed = write.length;
  operation.asked = AlignUp(write.length, write.file.alignment);
  std::memset(operation.data + write.length, 0, operation.asked - write.length);
  Submit(operation);
}

// Requests the rest of the operation.
void Transfer::Submit(Operation& operation) {
  IoRequest& request = operation.request;
  request.file = operation.file.handle;
  request.offset = operation.begin + operation.done;
  request.data = operation.data + operation.done;
  request.length = static_cast<uint32_t>(operation.asked - operation.done);
  request.error = absl::OkStatus();
  const absl::Status status = queue_.Submit(&request);
  if (status.ok()) return;
  FailAndRelease(operation, Annotate(status, Describe(operation)));
}

void Transfer::Handle(Operation& operation) {
  // After an error, operations are only taken back from the kernel.
  if (!status_.ok()) return Release(operation);
  if (!operation.request.error.ok()) {
    return FailAndRelease(operation, operation.request.error);
  }
  const int64_t result = operation.request.result;
  if (result < 0 && result != -EINTR && result != -EAGAIN) {
    return FailAndRelease(
        operation, PosixError(static_cast<int>(-result), Describe(operation)));
  }
  if (result <= 0) return Retry(operation, result);
  DCP_CHECK(result <= operation.request.length, "result=", result);
  const uint64_t moved = operation.done + static_cast<uint64_t>(result);
  if (moved >= operation.needed) {
    operation.done = moved;
    return Complete(operation);
  }
  // A direct file is read or written again from the last aligned byte on.
  const uint64_t done = AlignDown(moved, operation.file.alignment);
  if (done == operation.done) return Retry(operation, result);
  operation.done = done;
  operation.num_tries = 0;
  Submit(operation);
}

// The last request made no progress: tries once more, or fails.
void Transfer::Retry(Operation& operation, int64_t result) {
  const bool is_read = operation.request.op == IoRequest::Op::kRead;
  const bool at_end = is_read && result == 0;
  if (!at_end && ++operation.num_tries < kMaxIoTries) {
    return Submit(operation);
  }
  absl::Status status;
  if (result < 0) {
    status = PosixError(static_cast<int>(-result), Describe(operation));
  } else if (is_read) {
    const uint64_t end =
        operation.request.offset + static_cast<uint64_t>(result);
    status = absl::DataLossError(
        absl::StrCat(Describe(operation), ": file ends at ", end));
  } else {
    status = absl::UnavailableError(
        absl::StrCat(Describe(operation), ": the write wrote no bytes"));
  }
  FailAndRelease(operation, std::move(status));
}

void Transfer::Complete(Operation& operation) {
  BatchState& state = *operation.batch;
  if (operation.request.op == IoRequest::Op::kWrite) {
    ++state.num_writes_done;
    stats_.bytes_written.fetch_add(operation.needed, std::memory_order_relaxed);
    stats_.num_writes.fetch_add(1, std::memory_order_relaxed);
    Release(operation);
    // Otherwise SubmitWrites has not yet submitted all writes.
    if (state.num_writes_submitted == state.batch.writes.size()) {
      FinishIfDone(state);
    }
    return;
  }
  const PlannedRead& read = state.batch.reads[operation.index];
  const uint64_t skipped = read.offset - operation.begin;
  ++state.num_reads_done;
  stats_.bytes_read.fetch_add(read.length, std::memory_order_relaxed);
  stats_.num_reads.fetch_add(1, std::memory_order_relaxed);
  Fail(state.batch.on_read(
      operation.index,
      ByteSpan(operation.data + skipped, operation.needed - skipped)));
  Release(operation);
}

Operation& Transfer::Acquire(IoRequest::Op op) {
  Operation& operation = *spare_operations_.back();
  spare_operations_.pop_back();
  operation.request.op = op;
  operation.done = 0;
  operation.num_tries = 0;
  ++(op == IoRequest::Op::kRead ? reads_in_flight_ : writes_in_flight_);
  return operation;
}

// A read concerns the source, a write the destination.
void Transfer::FailAndRelease(Operation& operation, absl::Status status) {
  const bool is_read = operation.request.op == IoRequest::Op::kRead;
  status = WithPlace(std::move(status),
                     {.file = describe_(operation.file.handle),
                      .offset = absl::StrCat(operation.request.offset)});
  Fail(WithSide(std::move(status),
                is_read ? ErrorSide::kSource : ErrorSide::kDestination));
  Release(operation);
}

void Transfer::Release(Operation& operation) {
  --(operation.request.op == IoRequest::Op::kRead ? reads_in_flight_
                                                  : writes_in_flight_);
  operation.block = Block();
  spare_operations_.push_back(&operation);
}

std::string Transfer::Describe(const Operation& operation) const {
  const Batch& batch = operation.batch->batch;
  const bool is_read = operation.request.op == IoRequest::Op::kRead;
  const uint64_t offset = is_read ? batch.reads[operation.index].offset
                                  : batch.writes[operation.index].offset;
  const uint64_t length = is_read ? batch.reads[operation.index].length
                                  : batch.writes[operation.index].length;
  return absl::StrCat(is_read ? "read " : "write ",
                      describe_(operation.file.handle), " [", offset, ", +",
                      length, ")");
}

}  // namespace

absl::Status RunPipeline(IoQueue& queue, BlockPool& pool,
                         uint64_t blocks_per_batch, NextBatch next,
                         absl::FunctionRef<std::string(FileHandle)> describe,
                         std::stop_token stop, TransferStats& stats) {
  return Transfer(queue, pool, blocks_per_batch, next, describe,
                  std::move(stop), stats)
      .Run();
}

}  // namespace dcp
