// SPDX-License-Identifier: Apache-2.0
// Finds credentials as the AWS tools do, and rereads them when they have
// expired.
// Tested by tests/dcp/io/s3/s3_open_test.cc.

#include "dcp/io/s3/s3_credentials.h"

#include <aws/auth/credentials.h>
#include <aws/common/error.h>
#include <aws/io/tls_channel_handler.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "dcp/base/check.h"
#include "dcp/io/s3/aws_runtime.h"

namespace dcp {
namespace {

struct Found {
  int error = AWS_ERROR_SUCCESS;
  absl::Notification done;
};

void OnFound(aws_credentials* credentials, int error, void* user_data) {
  Found& found = *static_cast<Found*>(user_data);
  found.error = error;
  if (credentials == nullptr && error == AWS_ERROR_SUCCESS) {
    found.error = AWS_ERROR_UNKNOWN;
  }
  found.done.Notify();
}

}  // namespace

S3Credentials::S3Credentials(std::string profile, aws_tls_ctx* tls)
    : profile_(std::move(profile)), tls_(aws_tls_ctx_acquire(tls)) {
  aws_credentials_provider_delegate_options options = {};
  options.delegate_user_data = this;
  options.get_credentials = [](void* self,
                               aws_on_get_credentials_callback_fn* callback,
                               void* user_data) {
    aws_credentials_provider* chain =
        static_cast<S3Credentials*>(self)->AcquireChain();
    const int result =
        aws_credentials_provider_get_credentials(chain, callback, user_data);
    aws_credentials_provider_release(chain);
    return result;
  };
  provider_ = aws_credentials_provider_new_delegate(AwsRuntime::Get().allocator,
                                                    &options);
  DCP_CHECK(provider_ != nullptr);
}

S3Credentials::~S3Credentials() {
  aws_credentials_provider_release(provider_);
  aws_credentials_provider_release(chain_);
  aws_tls_ctx_release(tls_);
}

absl::StatusOr<std::unique_ptr<S3Credentials>> S3Credentials::Find(
    const std::string& profile, aws_tls_ctx* tls) {
  std::unique_ptr<S3Credentials> credentials(new S3Credentials(profile, tls));
  aws_credentials_provider* const chain = credentials->MakeChain();
  if (chain != nullptr) {
    absl::MutexLock lock(&credentials->mu_);
    credentials->chain_ = chain;
  }
  Found found;
  if (chain == nullptr || aws_credentials_provider_get_credentials(
                              chain, OnFound, &found) != AWS_OP_SUCCESS) {
    OnFound(nullptr, aws_last_error(), &found);
  }
  found.done.WaitForNotification();
  if (found.error == AWS_ERROR_SUCCESS) return credentials;
  return absl::PermissionDeniedError(absl::StrCat(
      "there are no credentials (", aws_error_str(found.error),
      "): set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a "
      "profile of ~/.aws/config",
      profile.empty() ? "" : absl::StrCat(" (it is \"", profile, "\")"),
      ", or run where the machine or container has a role"));
}

void S3Credentials::Renew() {
  aws_credentials_provider* fresh = MakeChain();
  if (fresh == nullptr) return;
  {
    absl::MutexLock lock(&mu_);
    std::swap(chain_, fresh);
  }
  aws_credentials_provider_release(fresh);
}

aws_credentials_provider* S3Credentials::MakeChain() const {
  const AwsRuntime& runtime = AwsRuntime::Get();
  aws_credentials_provider_chain_default_options options = {};
  options.bootstrap = runtime.bootstrap;
  options.tls_ctx = tls_;
  options.profile_name_override = ToCursor(profile_);
  return aws_credentials_provider_new_chain_default(runtime.allocator,
                                                    &options);
}

aws_credentials_provider* S3Credentials::AcquireChain() {
  absl::MutexLock lock(&mu_);
  return aws_credentials_provider_acquire(chain_);
}

}  // namespace dcp
