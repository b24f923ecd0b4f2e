// SPDX-License-Identifier: Apache-2.0
// Stored items in raw form, for a caller that has other unpickling rules.
//
// Tested by tests/capi/capi_test.cc.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "capi/handles.h"
#include "capi/tessera.h"
#include "dcp/base/bytes.h"
#include "dcp/base/error_place.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/checkpoint/files/dialect.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/json/json.h"
#include "dcp/format/pickle/inert_value.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/format/torch/torch_archive_reader.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/metadata.h"

namespace dcp::capi {
namespace {

// Valid bytes that this library does not read.
bool IsForTheCaller(const absl::Status& status) {
  return absl::IsUnimplemented(status) || absl::IsPermissionDenied(status);
}

absl::StatusOr<uint32_t> EntryNamed(const Checkpoint& checkpoint,
                                    absl::string_view name) {
  const std::optional<uint32_t> entry = checkpoint.Find(name);
  if (entry.has_value()) return *entry;
  return absl::NotFoundError(
      absl::StrCat(name, " is not in ", checkpoint.path()));
}

absl::StatusOr<std::vector<std::string>> NotDense(Checkpoint& checkpoint,
                                                  const char* const* names,
                                                  size_t num_names,
                                                  const std::stop_token& stop) {
  std::vector<uint32_t> entries;
  for (size_t i = 0; i < num_names; ++i) {
    DCP_ASSIGN_OR_RETURN(const uint32_t entry,
                         EntryNamed(checkpoint, names[i]));
    entries.push_back(entry);
  }
  std::vector<std::string> found;
  if (checkpoint.Locate(entries, stop).ok()) return found;
  // Finds the entries at fault: tries each by itself.
  for (const uint32_t entry : entries) {
    const absl::Status located = checkpoint.Locate({&entry, 1}, stop);
    if (located.ok()) continue;
    if (!IsForTheCaller(located)) return located;
    found.push_back(QuoteJson(checkpoint.entries()[entry].fqn));
  }
  return found;
}

absl::StatusOr<StorageInfo> FindItem(const Checkpoint& checkpoint,
                                     absl::string_view name, size_t chunk) {
  DCP_ASSIGN_OR_RETURN(const uint32_t index, EntryNamed(checkpoint, name));
  const CheckpointEntry& entry = checkpoint.entries()[index];
  StorageInfo item;
  if (const TensorEntry* const tensor = entry.tensor(); tensor != nullptr) {
    if (chunk >= tensor->locations.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " has ", tensor->locations.size(),
                       " chunks, and none has the number ", chunk));
    }
    item = tensor->locations[chunk].item;
  } else {
    item = entry.object()->item;
  }
  if (checkpoint.dialect() != Dialect::kDcp || item.length == 0) {
    return absl::UnimplementedError(
        absl::StrCat(name, " has no item of its own, because ",
                     checkpoint.path(), " is not a DCP checkpoint"));
  }
  return item;
}

absl::StatusOr<std::string> ReadItem(Checkpoint& checkpoint,
                                     absl::string_view name, size_t chunk,
                                     const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const StorageInfo item,
                       FindItem(checkpoint, name, chunk));
  SourceFiles& files = checkpoint.files();
  DCP_RETURN_IF_ERROR(
      Annotate(files.CheckRange(item.file, item.offset, item.length), name));
  DCP_ASSIGN_OR_RETURN(const File file, files.Get(item.file));
  FileReader reader(ProcessFileSystem(), file, item.offset, item.length, stop);
  std::string bytes;
  bytes.reserve(item.length);
  while (bytes.size() < item.length) {
    DCP_ASSIGN_OR_RETURN(
        const ByteSpan piece,
        reader.Read(bytes.size(),
                    std::min(kBlockBytes, item.length - bytes.size())));
    absl::StrAppend(&bytes, AsText(piece));
  }
  DCP_RETURN_IF_ERROR(checkpoint.CheckUnchanged());
  return bytes;
}

absl::Status CheckObject(ByteSpan archive) {
  DCP_ASSIGN_OR_RETURN(
      const TorchArchive parsed,
      ReadTorchArchive(
          archive.size(), /*allow_legacy=*/false,
          [&](uint64_t offset, uint64_t length) -> absl::StatusOr<ByteSpan> {
            if (offset > archive.size() || length > archive.size() - offset) {
              return absl::DataLossError("the archive is cut off");
            }
            return archive.subspan(offset, length);
          }));
  return CheckInert(parsed.root);
}

}  // namespace
}  // namespace dcp::capi

tessera_error* tessera_checkpoint_not_dense(tessera_checkpoint* checkpoint,
                                            const char* const* names,
                                            size_t num_names,
                                            tessera_stop* stop,
                                            tessera_bytes** out) {
  const auto found = dcp::capi::NotDense(*checkpoint->opened, names, num_names,
                                         dcp::capi::StopToken(stop));
  if (!found.ok()) {
    return dcp::capi::MakeError(
        dcp::WithPlace(found.status(), {.path = checkpoint->opened->path()}));
  }
  *out =
      dcp::capi::MakeBytes(absl::StrCat("[", absl::StrJoin(*found, ","), "]"));
  return nullptr;
}

tessera_error* tessera_checkpoint_item(tessera_checkpoint* checkpoint,
                                       const char* name, size_t chunk,
                                       tessera_stop* stop,
                                       tessera_bytes** out) {
  auto bytes = dcp::capi::ReadItem(*checkpoint->opened, name, chunk,
                                   dcp::capi::StopToken(stop));
  if (!bytes.ok()) {
    return dcp::capi::MakeError(dcp::WithPlace(
        bytes.status(), {.path = checkpoint->opened->path(), .tensor = name}));
  }
  *out = dcp::capi::MakeBytes(*std::move(bytes));
  return nullptr;
}

tessera_error* tessera_object_check(const uint8_t* data, uint64_t size) {
  return dcp::capi::MakeError(
      dcp::capi::CheckObject(dcp::ByteSpan(data, size)));
}
