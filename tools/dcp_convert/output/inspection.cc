// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/output/inspection.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "dcp/base/bytes.h"
#include "dcp/base/glob_set.h"
#include "dcp/checkpoint/output/dcp_output.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/box.h"
#include "tools/dcp_convert/options/flag_names.h"
#include "tools/dcp_convert/output/layout_name.h"
#include "tools/dcp_convert/output/prefix_totals.h"
#include "tools/dcp_convert/output/render.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

// A value is shown on one line.
constexpr size_t kMaxValueBytes = 72;
// A problem names files and a way out.
constexpr size_t kMaxProblemBytes = 1000;
// A large job has many files, all alike.
constexpr size_t kMaxFilesShown = 32;

std::string DTypeSummary(const Inspection& inspection) {
  return absl::StrJoin(
      inspection.dtypes, ", ",
      [](std::string* text, const Inspection::DTypeTotal& total) {
        absl::StrAppend(text, TorchName(total.dtype), " ",
                        FormatCount(total.num_tensors), " (",
                        FormatBytes(total.num_bytes), ")");
      });
}

void AppendField(absl::string_view label, absl::string_view value,
                 std::string& text) {
  absl::StrAppendFormat(&text, "  %-10s %s\n", Printable(label),
                        Printable(value));
}

void AppendSummary(const Inspection& inspection, std::string& text) {
  absl::StrAppend(&text, Printable(inspection.path), "\n");
  AppendField("format", FormatName(inspection.format), text);
  AppendField("tensors",
              absl::StrCat(FormatCount(inspection.tensors.size()), " (",
                           FormatPlural(inspection.num_elements, "element"),
                           ", ", FormatBytes(inspection.num_bytes), ")"),
              text);
  if (!inspection.dtypes.empty()) {
    AppendField("dtypes", DTypeSummary(inspection), text);
  }
  AppendField("objects", FormatCount(inspection.objects.size()), text);
  for (const auto& [label, value] : inspection.properties) {
    // Most safetensors metadata has an entry "format" too.
    const bool is_taken = label == "format" || label == "tensors" ||
                          label == "dtypes" || label == "objects";
    const std::string text_of_value =
        IsProblem(label) ? Shorten(WithFlags(value), kMaxProblemBytes)
                         : Shorten(value, kMaxValueBytes);
    AppendField(
        is_taken ? "metadata" : label,
        is_taken ? absl::StrCat(label, " = ", text_of_value) : text_of_value,
        text);
  }
  for (const std::string& warning : inspection.warnings) {
    AppendField("warning", WithFlags(warning), text);
  }
}

void AppendFiles(const Inspection& inspection, std::string& text) {
  Table table({{"FILE"}, {"SIZE", Align::kRight}});
  uint64_t rest_bytes = 0;
  for (const Inspection::DataFile& file : inspection.files) {
    if (table.num_rows() < kMaxFilesShown) {
      table.AddRow({file.name, file.num_bytes.has_value()
                                   ? FormatBytes(*file.num_bytes)
                                   : "missing"});
    } else {
      rest_bytes = SaturatingAdd(rest_bytes, file.num_bytes.value_or(0));
    }
  }
  if (inspection.files.size() > kMaxFilesShown) {
    table.AddRow(
        {absl::StrCat("(", inspection.files.size() - kMaxFilesShown, " more)"),
         FormatBytes(rest_bytes)});
  }
  absl::StrAppend(&text, "\n", table.Render());
}

// Adds the row that stands for everything beyond `limit`; the last cells are
// `rest`.
void AddRestRow(size_t num_left, std::vector<std::string> rest, Table& table) {
  rest.insert(rest.begin(), absl::StrCat("(", FormatCount(num_left), " more)"));
  table.AddRow(std::move(rest));
}

size_t NumListed(size_t size, size_t limit) {
  return limit == 0 ? size : std::min(size, limit);
}

void AppendTensors(const Inspection& inspection, size_t limit,
                   std::string& text) {
  Table table(
      {{"TENSOR"}, {"DTYPE"}, {"SHAPE"}, {"SIZE", Align::kRight}, {"CHUNKS"}});
  const size_t num_listed = NumListed(inspection.tensors.size(), limit);
  uint64_t rest_bytes = 0;
  for (size_t i = 0; i < inspection.tensors.size(); ++i) {
    const CheckpointEntry& entry = *inspection.tensors[i];
    const TensorEntry& tensor = *entry.tensor();
    if (i >= num_listed) {
      rest_bytes = SaturatingAdd(rest_bytes, tensor.num_bytes());
      continue;
    }
    table.AddRow({entry.fqn, std::string(TorchName(tensor.dtype)),
                  ShapeToString(tensor.shape), FormatBytes(tensor.num_bytes()),
                  LayoutText(inspection, tensor)});
  }
  const size_t num_left = inspection.tensors.size() - num_listed;
  if (num_left > 0) {
    AddRestRow(num_left, {"", "", FormatBytes(rest_bytes), ""}, table);
  }
  absl::StrAppend(&text, "\n", table.Render());
}

void AppendTotals(const Inspection& inspection, size_t depth, size_t limit,
                  std::string& text) {
  Table table({{"TENSORS NAMED"},
               {"NUMBER", Align::kRight},
               {"ELEMENTS", Align::kRight},
               {"SIZE", Align::kRight}});
  const std::vector<PrefixTotal> totals =
      TotalsByPrefix(inspection.tensors, depth);
  const size_t num_listed = NumListed(totals.size(), limit);
  PrefixTotal rest;
  for (size_t i = 0; i < totals.size(); ++i) {
    const PrefixTotal& total = totals[i];
    if (i < num_listed) {
      table.AddRow({total.prefix, FormatCount(total.num_tensors),
                    FormatCount(total.num_elements),
                    FormatBytes(total.num_bytes)});
      continue;
    }
    rest.num_tensors += total.num_tensors;
    rest.num_elements = SaturatingAdd(rest.num_elements, total.num_elements);
    rest.num_bytes = SaturatingAdd(rest.num_bytes, total.num_bytes);
  }
  if (num_listed < totals.size()) {
    AddRestRow(totals.size() - num_listed,
               {FormatCount(rest.num_tensors), FormatCount(rest.num_elements),
                FormatBytes(rest.num_bytes)},
               table);
  }
  absl::StrAppend(&text, "\n", table.Render());
}

void AppendChunks(const Inspection& inspection, size_t limit,
                  std::string& text) {
  Table table({{"TENSOR"},
               {"CHUNK"},
               {"FILE"},
               {"OFFSET", Align::kRight},
               {"LENGTH", Align::kRight}});
  size_t num_left = 0;
  uint64_t rest_bytes = 0;
  for (const CheckpointEntry* entry : inspection.tensors) {
    const TensorEntry& tensor = *entry->tensor();
    for (size_t i = 0; i < tensor.boxes.size(); ++i) {
      const StorageInfo& item = tensor.locations[i].item;
      if (limit != 0 && table.num_rows() >= limit) {
        ++num_left;
        rest_bytes = SaturatingAdd(rest_bytes, item.length);
        continue;
      }
      table.AddRow({entry->fqn, ToString(tensor.boxes[i]),
                    inspection.files[item.file].name, absl::StrCat(item.offset),
                    absl::StrCat(item.length)});
    }
  }
  if (num_left > 0) {
    AddRestRow(num_left, {"", "", "", absl::StrCat(rest_bytes)}, table);
  }
  absl::StrAppend(&text, "\n", table.Render());
}

void AppendObjects(const Inspection& inspection, size_t limit,
                   std::string& text) {
  Table table({{"OBJECT"}, {"VALUE"}});
  const size_t num_listed = NumListed(inspection.objects.size(), limit);
  for (size_t i = 0; i < num_listed; ++i) {
    table.AddRow(
        {inspection.objects[i]->fqn,
         ObjectText(inspection, i, kMaxValueBytes).value_or("(not read)")});
  }
  const size_t num_left = inspection.objects.size() - num_listed;
  if (num_left > 0) AddRestRow(num_left, {""}, table);
  absl::StrAppend(&text, "\n", table.Render());
  if (!inspection.objects_note.empty()) {
    absl::StrAppend(&text, Printable(inspection.objects_note), "\n");
  }
}

}  // namespace

Inspection InspectEntries(absl::Span<const CheckpointEntry> entries,
                          absl::string_view glob) {
  Inspection inspection;
  std::array<Inspection::DTypeTotal, kNumDTypes> totals{};
  for (const CheckpointEntry& entry : entries) {
    if (!glob.empty() && !MatchesGlob(glob, entry.fqn)) continue;
    const TensorEntry* tensor = entry.tensor();
    if (tensor == nullptr) {
      inspection.objects.push_back(&entry);
      continue;
    }
    inspection.tensors.push_back(&entry);
    const uint64_t num_bytes = tensor->num_bytes();
    Inspection::DTypeTotal& total = totals[static_cast<size_t>(tensor->dtype)];
    ++total.num_tensors;
    total.num_bytes = SaturatingAdd(total.num_bytes, num_bytes);
    inspection.num_bytes = SaturatingAdd(inspection.num_bytes, num_bytes);
    inspection.num_elements = SaturatingAdd(
        inspection.num_elements, static_cast<uint64_t>(Volume(tensor->shape)));
  }
  for (int i = 0; i < kNumDTypes; ++i) {
    Inspection::DTypeTotal& total = totals[static_cast<size_t>(i)];
    total.dtype = static_cast<DType>(i);
    if (total.num_tensors > 0) inspection.dtypes.push_back(total);
  }
  return inspection;
}

std::optional<std::string> ObjectText(const Inspection& inspection,
                                      size_t index, size_t max_bytes) {
  if (inspection.object_texts.has_value()) {
    const std::string& text = (*inspection.object_texts)[index];
    if (text.empty()) return std::nullopt;
    return Shorten(text, max_bytes);
  }
  const ObjectEntry& object = *inspection.objects[index]->object();
  if (!object.located) return std::nullopt;
  return ToString(object, max_bytes);
}

bool IsProblem(absl::string_view label) {
  return label == "damaged" || label == "unreadable";
}

std::string LayoutText(const Inspection& inspection,
                       const TensorEntry& tensor) {
  std::vector<int64_t> ranks;
  for (const ChunkLocation& location : tensor.locations) {
    const std::optional<int64_t> rank =
        location.item.file < inspection.files.size()
            ? ParseDataFileRank(inspection.files[location.item.file].name)
            : std::nullopt;
    if (!rank.has_value()) return LayoutName(tensor.shape, tensor.boxes);
    ranks.push_back(*rank);
  }
  return LayoutName(tensor.shape, tensor.boxes, ranks);
}

std::string RenderInspection(const Inspection& inspection,
                             const InspectionView& view) {
  std::string text;
  AppendSummary(inspection, text);
  AppendFiles(inspection, text);
  const bool many =
      inspection.tensors.size() + inspection.objects.size() > view.kMaxListed;
  const bool sums_up = !view.all && (view.depth != 0 ||
                                     (many && !view.chunks && view.limit == 0));
  if (!inspection.tensors.empty() && sums_up) {
    const size_t depth =
        view.depth != 0
            ? view.depth
            : DepthForRows(inspection.tensors, InspectionView::kScreenRows);
    AppendTotals(inspection, depth, view.limit, text);
    absl::StrAppend(&text,
                    "Tensors are grouped by the beginnings of their names; "
                    "--all lists each,\n--depth ",
                    depth + 1, " shows smaller groups.\n");
  } else if (!inspection.tensors.empty()) {
    AppendTensors(inspection, view.limit, text);
  }
  if (view.chunks && !inspection.tensors.empty()) {
    AppendChunks(inspection, view.limit, text);
  }
  if (!inspection.objects.empty()) {
    const size_t limit =
        sums_up && view.limit == 0 ? InspectionView::kScreenRows : view.limit;
    AppendObjects(inspection, limit, text);
  }
  return text;
}

}  // namespace dcp::tools
