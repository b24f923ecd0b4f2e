// SPDX-License-Identifier: Apache-2.0
// ObjectStore: one bucket in an object store. S3Store and PluginStore implement
// it, and SimObjectStore for tests; ObjectFileSystem presents it as files. It
// is an interface because these share only this contract.
//
// Keys have the form of ParseObjectUrl. An object appears whole when it is put
// or its upload is finished, and replaces an existing one. The implementation
// retries failures that may pass, with backoff, within a deadline of its own;
// an error that it returns is final. The error names the bucket, the key, the
// server's code and request id, and says where to look. Thread-safe. The error
// codes:
//
//   NotFound            no such object, upload or bucket
//   AlreadyExists       a put with kIfAbsent, where an object is
//   FailedPrecondition  the object does not have the given ETag
//   PermissionDenied    refused, also for expired credentials or a wrong clock
//   InvalidArgument     another region, a name that the server refuses
//   ResourceExhausted   a quota or a full server
//   Unavailable         no answer, an overloaded server, or an answer to
//                       another question: the object's bytes are unknown
//   DataLoss            bytes that changed on their way to the server
//   Cancelled           the call's stop token was set
#ifndef DCP_IO_OBJECT_OBJECT_STORE_H_
#define DCP_IO_OBJECT_OBJECT_STORE_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"

namespace dcp {

struct ObjectInfo {
  std::string key;
  uint64_t size = 0;
  std::string etag;         // opaque, as the server spells it, with quotes
  int64_t modified_ns = 0;  // since 1970
  std::string label = {};   // see Begin; only Head returns it
};

// Whether a put may replace an object with the same key.
struct PutCondition {
  enum class Kind : uint8_t {
    kAlways,
    kIfAbsent,  // If-None-Match: *
    kIfEtag,    // If-Match: etag
  };
  Kind kind = Kind::kAlways;
  std::string etag;
};

// One part of an upload, as the server lists it.
struct ObjectPart {
  uint32_t number = 0;  // from 1
  uint64_t size = 0;
  std::string etag;
  std::string crc32c = {};  // in base64; empty if the server sends none
};

// An upload that was begun and neither finished nor aborted.
struct ObjectUpload {
  std::string key;
  std::string id;
  int64_t begun_ns = 0;  // since 1970
};

// One answer to List: sorted by key.
struct ObjectPage {
  std::vector<ObjectInfo> objects;
  // Prefixes that end in the delimiter; each represents all keys below it.
  std::vector<std::string> folders;
  std::string next;  // where the next page begins; empty after the last
};

struct UploadPage {
  std::vector<ObjectUpload> uploads;
  std::string next;  // as in ObjectPage
};

class ObjectStore {
 public:
  using Done = absl::AnyInvocable<void(absl::Status) &&>;
  // Receives the ETag of the bytes that were put.
  using PutDone = absl::AnyInvocable<void(absl::StatusOr<std::string>) &&>;
  // Receives the part as the server has it.
  using PutPartDone = absl::AnyInvocable<void(absl::StatusOr<ObjectPart>) &&>;

  // Waits for the calls in flight.
  virtual ~ObjectStore() = default;

  // "s3://bucket": errors and messages name objects by it.
  virtual std::string url() const = 0;
  // Whether the server honours every PutCondition. If not, such a put is
  // carried out as kAlways.
  virtual bool has_conditions() const = 0;
  // Whether Uploads lists all uploads. If not, Uploads is empty, and the server
  // forgets abandoned uploads by itself.
  virtual bool lists_uploads() const = 0;
  // Whether objects keep their labels. If not, all are empty.
  virtual bool has_labels() const = 0;

  // These calls return at once, and `done` is called once, on a thread of the
  // store, perhaps before they return; it must not block. Until then the memory
  // belongs to the store, even after a request on `stop`, which ends the call
  // early.

  // Fills `into`, which is not empty, with the object's bytes from `offset` on:
  // completely, or there is an error. FailedPrecondition unless the object has
  // the ETag `etag`.
  virtual void Get(absl::string_view key, absl::string_view etag,
                   uint64_t offset, MutableByteSpan into, std::stop_token stop,
                   Done done) = 0;
  virtual void Put(absl::string_view key, ByteSpan bytes,
                   const PutCondition& condition, std::stop_token stop,
                   PutDone done) = 0;
  // Sends an upload's part `number`, from 1 to kMaxObjectParts. All parts but
  // the last have the same size, at least kMinObjectPartBytes. A number that
  // was put before is replaced, unless the store's scheme TakesPartsInOrder:
  // then each part is given once, after the part before it.
  virtual void PutPart(absl::string_view key, absl::string_view upload,
                       uint32_t number, ByteSpan bytes, std::stop_token stop,
                       PutPartDone done) = 0;

  // The other calls wait for the answer.

  virtual absl::StatusOr<ObjectInfo> Head(absl::string_view key) = 0;
  // The keys that begin with `prefix`; with `by_folder`, those with a slash
  // after it are folded into `folders`. `after` is empty, or the previous
  // page's `next`.
  virtual absl::StatusOr<ObjectPage> List(absl::string_view prefix,
                                          bool by_folder,
                                          absl::string_view after) = 0;
  // At most kMaxObjectsRemoved keys; one that is absent is not an error.
  virtual absl::Status Remove(absl::Span<const std::string> keys) = 0;

  // Begins an upload in parts and returns its id. Nothing is visible at `key`
  // until Finish. The object will have the label, which consists of letters and
  // digits, or none if it is empty.
  virtual absl::StatusOr<std::string> Begin(absl::string_view key,
                                            absl::string_view label) = 0;
  // The object appears. Unless `replaces`, AlreadyExists if an object exists
  // and the store has conditions; the upload is still there then. After a lost
  // answer that object may be the upload's own; the label shows it.
  virtual absl::Status Finish(absl::string_view key, absl::string_view upload,
                              absl::Span<const ObjectPart> parts,
                              bool replaces) = 0;
  // An upload that is gone is not an error.
  virtual absl::Status Abort(absl::string_view key,
                             absl::string_view upload) = 0;
  // The parts that the server has, sorted by number.
  virtual absl::StatusOr<std::vector<ObjectPart>> Parts(
      absl::string_view key, absl::string_view upload) = 0;
  // The uploads to keys that begin with `prefix`.
  virtual absl::StatusOr<UploadPage> Uploads(absl::string_view prefix,
                                             absl::string_view after) = 0;
};

}  // namespace dcp

#endif  // DCP_IO_OBJECT_OBJECT_STORE_H_
