// SPDX-License-Identifier: Apache-2.0
// Puts an object at once or in parts, and makes it appear.
// Tested by tests/dcp/io/object/object_file_system_test.cc.
#include "dcp/io/object/object_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/io/object/pending_calls.h"

namespace dcp {
namespace {

// Concurrent parts in one blocking write.
constexpr uint32_t kMaxPutsOfWrite = 8;

}  // namespace

ObjectWriter::~ObjectWriter() { WaitForPuts(); }

void ObjectWriter::WaitForPuts() {
  absl::MutexLock lock(&mutex_);
  while (num_running_ > 0) ended_.Wait(&mutex_);
}

absl::Status ObjectWriter::BeginOnce() {
  if (!upload_.empty()) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(upload_, store_.Begin(key_, parts_.label));
  return absl::OkStatus();
}

void ObjectWriter::Put(uint64_t offset, ByteSpan bytes, std::stop_token stop,
                       ObjectStore::Done done) {
  DCP_CHECK(!synced_, key_);
  DCP_CHECK(offset % parts_.part_bytes == 0 && offset <= parts_.size &&
                bytes.size() <= parts_.size - offset &&
                (bytes.size() == parts_.part_bytes ||
                 offset + bytes.size() == parts_.size),
            key_, " offset=", offset, " length=", bytes.size());
  if (!is_one_put()) {
    const absl::Status begun = BeginOnce();
    if (!begun.ok()) return std::move(done)(begun);
  }
  {
    absl::MutexLock lock(&mutex_);
    ++num_running_;
  }
  PutPart(offset, bytes, std::move(stop), std::move(done));
}

void ObjectWriter::PutPart(uint64_t offset, ByteSpan bytes,
                           std::stop_token stop, ObjectStore::Done done) {
  const uint32_t number = static_cast<uint32_t>(offset / parts_.part_bytes) + 1;
  if (is_one_put()) {
    return store_.Put(
        key_, bytes, {}, std::move(stop),
        [this, size = bytes.size(),
         done = std::move(done)](absl::StatusOr<std::string> etag) mutable {
          if (!etag.ok()) {
            return Ended(etag.status(), std::move(done));
          }
          Ended(ObjectPart{.number = 1, .size = size, .etag = *std::move(etag)},
                std::move(done));
        });
  }
  store_.PutPart(
      key_, upload_, number, bytes, std::move(stop),
      [this, done = std::move(done)](absl::StatusOr<ObjectPart> part) mutable {
        Ended(std::move(part), std::move(done));
      });
}

void ObjectWriter::Ended(absl::StatusOr<ObjectPart> part,
                         ObjectStore::Done done) {
  const absl::Status status = part.status();
  if (part.ok()) {
    const uint32_t number = part->number;
    absl::MutexLock lock(&mutex_);
    if (put_.size() < number) put_.resize(number);
    put_[number - 1] = *std::move(part);
  }
  std::move(done)(status);
  // The last step: the destructor waits for it.
  absl::MutexLock lock(&mutex_);
  --num_running_;
  ended_.SignalAll();
}

absl::Status ObjectWriter::Write(uint64_t offset, ByteSpan bytes) {
  PendingCalls calls(kMaxPutsOfWrite);
  for (uint64_t done = 0; done < bytes.size();) {
    const uint64_t length =
        std::min<uint64_t>(bytes.size() - done, parts_.part_bytes);
    if (!calls.Enter().ok()) break;
    Put(offset + done, bytes.subspan(done, length), {},
        [&calls](const absl::Status& status) { calls.Leave(status); });
    done += length;
  }
  return calls.Wait();
}

absl::Status ObjectWriter::CheckComplete() {
  absl::MutexLock lock(&mutex_);
  uint64_t num_bytes = 0;
  for (const ObjectPart& part : put_) num_bytes += part.size;
  if (num_bytes == parts_.size) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(store_.url(), "/", key_, ": ", num_bytes, " of ",
                   parts_.size, " bytes were put"));
}

absl::Status ObjectWriter::Sync() {
  WaitForPuts();
  DCP_RETURN_IF_ERROR(CheckComplete());
  synced_ = true;
  return parts_.hidden ? absl::OkStatus() : Appear(/*replaces=*/true);
}

absl::Status ObjectWriter::CheckAbsent() {
  const absl::Status there = store_.Head(key_).status();
  if (absl::IsNotFound(there)) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(there);
  return absl::AlreadyExistsError(
      absl::StrCat(store_.url(), "/", key_,
                   ": another writer has put an object there in the meantime"));
}

absl::Status ObjectWriter::Publish(bool replaces) {
  DCP_CHECK(synced_ && parts_.hidden, key_);
  if (!replaces && !store_.has_conditions()) {
    DCP_RETURN_IF_ERROR(CheckAbsent());
  }
  return Appear(replaces);
}

// The server's own listing decides about the object: the answer to a request
// may have been lost, and retried requests may have been done twice.
absl::Status ObjectWriter::Appear(bool replaces) {
  if (parts_.size == 0) {
    PutCondition condition;
    if (!replaces) condition.kind = PutCondition::Kind::kIfAbsent;
    PendingCalls call(1);
    DCP_RETURN_IF_ERROR(call.Enter());
    store_.Put(key_, {}, condition, {},
               [&call](const absl::StatusOr<std::string>& put) {
                 call.Leave(put.status());
               });
    DCP_RETURN_IF_ERROR(call.Wait());
  } else if (!is_one_put()) {
    std::vector<ObjectPart> parts;
    {
      absl::MutexLock lock(&mutex_);
      parts = put_;
    }
    DCP_RETURN_IF_ERROR(store_.Finish(key_, upload_, parts, replaces));
    upload_.clear();
  }
  DCP_ASSIGN_OR_RETURN(const ObjectInfo info, store_.Head(key_));
  if (info.size == parts_.size) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      store_.url(), "/", key_, ": the store has ", info.size, " bytes where ",
      parts_.size,
      " were put; another writer may have replaced the object at this moment"));
}

absl::Status ObjectWriter::Adopt(absl::string_view upload) {
  if (parts_.size > 0) {
    DCP_ASSIGN_OR_RETURN(std::vector<ObjectPart> parts,
                         store_.Parts(key_, upload));
    absl::MutexLock lock(&mutex_);
    put_ = std::move(parts);
  }
  DCP_RETURN_IF_ERROR(CheckComplete());
  upload_ = std::string(upload);
  synced_ = true;
  adopted_ = true;
  return absl::OkStatus();
}

absl::Status ObjectWriter::Abort() {
  WaitForPuts();
  if (upload_.empty() || adopted_) return absl::OkStatus();
  return store_.Abort(key_, std::exchange(upload_, std::string()));
}

}  // namespace dcp
