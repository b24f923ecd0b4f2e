// SPDX-License-Identifier: Apache-2.0
// Output for people: tables with aligned columns, and names made safe to print,
// because a checkpoint may hold names that would control a terminal. Pure; any
// thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_RENDER_H_
#define TOOLS_DCP_CONVERT_OUTPUT_RENDER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dcp::tools {

// `text` with control characters, DEL and invalid UTF-8 shown as \xNN, and
// characters that are invisible or change the text direction as \uNNNN.
std::string Printable(absl::string_view text);

// The terminal columns that `text` takes, one for each code point.
size_t DisplayWidth(absl::string_view text);

// `text` cut to `width` columns, with "..." at the end when cut.
std::string Shorten(absl::string_view text, size_t width);

// A line for each of a checkpoint's losses, with the path; empty for none.
std::string RenderWarnings(absl::string_view path,
                           absl::Span<const std::string> warnings);

enum class Align { kLeft, kRight };

// A table with one line of titles. Cells go through Printable and are never
// cut; a column is as wide as the widest cell, up to a limit.
class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns);

  // One cell per column.
  void AddRow(std::vector<std::string> cells);
  size_t num_rows() const { return num_rows_; }

  // Lines that end in a newline; two spaces between columns, no spaces at
  // the end of a line.
  std::string Render() const;

 private:
  struct Cell {
    std::string text;
    size_t width;
  };

  void AppendLine(const Cell* cells, std::string& text) const;

  std::vector<Column> columns_;
  std::vector<size_t> widths_;
  std::vector<Cell> titles_;
  std::vector<Cell> cells_;  // row by row
  size_t num_rows_ = 0;
};

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_RENDER_H_
