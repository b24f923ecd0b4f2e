// SPDX-License-Identifier: Apache-2.0
// Sets up Amazon's client for one bucket and starts transfers with it.
// Tested by tests/dcp/io/s3/s3_store_test.cc.

#include "dcp/io/s3/s3_client.h"

#include <aws/auth/signing_config.h>
#include <aws/common/error.h>
#include <aws/http/connection.h>
#include <aws/http/proxy.h>
#include <aws/io/tls_channel_handler.h>
#include <aws/s3/s3_client.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/io/s3/aws_runtime.h"

namespace dcp {
namespace {

// Ranges up to this size are one request. Blocks of transfers are not larger.
constexpr uint64_t kRangeBytes = uint64_t{64} << 20;
// Amazon's client does not start with less. It holds only answers to calls:
// payload is sent from and received into the caller's memory.
constexpr uint64_t kMemoryLimitBytes = uint64_t{2} << 30;

absl::StatusOr<aws_tls_ctx*> MakeTls(const S3Settings& settings) {
  aws_allocator* const allocator = AwsRuntime::Get().allocator;
  aws_tls_ctx_options options;
  aws_tls_ctx_options_init_default_client(&options, allocator);
  aws_tls_ctx* tls = nullptr;
  if (settings.ca_bundle.empty() ||
      aws_tls_ctx_options_override_default_trust_store_from_path(
          &options, /*ca_path=*/nullptr, settings.ca_bundle.c_str()) ==
          AWS_OP_SUCCESS) {
    tls = aws_tls_client_ctx_new(allocator, &options);
  }
  const int error = aws_last_error();
  aws_tls_ctx_options_clean_up(&options);
  if (tls != nullptr) return tls;
  return absl::InvalidArgumentError(absl::StrCat(
      "TLS could not be set up with the certificates in ",
      settings.ca_bundle.empty() ? "the system's store" : settings.ca_bundle,
      " (", aws_error_str(error), "): check AWS_CA_BUNDLE"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<S3Client>> S3Client::Make(
    absl::string_view bucket, const S3Settings& settings) {
  S3Transfer::Shared shared;
  shared.settings = settings;
  DCP_ASSIGN_OR_RETURN(shared.target, FindS3Target(bucket, settings));
  DCP_ASSIGN_OR_RETURN(aws_tls_ctx* const tls, MakeTls(settings));
  absl::StatusOr<std::unique_ptr<S3Credentials>> credentials =
      S3Credentials::Find(settings.profile, tls);
  if (!credentials.ok()) {
    aws_tls_ctx_release(tls);
    return std::move(credentials).status();
  }
  shared.credentials = *std::move(credentials);
  std::unique_ptr<S3Client> client(new S3Client(std::move(shared)));
  client->Connect(tls);
  aws_tls_ctx_release(tls);
  return client;
}

void S3Client::Connect(aws_tls_ctx* tls) {
  const AwsRuntime& runtime = AwsRuntime::Get();
  const S3Settings& settings = shared_.settings;
  aws_signing_config_aws signing;
  aws_s3_init_default_signing_config(&signing, ToCursor(shared_.target.region),
                                     shared_.credentials->provider());
  aws_tls_connection_options tls_options = {};
  aws_tls_connection_options_init_from_ctx(&tls_options, tls);
  aws_http_connection_monitoring_options monitoring = {};
  monitoring.minimum_throughput_bytes_per_second = 1;
  monitoring.allowable_throughput_failure_interval_seconds = settings.stalled_s;
  proxy_env_var_settings proxies = {};
  proxies.env_var_type = AWS_HPEV_ENABLE;
  aws_s3_client_config config = {};
  config.client_bootstrap = runtime.bootstrap;
  config.region = ToCursor(shared_.target.region);
  config.tls_mode =
      shared_.target.has_tls ? AWS_MR_TLS_ENABLED : AWS_MR_TLS_DISABLED;
  if (shared_.target.has_tls) config.tls_connection_options = &tls_options;
  config.signing_config = &signing;
  config.max_active_connections_override = settings.connections;
  config.part_size = kRangeBytes;
  config.multipart_upload_threshold = kRangeBytes;
  config.memory_limit_in_bytes = kMemoryLimitBytes;
  config.retry_config.max_retries = settings.num_retries;
  config.retry_config.backoff_scale_factor_ms = settings.first_wait_ms;
  config.retry_config.max_backoff_secs = settings.longest_wait_s;
  config.monitoring_options = &monitoring;
  config.proxy_ev_settings = &proxies;
  config.shutdown_callback_user_data = this;
  config.shutdown_callback = [](void* data) {
    S3Client* const self = static_cast<S3Client*>(data);
    absl::MutexLock lock(&self->mu_);
    self->is_shut_down_ = true;
    self->changed_.Signal();
  };
  {
    absl::MutexLock lock(&mu_);
    is_shut_down_ = false;
  }
  shared_.client = aws_s3_client_new(runtime.allocator, &config);
  // All possible errors in the settings were checked before.
  DCP_CHECK(shared_.client != nullptr);
  aws_tls_connection_options_clean_up(&tls_options);
}

S3Client::~S3Client() {
  {
    absl::MutexLock lock(&mu_);
    while (num_transfers_ > 0) changed_.Wait(&mu_);
  }
  aws_s3_client_release(shared_.client);
  absl::MutexLock lock(&mu_);
  while (!is_shut_down_) changed_.Wait(&mu_);
}

void S3Client::Start(S3Request request, std::stop_token stop, Done done) {
  {
    absl::MutexLock lock(&mu_);
    ++num_transfers_;
  }
  S3Transfer::Start(shared_, std::move(request), std::move(stop),
                    [this, done = std::move(done)](S3Answer answer) mutable {
                      std::move(done)(std::move(answer));
                      absl::MutexLock lock(&mu_);
                      --num_transfers_;
                      changed_.Signal();
                    });
}

S3Answer S3Client::Call(S3Request request) {
  S3Answer answer;
  absl::Notification done;
  Start(std::move(request), std::stop_token(), [&](S3Answer result) {
    answer = std::move(result);
    done.Notify();
  });
  done.WaitForNotification();
  return answer;
}

}  // namespace dcp
