// SPDX-License-Identifier: Apache-2.0
// Parses an S3 server's answers, which are XML: lists of objects, uploads and
// parts, an upload's id, failed removals, errors. Pure; any thread. The input
// is hostile: text in an unexpected form is DataLoss.
#ifndef DCP_IO_S3_S3_ANSWERS_H_
#define DCP_IO_S3_S3_ANSWERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/io/object/object_store.h"

namespace dcp {

struct S3ErrorText {
  std::string code;  // "NoSuchKey"
  std::string message;
  std::string key;  // where one of several objects failed
  std::string region;
};

struct S3PartsPage {
  std::vector<ObjectPart> parts;
  std::string next;  // the next page's marker; empty after the last page
};

// All must begin with `prefix`.
absl::StatusOr<ObjectPage> ParseS3Objects(absl::string_view xml,
                                          absl::string_view prefix);
// `next` is encoded, ready for a query.
absl::StatusOr<UploadPage> ParseS3Uploads(absl::string_view xml);
absl::StatusOr<S3PartsPage> ParseS3Parts(absl::string_view xml);
absl::StatusOr<std::string> ParseS3UploadId(absl::string_view xml);
// The errors from a request to remove several objects; empty if there are none.
absl::StatusOr<std::vector<S3ErrorText>> ParseS3Removed(absl::string_view xml);
// nullopt if the text is not an error.
std::optional<S3ErrorText> ParseS3Error(absl::string_view xml);

// The time in a Last-Modified header, in nanoseconds since 1970.
absl::StatusOr<int64_t> ParseHttpTime(absl::string_view text);

}  // namespace dcp

#endif  // DCP_IO_S3_S3_ANSWERS_H_
