// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/convert_output.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/accelerate_layout.h"
#include "dcp/checkpoint/convert/mesh_layout.h"
#include "dcp/checkpoint/convert/torch_rewrite.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/lens/quantization.h"
#include "dcp/checkpoint/output/dcp_output.h"
#include "dcp/checkpoint/output/torch_output.h"
#include "dcp/format/json/json.h"
#include "dcp/tensor/placement.h"

namespace dcp {
namespace {

// Without a mesh, the chunks that a checkpoint has are kept.
bool KeepsChunks(const Checkpoint& source) {
  if (source.format() == Format::kDcp) return true;
  for (const CheckpointEntry& entry : source.entries()) {
    if (entry.tensor() != nullptr && entry.tensor()->boxes.size() > 1) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<std::vector<DcpRank>> PlanRanks(
    Checkpoint& source, absl::Span<const OutputEntry> entries,
    const ConvertOptions& options) {
  if (options.mesh.has_value()) {
    DCP_ASSIGN_OR_RETURN(const std::vector<EntryLayout> layouts,
                         LayoutEntries(entries, options));
    return ChunksForMeshes(entries, DestinationMeshes(options), layouts);
  }
  if (KeepsChunks(source) && !options.consolidate) {
    return ChunksAsStored(entries, source.files());
  }
  const Mesh one{{{.name = "shard", .size = 1}}};
  const std::vector<EntryLayout> replicate(
      entries.size(), {.mesh = 0, .placements = Placements(1)});
  return ChunksForMeshes(entries, {one}, replicate);
}

absl::StatusOr<Output> BuildDcp(const ConvertOutputParts& parts,
                                std::vector<OutputEntry> entries,
                                const ConvertOptions& options) {
  DCP_ASSIGN_OR_RETURN(const std::vector<DcpRank> ranks,
                       PlanRanks(parts.source, entries, options));
  DcpOutputOptions dcp = {.max_file_bytes = options.max_shard_bytes,
                          .flattened = parts.source.flattened(),
                          .save_id = parts.save_id};
  if (parts.target.dialect == Dialect::kAccelerate) {
    dcp.flattened = true;
    return BuildAccelerateOutput(std::move(entries), parts.source.files(),
                                 ranks, dcp);
  }
  absl::flat_hash_map<int64_t, uint64_t> num_files;  // by rank
  return BuildDcpOutput(
      std::move(entries), parts.source.files(), ranks, dcp, [&](int64_t rank) {
        return parts.destination != nullptr
                   ? parts.destination->NextDataFileName(rank)
                   : DataFileName(rank, num_files[rank]++, parts.save_id);
      });
}

// The type of all floating-point tensors in the output; nullopt without a cast,
// or if they differ.
std::optional<DType> TypeAfterCast(absl::Span<const OutputEntry> entries,
                                   const ConvertOptions& options) {
  std::optional<DType> type;
  if (options.selection.casts.empty()) return type;
  for (const OutputEntry& entry : entries) {
    if (entry.tensor == nullptr || !IsFloatingPoint(entry.dtype)) continue;
    if (type.has_value() && *type != entry.dtype) return std::nullopt;
    type = entry.dtype;
  }
  return type;
}

// Whether tensors were stored as codes with scales.
bool HasDecoded(const MappedEntries& mapped) {
  const auto& lensed = mapped.lensed.by_values;
  return std::any_of(lensed.begin(), lensed.end(), [](const auto& entry) {
    return entry.second.tensor->kind() == LensedTensor::Kind::kScales;
  });
}

// The text that transformers' FineGrainedFP8Config has for a model with encoded
// tensors; empty if none is encoded.
std::string QuantizationConfig(const Checkpoint& source) {
  if (source.mapped() == nullptr || !source.mapped()->has_encoded()) return "";
  const std::string names =
      absl::StrJoin(source.mapped()->not_encoded, ", ",
                    [](std::string* out, const std::string& name) {
                      absl::StrAppend(out, QuoteJson(name));
                    });
  return absl::StrCat(
      "{\"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", "
      "\"modules_to_not_convert\": [",
      names,
      "], \"quant_method\": \"fp8\", \"weight_block_size\": "
      "[128, 128]}");
}

// Whether a config that calls the model quantized is wrong. A mapping decodes,
// or writes tensors that were decoded earlier, and the config may still
// describe the codes.
bool IsUnquantized(const Checkpoint& source,
                   absl::Span<const OutputEntry> entries) {
  if (source.mapped() == nullptr) return false;
  return HasDecoded(*source.mapped()) ||
         std::none_of(entries.begin(), entries.end(),
                      [](const OutputEntry& entry) {
                        return entry.tensor != nullptr &&
                               (entry.tensor->quantization != nullptr ||
                                MayBeCodes(entry.dtype));
                      });
}

// The stem of a model's file names: that of the source, if a library looks for
// files with that name.
absl::string_view FileStem(const Checkpoint& source) {
  constexpr absl::string_view kModel = "model";
  if (source.dialect() != Dialect::kSafetensors &&
      source.dialect() != Dialect::kTorch) {
    return kModel;
  }
  for (const absl::string_view stem :
       {"diffusion_pytorch_model", "adapter_model"}) {
    if (absl::StartsWith(BaseName(source.files().names()[0]), stem)) {
      return stem;
    }
  }
  return kModel;
}

absl::StatusOr<Output> BuildSafetensors(const ConvertOutputParts& parts,
                                        absl::Span<const OutputEntry> entries,
                                        absl::string_view file_name,
                                        const ConvertOptions& options) {
  SourceFiles& files = parts.source.files();
  const SafetensorsMetadata metadata = MetadataFor(parts.source, options);
  if (parts.target.kind == Destination::Kind::kFile) {
    // A stream begins with the header, so digests would come too late for it.
    return BuildSafetensorsFile(entries, files, file_name, WithFormat(metadata),
                                /*with_digests=*/options.stream == nullptr);
  }
  DCP_ASSIGN_OR_RETURN(
      Output output,
      BuildSafetensorsDirectory(entries, files, options.max_shard_bytes,
                                metadata, FileStem(parts.source)));
  absl::StatusOr<std::vector<std::string>> dropped = AddCompanionFiles(
      parts.fs, parts.companions,
      {.tensor_type = TypeAfterCast(entries, options),
       .drops_quantization = IsUnquantized(parts.source, entries),
       .quantization = QuantizationConfig(parts.source)},
      output);
  if (!dropped.ok()) return WithSide(dropped.status(), ErrorSide::kSource);
  parts.dropped_config = *std::move(dropped);
  return output;
}

}  // namespace

SafetensorsMetadata MetadataFor(const Checkpoint& source,
                                const ConvertOptions& options) {
  SafetensorsMetadata metadata;
  if (!options.drop_metadata) metadata = source.metadata();
  for (const auto& [key, value] : options.metadata) {
    const auto known =
        std::find_if(metadata.begin(), metadata.end(),
                     [&](const auto& pair) { return pair.first == key; });
    if (known == metadata.end()) {
      metadata.emplace_back(key, value);
    } else {
      known->second = value;
    }
  }
  return metadata;
}

std::vector<std::string> DroppedMetadata(const Checkpoint& source, Format to,
                                         const ConvertOptions& options) {
  std::vector<std::string> keys;
  if (to == Format::kSafetensors && !options.drop_metadata) return keys;
  for (const auto& [key, value] : source.metadata()) {
    if (key != "format") keys.push_back(key);
  }
  return keys;
}

absl::StatusOr<Output> BuildConvertOutput(const ConvertOutputParts& parts,
                                          std::vector<OutputEntry> entries,
                                          const ConvertOptions& options) {
  // The name that torch.save gives a file without a name.
  const absl::string_view name = options.stream != nullptr
                                     ? "archive"
                                     : absl::string_view(parts.dst.name());
  switch (parts.target.format) {
    case Format::kDcp:
      return BuildDcp(parts, std::move(entries), options);
    case Format::kTorch:
      if (parts.source.torch_archive() != nullptr) {
        return RewriteTorchFile(parts.source, entries, options.selection, name);
      }
      return BuildTorchOutput(entries, parts.source.files(), name);
    case Format::kSafetensors:
      break;
  }
  return BuildSafetensors(parts, entries, name, options);
}

}  // namespace dcp
