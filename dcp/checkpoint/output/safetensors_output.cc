// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/output/safetensors_output.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/output/object_pickle.h"
#include "dcp/format/safetensors/safetensors.h"
#include "dcp/format/safetensors/safetensors_index.h"

namespace dcp {
namespace {

// Checks that every entry is a tensor with a type that the format knows; the
// caller has left out everything else.
absl::Status CheckEntries(absl::Span<const OutputEntry> entries) {
  for (const OutputEntry& entry : entries) {
    if (SafetensorsName(entry.dtype).empty()) {
      return OptionError(absl::StatusCode::kFailedPrecondition, entry.fqn,
                         " is ", TorchName(entry.dtype),
                         ", which safetensors cannot hold; leave it out with ",
                         OptionName{"exclude"});
    }
    if (entry.fqn == "__metadata__") {
      return OptionError(
          absl::StatusCode::kFailedPrecondition,
          "a tensor named __metadata__ cannot be stored as safetensors; give "
          "it another name with ",
          OptionName{"renames"});
    }
  }
  return absl::OkStatus();
}

uint64_t EntryBytes(const OutputEntry& entry) {
  return static_cast<uint64_t>(Volume(entry.tensor->shape)) *
         ElementSize(entry.dtype);
}

// `header` with the tensors' digests, which have the lengths `lengths`. Tensors
// without bytes are not payloads; `digests` has those of the others, in order.
std::string HeaderWithDigests(absl::Span<const uint64_t> lengths,
                              absl::Span<const ChunkDigest> digests,
                              std::string header) {
  std::vector<uint64_t> of_tensors;
  of_tensors.reserve(lengths.size());
  size_t next = 0;
  for (const uint64_t length : lengths) {
    of_tensors.push_back(length == 0 ? Xxh3Digest({}) : digests[next++].digest);
  }
  PutSafetensorsDigests(of_tensors, header);
  return header;
}

// Adds one file with the given entries to `output`.
absl::Status AddFile(std::vector<const OutputEntry*> entries,
                     SourceFiles& files, std::string name,
                     const SafetensorsMetadata& metadata, bool with_digests,
                     Output& output) {
  // Wide types first, so that every tensor is aligned to the element size.
  std::sort(
      entries.begin(), entries.end(),
      [](const OutputEntry* a, const OutputEntry* b) {
        return std::tuple(ElementSize(b->dtype), absl::string_view(a->fqn)) <
               std::tuple(ElementSize(a->dtype), absl::string_view(b->fqn));
      });
  std::vector<SafetensorsTensor> tensors;
  tensors.reserve(entries.size());
  uint64_t end = 0;
  for (const OutputEntry* entry : entries) {
    const uint64_t begin = end;
    end += EntryBytes(*entry);
    tensors.push_back({.name = entry->fqn,
                       .dtype = entry->dtype,
                       .shape = entry->tensor->shape,
                       .begin = begin,
                       .end = end});
  }
  std::string header = WriteSafetensorsHeader(tensors, metadata, with_digests);
  if (header.size() - 8 > kMaxSafetensorsHeaderBytes) {
    return OptionError(
        absl::StatusCode::kFailedPrecondition, "the header of ", name,
        " would have ", header.size() - 8,
        " bytes, but readers accept at most ", kMaxSafetensorsHeaderBytes,
        "; choose a smaller value for ", OptionName{"max_shard_bytes"});
  }
  FileLayout layout(std::move(name));
  for (size_t i = 0; i < entries.size(); ++i) {
    layout.Append(i == 0 ? header.size() : 0, EntryBytes(*entries[i]),
                  static_cast<uint32_t>(output.payloads.size()));
    output.payloads.push_back(
        WholePayload(*entries[i]->tensor, &files, entries[i]->dtype));
  }
  if (entries.empty()) layout.Append(header.size(), 0, 0);
  OutputFile& file = output.files.emplace_back(
      OutputFile{.layout = std::move(layout), .literal = {}, .head = {}});
  if (with_digests) {
    std::vector<uint64_t> lengths;
    for (const OutputEntry* entry : entries)
      lengths.push_back(EntryBytes(*entry));
    file.head = [header, lengths = std::move(lengths)](
                    absl::Span<const ChunkDigest> digests) {
      return HeaderWithDigests(lengths, digests, header);
    };
  }
  file.literal = [header = std::move(header)](
                     size_t, absl::Span<const uint32_t>) { return header; };
  return absl::OkStatus();
}

std::vector<const OutputEntry*> Pointers(
    absl::Span<const OutputEntry> entries) {
  std::vector<const OutputEntry*> pointers;
  for (const OutputEntry& entry : entries) pointers.push_back(&entry);
  return pointers;
}

}  // namespace

SafetensorsMetadata WithFormat(SafetensorsMetadata metadata) {
  for (const auto& [key, value] : metadata) {
    if (key == "format") return metadata;
  }
  metadata.insert(metadata.begin(), {"format", "pt"});
  return metadata;
}

absl::Status NonTensorsError(absl::Span<const std::string> names,
                             absl::string_view remedy) {
  return absl::FailedPreconditionError(absl::StrCat(
      "safetensors cannot hold ",
      names.size() == 1 ? "the value that is not a tensor: "
                        : absl::StrCat("the ", names.size(),
                                       " values that are not tensors: "),
      absl::StrJoin(names.first(std::min(names.size(), kMaxNamesShown)), ", "),
      names.size() > kMaxNamesShown ? ", ..." : "", "; ", remedy));
}

absl::StatusOr<Output> BuildSafetensorsFile(
    absl::Span<const OutputEntry> entries, SourceFiles& files,
    absl::string_view file_name, const SafetensorsMetadata& metadata,
    bool with_digests) {
  DCP_RETURN_IF_ERROR(CheckEntries(entries));
  Output output;
  output.needs_digests = with_digests;
  DCP_RETURN_IF_ERROR(AddFile(Pointers(entries), files, std::string(file_name),
                              metadata, with_digests, output));
  return output;
}

absl::StatusOr<Output> BuildSafetensorsDirectory(
    absl::Span<const OutputEntry> entries, SourceFiles& files,
    uint64_t max_shard_bytes, const SafetensorsMetadata& metadata,
    absl::string_view stem) {
  DCP_RETURN_IF_ERROR(CheckEntries(entries));
  std::vector<std::vector<const OutputEntry*>> shards(1);
  uint64_t total = 0;
  uint64_t in_shard = 0;
  for (const OutputEntry& entry : entries) {
    const uint64_t bytes = EntryBytes(entry);
    if (max_shard_bytes != 0 && !shards.back().empty() &&
        in_shard + bytes > max_shard_bytes) {
      shards.emplace_back();
      in_shard = 0;
    }
    shards.back().push_back(&entry);
    in_shard += bytes;
    total += bytes;
  }
  Output output;
  output.needs_digests = true;
  output.digests_name = DigestsName("");
  const SafetensorsMetadata in_each = WithFormat(metadata);
  std::vector<std::pair<std::string, std::string>> weight_map;
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string name = shards.size() == 1
                           ? absl::StrCat(stem, ".safetensors")
                           : absl::StrFormat("%s-%05d-of-%05d.safetensors",
                                             stem, i + 1, shards.size());
    for (const OutputEntry* entry : shards[i]) {
      weight_map.emplace_back(entry->fqn, name);
    }
    DCP_RETURN_IF_ERROR(AddFile(std::move(shards[i]), files, std::move(name),
                                in_each,
                                /*with_digests=*/true, output));
  }
  if (output.files.size() > 1) {
    std::sort(weight_map.begin(), weight_map.end());
    output.index_name = absl::StrCat(stem, ".safetensors.index.json");
    output.index = [total, weight_map = std::move(weight_map)] {
      return WriteSafetensorsIndex(total, weight_map);
    };
  }
  return output;
}

}  // namespace dcp
