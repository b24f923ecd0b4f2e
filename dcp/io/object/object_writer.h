// SPDX-License-Identifier: Apache-2.0
// ObjectWriter: one object on the way into a store. A one-part object is put at
// once; a larger or hidden one is uploaded in parts, and appears when it is
// finished. Used by one thread at a time; the store's callbacks may run at the
// same time.
#ifndef DCP_IO_OBJECT_OBJECT_WRITER_H_
#define DCP_IO_OBJECT_OBJECT_WRITER_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/bytes.h"
#include "dcp/io/file_system.h"
#include "dcp/io/object/object_store.h"

namespace dcp {

class ObjectWriter {
 public:
  // `store` outlives this.
  ObjectWriter(ObjectStore& store, std::string key, const InParts& parts)
      : store_(store), key_(std::move(key)), parts_(parts) {}
  // Waits for puts in progress. An upload that was begun and neither finished
  // nor aborted stays.
  ~ObjectWriter();

  const std::string& key() const { return key_; }
  const InParts& in_parts() const { return parts_; }

  // Puts `bytes`, which begin at `offset`: whole parts, at a multiple of the
  // part size, or the object's end. May be called again for a part. `done` is
  // called on a thread of the store; until then the store owns the memory.
  void Put(uint64_t offset, ByteSpan bytes, std::stop_token stop,
           ObjectStore::Done done);
  // Puts `bytes`, some parts at the same time, and waits.
  absl::Status Write(uint64_t offset, ByteSpan bytes);

  // All bytes were put: a visible object appears. FailedPrecondition if
  // something is missing.
  absl::Status Sync();
  // A hidden object appears, after Sync. Unless it `replaces`, AlreadyExists
  // where an object is.
  absl::Status Publish(bool replaces);
  // Ends the upload, if there is one.
  absl::Status Abort();

  // Release is for a hidden object that another process continues after Sync:
  // it returns the upload's id, which is empty for an object without bytes.
  // TakeOver is for that process, instead of Put and Sync. NotFound if the
  // upload has ended, FailedPrecondition if it does not have all bytes. An
  // upload that was taken over outlives Abort, because others may take it over
  // too.
  std::string Release() { return std::exchange(upload_, std::string()); }
  absl::Status Adopt(absl::string_view upload);

 private:
  bool is_one_put() const {
    return !parts_.hidden && parts_.size <= parts_.part_bytes;
  }
  void PutPart(uint64_t offset, ByteSpan bytes, std::stop_token stop,
               ObjectStore::Done done);
  // Counts the part that was put, and then calls `done`.
  void Ended(absl::StatusOr<ObjectPart> part, ObjectStore::Done done);
  absl::Status BeginOnce();
  absl::Status CheckComplete();
  absl::Status Appear(bool replaces);
  absl::Status CheckAbsent();
  void WaitForPuts();

  ObjectStore& store_;
  const std::string key_;
  const InParts parts_;
  std::string upload_;  // the upload's id; empty if there is none
  bool synced_ = false;
  bool adopted_ = false;

  absl::Mutex mutex_;
  absl::CondVar ended_;
  uint32_t num_running_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<ObjectPart> put_ ABSL_GUARDED_BY(mutex_);  // by number, less 1
};

}  // namespace dcp

#endif  // DCP_IO_OBJECT_OBJECT_WRITER_H_
