// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/plan_id.h"

#include <cstddef>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/checkpoint/convert/spec_text.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/lens/lensed_tensor.h"
#include "dcp/checkpoint/mapped/mapped_tensor.h"

namespace dcp {
namespace {

// Changes with every version of this program that plans other files or pieces,
// or writes other bytes for the same plan.
constexpr absl::string_view kPlanners = "planners 4";

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
      if (source->lensed == nullptr) continue;
      append(&source->lensed->values());
      for (const LensTable& table : source->lensed->tables()) {
        append(table.tensor);
      }
    }
  }
}

}  // namespace

std::string PlanText(const Conversion& conversion,
                     const ConvertOptions& options, SourceView view) {
  std::string text =
      absl::StrCat(FormatName(conversion.plan.to), "\n", SpecText(options));
  AppendSelected(conversion, text);
  // Only the files that the conversion needs have been opened.
  AppendOpened(conversion.source->files(), view, text);
  for (const auto& other : conversion.source->others()) {
    AppendOpened(other->files(), view, text);
  }
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
