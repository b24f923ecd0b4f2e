// SPDX-License-Identifier: Apache-2.0
// S3Credentials: the credentials that sign requests. They are found as the AWS
// tools find them: in the environment, in the profile (with SSO and processes),
// by a web identity's token, from a container's or a machine's metadata. They
// are renewed before they expire, and read again when a server says that they
// have expired. Thread-safe.
#ifndef DCP_IO_S3_S3_CREDENTIALS_H_
#define DCP_IO_S3_S3_CREDENTIALS_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

struct aws_credentials_provider;
struct aws_tls_ctx;

namespace dcp {

class S3Credentials {
 public:
  // Takes a reference to `tls`. Waits until there are credentials, which can
  // take some seconds where there are none: PermissionDenied, and the message
  // says which variables to set.
  static absl::StatusOr<std::unique_ptr<S3Credentials>> Find(
      const std::string& profile, aws_tls_ctx* tls);
  // Requires that no user of provider() is left.
  ~S3Credentials();
  S3Credentials(const S3Credentials&) = delete;
  S3Credentials& operator=(const S3Credentials&) = delete;

  aws_credentials_provider* provider() const { return provider_; }

  // Starts the search again, as a new process would: files are read again.
  void Renew();

 private:
  S3Credentials(std::string profile, aws_tls_ctx* tls);

  aws_credentials_provider* MakeChain() const;
  aws_credentials_provider* AcquireChain();

  const std::string profile_;
  aws_tls_ctx* const tls_;
  // Passes each question on to the current chain.
  aws_credentials_provider* provider_ = nullptr;

  absl::Mutex mu_;
  aws_credentials_provider* chain_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace dcp

#endif  // DCP_IO_S3_S3_CREDENTIALS_H_
