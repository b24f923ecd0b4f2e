// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/object/object_url.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "dcp/base/limits.h"

namespace dcp {
namespace {

constexpr absl::string_view kMark = "://";
constexpr std::array<absl::string_view, 5> kSchemes = {"s3", "gs", "abfs",
                                                       "abfss", "hdfs"};

absl::Status Refuse(absl::string_view path, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", why,
                   "; an object store is named as in s3://bucket/run/step-1"));
}

absl::Status CheckKey(absl::string_view path, absl::string_view key) {
  if (key.size() > kMaxObjectKeyBytes) {
    return Refuse(
        path, absl::StrCat("the key has ", key.size(), " bytes, the limit is ",
                           kMaxObjectKeyBytes));
  }
  if (std::any_of(key.begin(), key.end(),
                  [](char c) { return c >= 0 && c < ' '; })) {
    return Refuse(path, "the key has a control character");
  }
  for (const absl::string_view part : absl::StrSplit(key, '/')) {
    if (part.empty() || part == "." || part == "..") {
      return Refuse(path,
                    absl::StrCat("the key has the component \"", part, "\""));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool IsObjectUrl(absl::string_view path) {
  const size_t mark = path.find(kMark);
  return mark != absl::string_view::npos &&
         std::find(kSchemes.begin(), kSchemes.end(), path.substr(0, mark)) !=
             kSchemes.end();
}

absl::StatusOr<ObjectUrl> ParseObjectUrl(absl::string_view path) {
  const size_t mark = path.find(kMark);
  if (!IsObjectUrl(path)) return Refuse(path, "this is not an object store");
  ObjectUrl url{
      .scheme = std::string(path.substr(0, mark)), .bucket = {}, .key = {}};
  absl::string_view rest = path.substr(mark + kMark.size());
  const size_t slash = rest.find('/');
  url.bucket = std::string(rest.substr(0, slash));
  if (url.bucket.empty()) return Refuse(path, "the bucket has no name");
  if (slash == absl::string_view::npos) return url;
  absl::string_view key = rest.substr(slash + 1);
  absl::ConsumeSuffix(&key, "/");
  if (key.empty()) return url;
  if (absl::Status status = CheckKey(path, key); !status.ok()) return status;
  url.key = std::string(key);
  return url;
}

bool TakesPartsInOrder(absl::string_view scheme) { return scheme != "s3"; }

}  // namespace dcp
