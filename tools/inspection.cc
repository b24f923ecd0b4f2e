#include "tools/inspection.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "dcp/base/bytes.h"
#include "dcp/checkpoint/selection.h"
#include "dcp/format/value.h"
#include "dcp/tensor/box.h"
#include "tools/layout_name.h"
#include "tools/quantity.h"
#include "tools/render.h"

namespace dcp::tools {
namespace {

// A value is shown on one line.
constexpr size_t kMaxValueBytes = 72;
// Files of a large job are many and all alike.
constexpr size_t kMaxFilesShown = 32;

uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  return CheckedAdd(a, b).value_or(std::numeric_limits<uint64_t>::max());
}

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
    AppendField(label, Shorten(value, kMaxValueBytes), text);
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

void AppendTensors(const Inspection& inspection, std::string& text) {
  Table table(
      {{"TENSOR"}, {"DTYPE"}, {"SHAPE"}, {"SIZE", Align::kRight}, {"CHUNKS"}});
  for (const CheckpointEntry* entry : inspection.tensors) {
    const TensorEntry& tensor = *entry->tensor();
    table.AddRow({entry->fqn, std::string(TorchName(tensor.dtype)),
                  ShapeToString(tensor.shape), FormatBytes(tensor.num_bytes()),
                  LayoutName(tensor.shape, tensor.boxes)});
  }
  absl::StrAppend(&text, "\n", table.Render());
}

void AppendChunks(const Inspection& inspection, std::string& text) {
  Table table({{"TENSOR"},
               {"CHUNK"},
               {"FILE"},
               {"OFFSET", Align::kRight},
               {"LENGTH", Align::kRight}});
  for (const CheckpointEntry* entry : inspection.tensors) {
    const TensorEntry& tensor = *entry->tensor();
    for (size_t i = 0; i < tensor.boxes.size(); ++i) {
      const StorageInfo& item = tensor.locations[i].item;
      table.AddRow({entry->fqn, ToString(tensor.boxes[i]),
                    inspection.files[item.file].name, absl::StrCat(item.offset),
                    absl::StrCat(item.length)});
    }
  }
  absl::StrAppend(&text, "\n", table.Render());
}

void AppendObjects(const Inspection& inspection, std::string& text) {
  Table table({{"OBJECT"}, {"VALUE"}});
  for (size_t i = 0; i < inspection.objects.size(); ++i) {
    table.AddRow(
        {inspection.objects[i]->fqn,
         ObjectText(inspection, i, kMaxValueBytes).value_or("(not read)")});
  }
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
  return ToString(object.value, max_bytes);
}

std::string RenderInspection(const Inspection& inspection, bool chunks) {
  std::string text;
  AppendSummary(inspection, text);
  AppendFiles(inspection, text);
  if (!inspection.tensors.empty()) AppendTensors(inspection, text);
  if (chunks && !inspection.tensors.empty()) AppendChunks(inspection, text);
  if (!inspection.objects.empty()) AppendObjects(inspection, text);
  return text;
}

}  // namespace dcp::tools
