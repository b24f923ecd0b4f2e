// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/order/order_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "c10/util/Exception.h"
#include "fsdp/parallel/pipeline/order/pipeline_order.h"

namespace fsdp {
namespace {

using Kind = PipelineAction::Kind;

// In pixels.
constexpr double kUnit = 24;
constexpr double kRow = 28;
constexpr double kLeft = 60;

size_t LongestRank(const PipelineOrder& order) {
  size_t longest = 0;
  for (const auto& slots : order) longest = std::max(longest, slots.size());
  return longest;
}

std::string Padded(const std::string& text, size_t width) {
  return absl::StrCat(text, std::string(width - text.size(), ' '));
}

// The fields of a line, without the quotes that PyTorch does not write but
// other programs may.
std::vector<PipelineSlot> ParseLine(absl::string_view line, size_t number) {
  std::vector<PipelineSlot> slots;
  if (line.empty()) return slots;
  for (absl::string_view field : absl::StrSplit(line, ',')) {
    if (field.size() >= 2 && field.front() == '"' && field.back() == '"') {
      field = field.substr(1, field.size() - 2);
    }
    TORCH_CHECK_VALUE(field.size() <= 100, "line ", number,
                      " of the order of a pipeline has a field of ",
                      field.size(), " characters; at most 100 can be read");
    slots.push_back(ParsePipelineSlot(field));
  }
  return slots;
}

// "hsl(210,70%,80%)": the first stage on a rank is the lightest.
std::string Colour(const PipelineAction& action, size_t nth_stage) {
  constexpr int kHues[] = {210, 130, 40, 350};  // by kind
  const size_t shade = 82 - 12 * std::min<size_t>(nth_stage, 4);
  return absl::StrFormat("hsl(%d,65%%,%d%%)",
                         kHues[static_cast<size_t>(action.kind)], shade);
}

std::string Box(const TimedAction& timed, size_t rank, size_t nth_stage) {
  const double x = kLeft + kUnit * timed.start;
  const double width = kUnit * (timed.end - timed.start);
  const double y = kRow * static_cast<double>(rank);
  return absl::StrFormat(
      "<rect x='%g' y='%g' width='%g' height='%g' fill='%s' stroke='#444'>"
      "<title>%s</title></rect>"
      "<text x='%g' y='%g' text-anchor='middle'>%d</text>\n",
      x, y + 2, width, kRow - 4, Colour(timed.action, nth_stage),
      to_string(timed.action), x + width / 2, y + 18, timed.action.microbatch);
}

}  // namespace

std::string FormatOrderCsv(const PipelineOrder& order) {
  std::string csv;
  for (const std::vector<PipelineSlot>& slots : order) {
    absl::StrAppend(
        &csv,
        absl::StrJoin(slots, ",",
                      [](std::string* out, const PipelineSlot& slot) {
                        absl::StrAppend(out, to_string(slot));
                      }),
        "\r\n");
  }
  return csv;
}

PipelineOrder ParseOrderCsv(absl::string_view csv) {
  PipelineOrder order;
  std::vector<absl::string_view> lines = absl::StrSplit(csv, '\n');
  if (lines.back().empty()) lines.pop_back();
  for (size_t i = 0; i < lines.size(); ++i) {
    order.push_back(
        ParseLine(absl::StripTrailingAsciiWhitespace(lines[i]), i + 1));
  }
  StageRanks(order);
  return order;
}

std::string FormatOrderTable(const PipelineOrder& order) {
  const size_t num_slots = LongestRank(order);
  const size_t digits = absl::StrCat(num_slots == 0 ? 0 : num_slots - 1).size();
  std::vector<std::string> lines(num_slots + 1,
                                 std::string(digits + 7, ' '));  // "Step 00: "
  for (size_t i = 0; i < num_slots; ++i) {
    lines[i + 1] = absl::StrFormat("Step %0*d: ", static_cast<int>(digits), i);
  }
  for (size_t rank = 0; rank < order.size(); ++rank) {
    std::vector<std::string> column{absl::StrCat("Rank ", rank)};
    for (size_t i = 0; i < num_slots; ++i) {
      column.push_back(i < order[rank].size() ? to_string(order[rank][i]) : "");
    }
    size_t width = 0;
    for (const std::string& cell : column) width = std::max(width, cell.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      absl::StrAppend(&lines[i], Padded(column[i], width + 1));
    }
  }
  for (std::string& line : lines) absl::StripTrailingAsciiWhitespace(&line);
  return absl::StrCat(absl::StrJoin(lines, "\n"), "\n");
}

std::string FormatTimelineSvg(const Timeline& timeline) {
  const double width = kLeft + kUnit * EndTime(timeline) + 4;
  const double height = kRow * static_cast<double>(timeline.size());
  std::string svg = absl::StrFormat(
      "<svg xmlns='http://www.w3.org/2000/svg' width='%g' height='%g' "
      "font-family='sans-serif' font-size='11'>\n",
      width, height);
  for (size_t rank = 0; rank < timeline.size(); ++rank) {
    absl::StrAppendFormat(&svg, "<text x='4' y='%g'>rank %d</text>\n",
                          kRow * static_cast<double>(rank) + 18, rank);
    std::set<int64_t> stages;
    for (const TimedAction& timed : timeline[rank]) {
      stages.insert(timed.action.stage);
    }
    for (const TimedAction& timed : timeline[rank]) {
      const auto place = stages.find(timed.action.stage);
      absl::StrAppend(
          &svg, Box(timed, rank,
                    static_cast<size_t>(std::distance(stages.begin(), place))));
    }
  }
  absl::StrAppend(&svg, "</svg>\n");
  return svg;
}

}  // namespace fsdp
