// SPDX-License-Identifier: Apache-2.0
// S3Client: carries out requests to one bucket, with Amazon's client: it signs,
// keeps connections, and retries failures that may pass. The meaning of the
// requests is s3_store's concern. Thread-safe.
#ifndef DCP_IO_S3_S3_CLIENT_H_
#define DCP_IO_S3_S3_CLIENT_H_

#include <memory>
#include <stop_token>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "dcp/io/s3/s3_request.h"
#include "dcp/io/s3/s3_settings.h"
#include "dcp/io/s3/s3_transfer.h"

struct aws_tls_ctx;

namespace dcp {

class S3Client {
 public:
  using Done = S3Transfer::Done;

  // Finds credentials, which can take some seconds where there are none, and
  // does not contact the server. InvalidArgument for an invalid bucket,
  // endpoint or certificate file, PermissionDenied without credentials.
  static absl::StatusOr<std::unique_ptr<S3Client>> Make(
      absl::string_view bucket, const S3Settings& settings);
  // Waits for the requests in flight.
  ~S3Client();
  S3Client(const S3Client&) = delete;
  S3Client& operator=(const S3Client&) = delete;

  // `done` is called once, on a thread of the client or on this one, and must
  // not block. Until then the memory of `request` is in use.
  void Start(S3Request request, std::stop_token stop, Done done);
  // The same, and waits.
  S3Answer Call(S3Request request);

 private:
  explicit S3Client(S3Transfer::Shared shared) : shared_(std::move(shared)) {}

  void Connect(aws_tls_ctx* tls);

  S3Transfer::Shared shared_;

  absl::Mutex mu_;
  absl::CondVar changed_;
  int num_transfers_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_shut_down_ ABSL_GUARDED_BY(mu_) = true;
};

}  // namespace dcp

#endif  // DCP_IO_S3_S3_CLIENT_H_
