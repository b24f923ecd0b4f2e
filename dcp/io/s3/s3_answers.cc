// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/s3/s3_answers.h"

#include <aws/common/byte_buf.h>
#include <aws/common/xml_parser.h>

#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/io/s3/aws_runtime.h"
#include "dcp/io/s3/s3_request.h"

namespace dcp {
namespace {

// Deeper than any answer.
constexpr size_t kMaxDepth = 8;

// An XML element, valid while the parser calls back. Each() or Text() is called
// at most once.
class Element {
 public:
  using Visit = absl::FunctionRef<absl::Status(absl::string_view, Element&)>;

  explicit Element(aws_xml_node* node) : node_(node) {}

  // Calls `visit` with each child and the child's name.
  absl::Status Each(Visit visit);

  absl::StatusOr<std::string> Text() {
    aws_byte_buf text = {};
    aws_byte_buf_init(&text, AwsRuntime::Get().allocator, 64);
    const int result = aws_xml_node_as_body_unescaped(
        AwsRuntime::Get().allocator, node_, &text);
    const std::string copy(ToView(aws_byte_cursor_from_buf(&text)));
    aws_byte_buf_clean_up(&text);
    if (result != AWS_OP_SUCCESS) {
      return absl::DataLossError("it is not well-formed");
    }
    return copy;
  }

  absl::Status Read(std::string& value) {
    DCP_ASSIGN_OR_RETURN(value, Text());
    return absl::OkStatus();
  }

  template <typename Integer>
  absl::Status ReadNumber(absl::string_view name, Integer& value) {
    DCP_ASSIGN_OR_RETURN(const std::string text, Text());
    if (absl::SimpleAtoi(text, &value)) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("its ", name, " is \"", text, "\", not a number"));
  }

  // Whole seconds: the answer to HEAD has no fractions, and the two must agree.
  absl::Status ReadTime(absl::string_view name, int64_t& value_ns) {
    DCP_ASSIGN_OR_RETURN(const std::string text, Text());
    absl::Time time;
    if (!absl::ParseTime(absl::RFC3339_full, text, &time, nullptr)) {
      return absl::DataLossError(
          absl::StrCat("its ", name, " is \"", text, "\", not a time"));
    }
    value_ns = absl::ToUnixSeconds(time) * int64_t{1'000'000'000};
    return absl::OkStatus();
  }

 private:
  aws_xml_node* node_;
};

struct Walk {
  Element::Visit visit;
  absl::Status status;
};

int OnNode(aws_xml_node* node, void* user_data) {
  Walk& walk = *static_cast<Walk*>(user_data);
  Element child(node);
  walk.status = walk.visit(ToView(aws_xml_node_get_name(node)), child);
  if (walk.status.ok()) return AWS_OP_SUCCESS;
  return aws_raise_error(AWS_ERROR_INVALID_XML);
}

absl::Status Element::Each(Visit visit) {
  Walk walk{visit, absl::OkStatus()};
  const int result = aws_xml_node_traverse(node_, OnNode, &walk);
  if (walk.status.ok() && result != AWS_OP_SUCCESS) {
    return absl::DataLossError("it is not well-formed");
  }
  return walk.status;
}

// Calls `visit` for each child of the root element. The root's name must be
// `root` or the name that another server uses.
absl::Status ParseRoot(absl::string_view xml, absl::string_view root,
                       Element::Visit visit,
                       absl::string_view other_root = "") {
  if (xml.size() > kMaxObjectAnswerBytes) {
    return absl::DataLossError(absl::StrCat(
        "an answer of ", xml.size(), " bytes exceeds ", kMaxObjectAnswerBytes));
  }
  bool has_root = false;
  const auto on_root = [&](absl::string_view name,
                           Element& element) -> absl::Status {
    if (name != root && (other_root.empty() || name != other_root)) {
      return absl::DataLossError(absl::StrCat("it begins with <", name, ">"));
    }
    has_root = true;
    return element.Each(visit);
  };
  Walk walk{on_root, absl::OkStatus()};
  aws_xml_parser_options options = {};
  options.doc = ToCursor(xml);
  options.max_depth = kMaxDepth;
  options.on_root_encountered = OnNode;
  options.user_data = &walk;
  const int result = aws_xml_parse(AwsRuntime::Get().allocator, &options);
  if (walk.status.ok() && (result != AWS_OP_SUCCESS || !has_root)) {
    walk.status = absl::DataLossError("it is not well-formed");
  }
  return Annotate(walk.status, "the server's answer is not a <", root, ">");
}

absl::Status ParseObject(Element& element, ObjectInfo& info) {
  return element.Each([&](absl::string_view name, Element& child) {
    if (name == "Key") return child.Read(info.key);
    if (name == "Size") return child.ReadNumber(name, info.size);
    if (name == "ETag") return child.Read(info.etag);
    if (name == "LastModified") return child.ReadTime(name, info.modified_ns);
    return absl::OkStatus();
  });
}

absl::Status ParseUpload(Element& element, ObjectUpload& upload) {
  return element.Each([&](absl::string_view name, Element& child) {
    if (name == "Key") return child.Read(upload.key);
    if (name == "UploadId") return child.Read(upload.id);
    if (name == "Initiated") return child.ReadTime(name, upload.begun_ns);
    return absl::OkStatus();
  });
}

absl::Status ParsePart(Element& element, ObjectPart& part) {
  return element.Each([&](absl::string_view name, Element& child) {
    if (name == "PartNumber") return child.ReadNumber(name, part.number);
    if (name == "Size") return child.ReadNumber(name, part.size);
    if (name == "ETag") return child.Read(part.etag);
    if (name == "ChecksumCRC32C") return child.Read(part.crc32c);
    return absl::OkStatus();
  });
}

absl::Status ParsePrefix(Element& element, std::string& prefix) {
  return element.Each([&](absl::string_view name, Element& child) {
    if (name == "Prefix") return child.Read(prefix);
    return absl::OkStatus();
  });
}

absl::Status ParseErrorText(absl::string_view name, Element& child,
                            S3ErrorText& error) {
  if (name == "Code") return child.Read(error.code);
  if (name == "Message") return child.Read(error.message);
  if (name == "Key") return child.Read(error.key);
  if (name == "Region") return child.Read(error.region);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ObjectPage> ParseS3Objects(absl::string_view xml,
                                          absl::string_view prefix) {
  ObjectPage page;
  std::string encoding;
  std::string truncated;
  std::string next;
  DCP_RETURN_IF_ERROR(ParseRoot(
      xml, "ListBucketResult", [&](absl::string_view name, Element& child) {
        if (name == "Contents") {
          return ParseObject(child, page.objects.emplace_back());
        }
        if (name == "CommonPrefixes") {
          return ParsePrefix(child, page.folders.emplace_back());
        }
        if (name == "EncodingType") return child.Read(encoding);
        if (name == "IsTruncated") return child.Read(truncated);
        if (name == "NextContinuationToken") return child.Read(next);
        return absl::OkStatus();
      }));
  if (encoding == "url") {
    for (ObjectInfo& info : page.objects) info.key = DecodeFromUri(info.key);
    for (std::string& folder : page.folders) folder = DecodeFromUri(folder);
  }
  for (const ObjectInfo& info : page.objects) {
    if (absl::StartsWith(info.key, prefix)) continue;
    return absl::DataLossError(
        absl::StrCat("the server lists \"", info.key, "\""));
  }
  for (const std::string& folder : page.folders) {
    if (absl::StartsWith(folder, prefix)) continue;
    return absl::DataLossError(
        absl::StrCat("the server lists the folder \"", folder, "\""));
  }
  if (truncated == "true") {
    if (next.empty()) {
      return absl::DataLossError(
          "the server's list goes on, but it does not say where");
    }
    page.next = std::move(next);
  }
  return page;
}

absl::StatusOr<UploadPage> ParseS3Uploads(absl::string_view xml) {
  UploadPage page;
  std::string encoding;
  std::string truncated;
  std::string next_key;
  std::string next_id;
  DCP_RETURN_IF_ERROR(ParseRoot(xml, "ListMultipartUploadsResult",
                                [&](absl::string_view name, Element& child) {
                                  if (name == "Upload") {
                                    return ParseUpload(
                                        child, page.uploads.emplace_back());
                                  }
                                  if (name == "EncodingType")
                                    return child.Read(encoding);
                                  if (name == "IsTruncated")
                                    return child.Read(truncated);
                                  if (name == "NextKeyMarker")
                                    return child.Read(next_key);
                                  if (name == "NextUploadIdMarker")
                                    return child.Read(next_id);
                                  return absl::OkStatus();
                                }));
  if (encoding == "url") {
    for (ObjectUpload& upload : page.uploads) {
      upload.key = DecodeFromUri(upload.key);
    }
    next_key = DecodeFromUri(next_key);
  }
  if (truncated == "true") {
    if (next_key.empty()) {
      return absl::DataLossError(
          "the server's list goes on, but it does not say where");
    }
    page.next =
        absl::StrCat("key-marker=", EncodeForUri(next_key, false),
                     "&upload-id-marker=", EncodeForUri(next_id, false));
  }
  return page;
}

absl::StatusOr<S3PartsPage> ParseS3Parts(absl::string_view xml) {
  S3PartsPage page;
  std::string truncated;
  std::string next;
  DCP_RETURN_IF_ERROR(ParseRoot(
      xml, "ListPartsResult",
      [&](absl::string_view name, Element& child) {
        if (name == "Part") return ParsePart(child, page.parts.emplace_back());
        if (name == "IsTruncated") return child.Read(truncated);
        if (name == "NextPartNumberMarker") return child.Read(next);
        return absl::OkStatus();
      },
      /*other_root=*/"ListPartsResponse"));
  for (const ObjectPart& part : page.parts) {
    if (part.number < 1 || part.number > kMaxObjectParts) {
      return absl::DataLossError(absl::StrCat(
          "the server names part ", part.number, " of 1 to ", kMaxObjectParts));
    }
  }
  if (truncated == "true") page.next = std::move(next);
  return page;
}

absl::StatusOr<std::string> ParseS3UploadId(absl::string_view xml) {
  std::string id;
  DCP_RETURN_IF_ERROR(ParseRoot(xml, "InitiateMultipartUploadResult",
                                [&](absl::string_view name, Element& child) {
                                  if (name == "UploadId") return child.Read(id);
                                  return absl::OkStatus();
                                }));
  if (id.empty()) {
    return absl::DataLossError("the server began an upload without an id");
  }
  return id;
}

absl::StatusOr<std::vector<S3ErrorText>> ParseS3Removed(absl::string_view xml) {
  std::vector<S3ErrorText> errors;
  DCP_RETURN_IF_ERROR(ParseRoot(
      xml, "DeleteResult", [&](absl::string_view name, Element& child) {
        if (name != "Error") return absl::OkStatus();
        S3ErrorText& error = errors.emplace_back();
        return child.Each([&](absl::string_view field, Element& text) {
          return ParseErrorText(field, text, error);
        });
      }));
  return errors;
}

std::optional<S3ErrorText> ParseS3Error(absl::string_view xml) {
  S3ErrorText error;
  const absl::Status status =
      ParseRoot(xml, "Error", [&](absl::string_view name, Element& child) {
        return ParseErrorText(name, child, error);
      });
  if (!status.ok() || error.code.empty()) return std::nullopt;
  return error;
}

absl::StatusOr<int64_t> ParseHttpTime(absl::string_view text) {
  absl::Time time;
  if (!absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", text, &time, nullptr)) {
    return absl::DataLossError(
        absl::StrCat("the server's time is \"", text, "\""));
  }
  return absl::ToUnixSeconds(time) * int64_t{1'000'000'000};
}

}  // namespace dcp
