// SPDX-License-Identifier: Apache-2.0

#include "server/reading/inspection_page.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/status.h"
#include "proto/error_detail.h"
#include "proto/messages/entry_messages.h"
#include "proto/messages/enum_messages.h"
#include "proto/messages/report_messages.h"
#include "proto/messages/request_messages.h"
#include "proto/utf8.h"
#include "server/reading/name_filter.h"

namespace dcp::server {
namespace {

namespace v1 = ::tessera::v1;

constexpr int kDefaultPageSize = 1000;
constexpr int kMaxPageSize = 10'000;
// A page's bytes: receivers accept 4 MiB by default. A single tensor with very
// many chunks may exceed it.
constexpr size_t kMaxPageBytes = size_t{3} << 20;
// The most objects that are read to show their values; each costs a read.
constexpr size_t kMaxObjectsRead = 1000;
// Files listed in the answer.
constexpr size_t kMaxFilesListed = 10'000;
// Bytes in a property's value: metadata in safetensors may have megabytes.
constexpr size_t kMaxPropertyBytes = 1000;
constexpr size_t kMaxProperties = 100;

// Identifies everything that the answer depends on.
std::string QueryText(const SharedCheckpoint& shared,
                      const v1::InspectRequest& request) {
  std::string text = absl::StrCat(shared.etag(), "\n", request.chunks(), "\n");
  for (const std::string& name : request.names()) {
    absl::StrAppend(&text, name.size(), ":", name);
  }
  return absl::StrFormat("inspect %016x", Xxh3Digest(AsBytes(text)));
}

void Count(const CheckpointEntry& entry, InspectionPage& page) {
  const TensorEntry* tensor = entry.tensor();
  if (tensor == nullptr) {
    ++page.num_objects;
    return;
  }
  ++page.num_tensors;
  page.num_bytes =
      CheckedAdd(page.num_bytes, tensor->num_bytes()).value_or(UINT64_MAX);
}

void ListFiles(const SharedCheckpoint& shared, v1::InspectResponse& response) {
  const SourceFiles& files = shared.checkpoint().files();
  response.set_num_files(files.names().size());
  const size_t num_listed = std::min(files.names().size(), kMaxFilesListed);
  for (uint32_t i = 0; i < num_listed; ++i) {
    v1::InspectResponse::File& file = *response.add_files();
    file.set_name(ToUtf8(files.names()[i]));
    const std::optional<uint64_t> size = shared.file_sizes()[i];
    if (size.has_value()) file.set_num_bytes(*size);
  }
}

void ListWarnings(const SharedCheckpoint& shared,
                  v1::InspectResponse& response) {
  WarningsToProto(LossTexts(shared.checkpoint().losses()),
                  *response.mutable_warnings());
}

void ListProperties(const SharedCheckpoint& shared,
                    v1::InspectResponse& response) {
  auto& properties = *response.mutable_properties();
  for (const auto& [label, text] : shared.checkpoint().properties()) {
    if (properties.size() == kMaxProperties) return;
    const std::string utf8 = ToUtf8(text);
    properties[std::string(Utf8Prefix(ToUtf8(label), kMaxPropertyBytes))] =
        std::string(Utf8Prefix(utf8, kMaxPropertyBytes));
  }
}

}  // namespace

absl::StatusOr<InspectionPage> ChoosePage(const SharedCheckpoint& shared,
                                          const v1::InspectRequest& request,
                                          const PageTokens& tokens,
                                          absl::FunctionRef<bool()> cancelled) {
  if (request.page_size() < 0 || request.page_size() > kMaxPageSize) {
    return InvalidField("page_size",
                        absl::StrCat(" is ", request.page_size(), ": 0 to ",
                                     kMaxPageSize, " are allowed"));
  }
  DCP_ASSIGN_OR_RETURN(std::vector<std::string> globs,
                       GlobsFromProto(request.names(), "names"));
  const NameFilter filter(std::move(globs));
  const size_t page_size = static_cast<size_t>(
      request.page_size() == 0 ? kDefaultPageSize : request.page_size());
  InspectionPage page;
  page.query = QueryText(shared, request);
  if (!request.page_token().empty()) {
    DCP_ASSIGN_OR_RETURN(page.first,
                         tokens.Read(page.query, request.page_token()));
  }
  const auto& entries = shared.checkpoint().entries();
  for (uint32_t i = 0; i < entries.size(); ++i) {
    if (i % kNamesPerCheck == 0 && cancelled()) {
      return absl::CancelledError("the call was cancelled");
    }
    if (!filter.Matches(entries[i].fqn)) continue;
    Count(entries[i], page);
    const size_t number = page.num_matching++;
    if (number < page.first || number - page.first >= page_size) continue;
    page.entries.push_back(i);
    if (entries[i].object() != nullptr) page.objects.push_back(i);
  }
  if (page.objects.size() > kMaxObjectsRead) page.objects.clear();
  return page;
}

void FillPage(const SharedCheckpoint& shared, const v1::InspectRequest& request,
              const InspectionPage& page, const PageTokens& tokens,
              bool with_texts, v1::InspectResponse& response) {
  const Checkpoint& checkpoint = shared.checkpoint();
  response.set_format(FormatToProto(checkpoint.format()));
  response.set_etag(shared.etag());
  ListProperties(shared, response);
  ListWarnings(shared, response);
  response.set_num_tensors(page.num_tensors);
  response.set_num_objects(page.num_objects);
  response.set_num_bytes(page.num_bytes);
  if (page.first == 0) ListFiles(shared, response);
  size_t num_bytes = response.ByteSizeLong();
  size_t num_taken = 0;
  for (const uint32_t index : page.entries) {
    const CheckpointEntry& entry = checkpoint.entries()[index];
    if (entry.tensor() != nullptr) {
      TensorToProto(entry,
                    request.chunks()
                        ? absl::MakeConstSpan(checkpoint.files().names())
                        : absl::Span<const std::string>(),
                    *response.add_tensors());
      response.mutable_tensors()->rbegin()->set_made_of(
          ToUtf8(checkpoint.SourceNames(index)));
      num_bytes += response.tensors(response.tensors_size() - 1).ByteSizeLong();
    } else {
      ObjectToProto(entry, with_texts, *response.add_objects());
      num_bytes += response.objects(response.objects_size() - 1).ByteSizeLong();
    }
    ++num_taken;
    if (num_bytes <= kMaxPageBytes) continue;
    if (num_taken > 1) {
      // This entry begins the next page.
      --num_taken;
      if (entry.tensor() != nullptr) {
        response.mutable_tensors()->RemoveLast();
      } else {
        response.mutable_objects()->RemoveLast();
      }
    }
    break;
  }
  const size_t next = page.first + num_taken;
  if (next < page.num_matching) {
    response.set_next_page_token(tokens.Make(page.query, next));
  }
}

}  // namespace dcp::server
