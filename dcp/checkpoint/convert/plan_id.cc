// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/plan_id.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/checkpoint/convert/convert_output.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/mapped/mapped_tensor.h"

namespace dcp {
namespace {

// Changes with every version of this program that plans other files or pieces,
// or writes other bytes for the same plan.
constexpr absl::string_view kPlanners = "planners 2";

void AppendOpened(const SourceFiles& files, SourceView view,
                  std::string& text) {
  for (uint32_t i = 0; i < files.names().size(); ++i) {
    const std::optional<FileInfo> opened = files.OpenedAs(i);
    if (!opened.has_value()) continue;
    AppendFile(files.names()[i], *opened, view, !files.traits().has_rename,
               text);
  }
}

void AppendSelected(const Conversion& conversion, std::string& text) {
  for (const SelectedEntry& choice : conversion.selected) {
    absl::StrAppend(&text, choice.entry, " ", static_cast<int>(choice.dtype),
                    " ", choice.fqn, "\n");
  }
}

void AppendLayouts(const Output& output, std::string& text) {
  for (const OutputFile& file : output.files) {
    absl::StrAppend(&text, file.layout.name(), " ", file.layout.size());
    for (const LayoutPart& part : file.layout.parts()) {
      absl::StrAppend(&text, " ", part.literal_length, "+", part.payload_length,
                      ":", part.payload);
    }
  }
  for (const Payload& payload : output.payloads) {
    absl::StrAppend(&text, "\n", static_cast<int>(payload.dtype), " ",
                    payload.entry, " ", absl::StrJoin(payload.box.offsets, ","),
                    " ", absl::StrJoin(payload.box.sizes, ","));
  }
}

void AppendChunks(const TensorEntry& stored, std::string& text) {
  for (size_t i = 0; i < stored.boxes.size(); ++i) {
    const StorageInfo& item = stored.locations[i].item;
    absl::StrAppend(&text, "\n", item.file, " ", item.offset, " ", item.length,
                    " ", absl::StrJoin(stored.boxes[i].offsets, ","), " ",
                    absl::StrJoin(stored.boxes[i].sizes, ","));
  }
}

// The places of the payloads according to the source's index.
void AppendLocations(const Output& output, std::string& text) {
  absl::flat_hash_set<const TensorEntry*> seen;
  const auto append = [&](const TensorEntry* stored) {
    if (seen.insert(stored).second) AppendChunks(*stored, text);
  };
  for (const Payload& payload : output.payloads) {
    if (payload.stored == nullptr) continue;
    append(payload.stored);
    if (payload.stored->mapped == nullptr) continue;
    for (const TensorEntry* const source : payload.stored->mapped->sources()) {
      append(source);
    }
  }
}

// The mapping's input. The elements that it expects to be equal do not follow
// from the places where it puts them.
void AppendMapSpec(const MapSpec& spec, std::string& text) {
  const MapOptions& options = spec.options;
  absl::StrAppend(&text, Xxh3Digest(AsBytes(spec.mapping.text())), " ",
                  Xxh3Digest(AsBytes(options.config)), " ", options.from, " ",
                  options.to);
  absl::StrAppend(&text, " ", static_cast<int>(options.parts), " ",
                  static_cast<int>(options.unmatched), " ",
                  options.force_family);
  for (const std::string& place :
       {spec.model_from, spec.model_to, spec.states_from, spec.states_to}) {
    absl::StrAppend(&text, " ", place.size(), place);
  }
  absl::StrAppend(&text, " ", spec.adapter.size(), spec.adapter, " ",
                  spec.encode);
  for (const auto* names :
       {&spec.average, &spec.encode_exclude, &options.allow_missing}) {
    absl::StrAppend(&text, " ", names->size());
    for (const std::string& name : *names) {
      absl::StrAppend(&text, " ", name.size(), name);
    }
  }
  for (const auto& [name, value] : options.settings) {
    absl::StrAppend(&text, " ", name, "=", value);
  }
  absl::StrAppend(&text, "\n");
}

// The places where a mapping puts elements.
void AppendMapped(const MappedEntries& mapped, std::string& text) {
  absl::flat_hash_map<const TensorEntry*, uint32_t> entries;
  for (size_t i = 0; i < mapped.sources.size(); ++i) {
    entries[mapped.sources[i]] = mapped.entry_of_source[i];
  }
  for (const auto& tensor : mapped.tensors) {
    for (const StridedPiece& piece : tensor->pieces()) {
      const TensorEntry* const source = tensor->PieceSource(piece);
      absl::StrAppend(&text, source == nullptr ? UINT32_MAX : entries[source],
                      " ", absl::StrJoin(piece.src_base, ","), " ",
                      absl::StrJoin(piece.dst_base, ","));
      for (const StridedLoop& loop : piece.loops) {
        absl::StrAppend(&text, " ", loop.count, ":", loop.src_dim, ",",
                        loop.src_step, ":", loop.dst_dim);
        absl::StrAppend(&text, ",", loop.dst_step);
      }
      absl::StrAppend(&text, "\n");
    }
  }
}

}  // namespace

std::string PlanText(const Conversion& conversion,
                     const ConvertOptions& options, SourceView view) {
  std::string text = absl::StrCat(FormatName(conversion.plan.to), "\n");
  for (const auto& [key, value] : MetadataFor(*conversion.source, options)) {
    absl::StrAppend(&text, key.size(), key, value.size(), value, "\n");
  }
  AppendSelected(conversion, text);
  if (conversion.source->mapped() != nullptr) {
    AppendMapSpec(*options.open.map, text);
    // A worker that does not look would make the others' check void.
    if (options.check_padding) text += "padding is zero\n";
    AppendMapped(*conversion.source->mapped(), text);
  }
  // Only the files that the conversion needs have been opened.
  AppendOpened(conversion.source->files(), view, text);
  if (conversion.companions.files != nullptr) {
    AppendOpened(*conversion.companions.files, view, text);
  }
  AppendLayouts(conversion.output, text);
  AppendLocations(conversion.output, text);
  return text;
}

std::string PlanId(const Conversion& conversion, const ConvertOptions& options,
                   uint64_t piece_bytes) {
  return IdOfText(
      absl::StrCat(kPlanners, " ", piece_bytes, " ",
                   static_cast<int>(conversion.target.kind), "\n",
                   PlanText(conversion, options, SourceView::kAnyMachine)));
}

std::vector<FileToCut> FilesToCut(const Output& output, bool cuts) {
  std::vector<FileToCut> files;
  for (const OutputFile& file : output.files) {
    files.push_back(
        {.layout = &file.layout, .head_is_last = cuts && file.head != nullptr});
  }
  return files;
}

WorkPlan MakeWorkPlan(const Conversion& conversion, bool cuts_files,
                      uint64_t piece_bytes) {
  WorkPlan plan{.id = conversion.own.id, .kind = conversion.target.kind};
  for (const OutputFile& file : conversion.output.files) {
    plan.files.push_back(file.layout.name());
  }
  plan.pieces = CutIntoPieces(FilesToCut(conversion.output, cuts_files),
                              cuts_files ? piece_bytes : UINT64_MAX);
  return plan;
}

std::string IdOfText(std::string text) {
  const uint64_t first = Xxh3Digest(AsBytes(text));
  absl::StrAppend(&text, first);
  return absl::StrCat(absl::Hex(first, absl::kZeroPad16),
                      absl::Hex(Xxh3Digest(AsBytes(text)), absl::kZeroPad16));
}

void AppendFile(absl::string_view name, const FileInfo& info, SourceView view,
                bool is_in_store, std::string& text) {
  const bool has_inode = view == SourceView::kThisMachine || is_in_store;
  absl::StrAppend(&text, name, " ", FileVersion(info, has_inode), "\n");
}

}  // namespace dcp
