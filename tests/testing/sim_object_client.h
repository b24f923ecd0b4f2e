// SPDX-License-Identifier: Apache-2.0
// SimObjectClient: an ObjectStore that talks to a SimObjectServer; see there.
#ifndef TESTS_TESTING_SIM_OBJECT_CLIENT_H_
#define TESTS_TESTING_SIM_OBJECT_CLIENT_H_

#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "dcp/io/object/object_store.h"
#include "tests/testing/sim_object_server.h"

namespace dcp::testing {

class SimObjectClient final : public ObjectStore {
 public:
  SimObjectClient(SimObjectServer& server, uint64_t number);
  ~SimObjectClient() override;

  std::string url() const override { return "s3://bucket"; }
  bool has_conditions() const override;
  bool lists_uploads() const override { return true; }
  bool has_labels() const override { return true; }

  void Get(absl::string_view key, absl::string_view etag, uint64_t offset,
           MutableByteSpan into, std::stop_token stop, Done done) override;
  void Put(absl::string_view key, ByteSpan bytes, const PutCondition& condition,
           std::stop_token stop, PutDone done) override;
  void PutPart(absl::string_view key, absl::string_view upload, uint32_t number,
               ByteSpan bytes, std::stop_token stop, PutPartDone done) override;
  absl::StatusOr<ObjectInfo> Head(absl::string_view key) override;
  absl::StatusOr<ObjectPage> List(absl::string_view prefix, bool by_folder,
                                  absl::string_view after) override;
  absl::Status Remove(absl::Span<const std::string> keys) override;
  absl::StatusOr<std::string> Begin(absl::string_view key,
                                    absl::string_view label) override;
  absl::Status Finish(absl::string_view key, absl::string_view upload,
                      absl::Span<const ObjectPart> parts,
                      bool replaces) override;
  absl::Status Abort(absl::string_view key, absl::string_view upload) override;
  absl::StatusOr<std::vector<ObjectPart>> Parts(
      absl::string_view key, absl::string_view upload) override;
  absl::StatusOr<UploadPage> Uploads(absl::string_view prefix,
                                     absl::string_view after) override;

 private:
  using Fate = SimObjectServer::Fate;
  using Object = SimObjectServer::Object;
  using Upload = SimObjectServer::Upload;

  // A data call: carries itself out and reports.
  using Call = absl::AnyInvocable<void() &&>;

  void Enqueue(uint64_t num_bytes, Call call);
  void Work();

  SimObjectServer& server_;
  const uint64_t number_;
  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::deque<Call> calls_ ABSL_GUARDED_BY(mutex_);
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::jthread worker_;
};

}  // namespace dcp::testing

#endif  // TESTS_TESTING_SIM_OBJECT_CLIENT_H_
