// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/s3/s3_target.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

// The limit in Amazon's oldest region; other servers accept it too.
constexpr size_t kMaxBucketName = 255;

absl::Status CheckBucket(absl::string_view bucket) {
  bool is_valid = bucket.size() >= 3 && bucket.size() <= kMaxBucketName;
  for (const char c : bucket) {
    is_valid = is_valid && (absl::ascii_isalnum(static_cast<uint8_t>(c)) ||
                            c == '-' || c == '_' || c == '.');
  }
  if (is_valid) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", bucket, "\" cannot be the name of a bucket: it has 3 to ",
      kMaxBucketName, " of a-z, A-Z, 0-9, '-', '_' and '.'"));
}

}  // namespace

absl::StatusOr<S3Target> FindS3Target(absl::string_view bucket,
                                      const S3Settings& settings) {
  DCP_RETURN_IF_ERROR(CheckBucket(bucket));
  S3Target target;
  target.region = settings.region.empty() ? "us-east-1" : settings.region;
  if (!settings.endpoint.empty()) {
    DCP_RETURN_IF_ERROR(CheckS3Endpoint("the endpoint", settings.endpoint));
    absl::string_view authority = settings.endpoint;
    target.has_tls = !absl::ConsumePrefix(&authority, "http://");
    absl::ConsumePrefix(&authority, "https://");
    const size_t slash = std::min(authority.find('/'), authority.size());
    absl::string_view path = authority.substr(slash);
    while (absl::ConsumeSuffix(&path, "/")) {
    }
    target.authority = std::string(authority.substr(0, slash));
    target.path = std::string(path);
    if (settings.addressing == S3Addressing::kVirtual) {
      target.authority = absl::StrCat(bucket, ".", target.authority);
    } else {
      absl::StrAppend(&target.path, "/", bucket);
    }
  } else {
    const std::string host =
        absl::StrCat("s3.", target.region, ".amazonaws.com",
                     absl::StartsWith(target.region, "cn-") ? ".cn" : "");
    // Amazon's certificate covers only one name in front of the host.
    const bool is_in_host = settings.addressing != S3Addressing::kPath &&
                            !absl::StrContains(bucket, '.');
    target.authority = is_in_host ? absl::StrCat(bucket, ".", host) : host;
    if (!is_in_host) target.path = absl::StrCat("/", bucket);
  }
  target.url =
      absl::StrCat(target.has_tls ? "https://" : "http://", target.authority);
  return target;
}

}  // namespace dcp
