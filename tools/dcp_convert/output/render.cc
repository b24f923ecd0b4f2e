// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/output/render.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/check.h"
#include "tools/dcp_convert/options/flag_names.h"

namespace dcp::tools {
namespace {

bool IsContinuation(char byte) {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

// The length of the well-formed UTF-8 sequence at the start of `text`, or 0.
// Overlong forms, surrogates and the C1 control characters give 0.
size_t SequenceLength(absl::string_view text) {
  const uint8_t lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7F ? 1 : 0;
  size_t length = 0;
  if (lead >= 0xC2 && lead <= 0xDF) length = 2;
  if (lead >= 0xE0 && lead <= 0xEF) length = 3;
  if (lead >= 0xF0 && lead <= 0xF4) length = 4;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!IsContinuation(text[i])) return 0;
  }
  const uint8_t second = static_cast<uint8_t>(text[1]);
  if (lead == 0xC2 && second < 0xA0) return 0;
  if (lead == 0xE0 && second < 0xA0) return 0;
  if (lead == 0xED && second >= 0xA0) return 0;
  if (lead == 0xF0 && second < 0x90) return 0;
  if (lead == 0xF4 && second >= 0x90) return 0;
  return length;
}

// Code points that are invisible or change their neighbours' order, so that a
// name could look like another one.
struct CodePoints {
  uint32_t first;
  uint32_t last;
};
constexpr CodePoints kInvisible[] = {
    {0x00AD, 0x00AD}, {0x034F, 0x034F},   {0x061C, 0x061C},  {0x115F, 0x1160},
    {0x17B4, 0x17B5}, {0x180E, 0x180E},   {0x200B, 0x200F},  {0x2028, 0x202E},
    {0x2060, 0x206F}, {0x3164, 0x3164},   {0xFEFF, 0xFEFF},  {0xFFA0, 0xFFA0},
    {0xFFF9, 0xFFFB}, {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}};

// The code point of a well-formed sequence.
uint32_t CodePoint(absl::string_view sequence) {
  constexpr uint8_t kLeadBits[] = {0x7F, 0x1F, 0x0F, 0x07};
  uint32_t code =
      static_cast<uint8_t>(sequence[0]) & kLeadBits[sequence.size() - 1];
  for (const char byte : sequence.substr(1)) {
    code = code << 6 | (static_cast<uint8_t>(byte) & 0x3F);
  }
  return code;
}

bool IsInvisible(uint32_t code) {
  return std::any_of(std::begin(kInvisible), std::end(kInvisible),
                     [code](const CodePoints& points) {
                       return code >= points.first && code <= points.last;
                     });
}

// A wider cell shifts only the rest of that line.
constexpr size_t kMaxAlignedWidth = 60;

bool IsPlainAscii(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= 0x20 && c < 0x7F; });
}

}  // namespace

std::string Printable(absl::string_view text) {
  if (IsPlainAscii(text)) return std::string(text);
  std::string safe;
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) {
      absl::StrAppendFormat(&safe, "\\x%02x", static_cast<uint8_t>(text[0]));
      text.remove_prefix(1);
      continue;
    }
    const absl::string_view sequence = text.substr(0, length);
    const uint32_t code = CodePoint(sequence);
    if (!IsInvisible(code)) {
      safe.append(sequence.data(), sequence.size());
    } else if (code <= 0xFFFF) {
      absl::StrAppendFormat(&safe, "\\u%04x", code);
    } else {
      absl::StrAppendFormat(&safe, "\\U%08x", code);
    }
    text.remove_prefix(length);
  }
  return safe;
}

std::string RenderWarnings(absl::string_view path,
                           absl::Span<const std::string> warnings) {
  std::string text;
  for (const std::string& warning : warnings) {
    absl::StrAppend(&text, "warning: ", Printable(path),
                    path.empty() ? "" : ": ", Printable(WithFlags(warning)),
                    "\n");
  }
  return text;
}

size_t DisplayWidth(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(),
                    [](char byte) { return !IsContinuation(byte); }));
}

std::string Shorten(absl::string_view text, size_t width) {
  if (DisplayWidth(text) <= width) return std::string(text);
  const size_t kept = width < 3 ? 0 : width - 3;
  size_t end = 0;
  for (size_t columns = 0; end < text.size(); ++end) {
    if (IsContinuation(text[end])) continue;
    if (columns++ == kept) break;
  }
  std::string shortened(text.substr(0, end));
  shortened.append(std::min<size_t>(width, 3), '.');
  return shortened;
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (const Column& column : columns_) {
    const size_t width = DisplayWidth(column.title);
    widths_.push_back(width);
    titles_.push_back({column.title, width});
  }
}

void Table::AddRow(std::vector<std::string> cells) {
  DCP_CHECK(cells.size() == columns_.size(), cells.size(), " cells in ",
            columns_.size(), " columns");
  for (size_t i = 0; i < cells.size(); ++i) {
    std::string text = Printable(cells[i]);
    const size_t width = DisplayWidth(text);
    if (width <= kMaxAlignedWidth) widths_[i] = std::max(widths_[i], width);
    cells_.push_back({std::move(text), width});
  }
  ++num_rows_;
}

void Table::AppendLine(const Cell* cells, std::string& text) const {
  for (size_t i = 0; i < columns_.size(); ++i) {
    const size_t padding = widths_[i] - std::min(widths_[i], cells[i].width);
    if (i > 0) text.append("  ");
    if (columns_[i].align == Align::kRight) text.append(padding, ' ');
    text.append(cells[i].text);
    if (columns_[i].align == Align::kLeft) text.append(padding, ' ');
  }
  text.erase(text.find_last_not_of(' ') + 1);
  text.push_back('\n');
}

std::string Table::Render() const {
  std::string text;
  AppendLine(titles_.data(), text);
  for (size_t row = 0; row < num_rows_; ++row) {
    AppendLine(&cells_[row * columns_.size()], text);
  }
  return text;
}

}  // namespace dcp::tools
