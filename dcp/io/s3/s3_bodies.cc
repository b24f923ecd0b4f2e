// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/s3/s3_bodies.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace dcp {
namespace {

std::string Escape(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      absl::StrAppend(&escaped, "&amp;");
    } else if (c == '<') {
      absl::StrAppend(&escaped, "&lt;");
    } else if (c == '>') {
      absl::StrAppend(&escaped, "&gt;");
    } else if (c == '"') {
      absl::StrAppend(&escaped, "&quot;");
    } else if (static_cast<uint8_t>(c) < ' ') {
      // Otherwise the XML reader turns a tab or an end of line into a space.
      absl::StrAppend(&escaped, "&#", static_cast<int>(c), ";");
    } else {
      escaped.push_back(c);
    }
  }
  return escaped;
}

}  // namespace

std::string RemovalBody(absl::Span<const std::string> keys) {
  std::string body =
      "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
      "<Quiet>true</Quiet>";
  for (const std::string& key : keys) {
    absl::StrAppend(&body, "<Object><Key>", Escape(key), "</Key></Object>");
  }
  return absl::StrCat(body, "</Delete>");
}

std::string CompletionBody(absl::Span<const ObjectPart> parts) {
  std::string body =
      "<CompleteMultipartUpload "
      "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (const ObjectPart& part : parts) {
    absl::StrAppend(&body, "<Part><PartNumber>", part.number,
                    "</PartNumber><ETag>", Escape(part.etag), "</ETag>");
    if (!part.crc32c.empty()) {
      absl::StrAppend(&body, "<ChecksumCRC32C>", Escape(part.crc32c),
                      "</ChecksumCRC32C>");
    }
    absl::StrAppend(&body, "</Part>");
  }
  return absl::StrCat(body, "</CompleteMultipartUpload>");
}

}  // namespace dcp
