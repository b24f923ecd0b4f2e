// toml++ bounds how deep values are nested, but not how many dots a key has,
// and each makes a table within a table, which are freed by recursion: lines
// with too many are refused before it sees them. Together, tables are never
// deeper than the product of both bounds, which fits on a stack.
//
// Its assertions fail for some texts, such as "[=", that the code after them
// refuses in good order; with NDEBUG the compiler might take that code away.
#undef NDEBUG
#define TOML_ASSERT(expr) static_assert(true)
#define TOML_MAX_NESTED_VALUES 32
#include <toml++/toml.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fsdp/config/document.h"
#include "fsdp/config/node_builder.h"

namespace fsdp::config {
namespace {

using Kind = Node::Kind;

constexpr std::ptrdiff_t kMaxDotsOfLine = 128;
// toml++ searches the tables that keys with dots have made one by one.
constexpr std::ptrdiff_t kMaxDots = 16384;

TextPosition PositionOf(const toml::source_region& region) {
  return {.line = static_cast<int>(region.begin.line),
          .column = static_cast<int>(region.begin.column)};
}

bool CheckDots(const std::vector<absl::string_view>& lines,
               NodeBuilder& builder) {
  std::ptrdiff_t all = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (absl::StartsWith(lines[i], "#")) continue;
    const std::ptrdiff_t dots =
        std::count(lines[i].begin(), lines[i].end(), '.');
    all += dots;
    if (dots <= kMaxDotsOfLine && all <= kMaxDots) continue;
    return builder.Fail({.line = static_cast<int>(i) + 1},
                        absl::StrCat("has more dots than ", kMaxDotsOfLine,
                                     " in a line or ", kMaxDots, " in all"));
  }
  return true;
}

class Converter {
 public:
  Converter(std::vector<absl::string_view> lines, NodeBuilder& builder)
      : lines_(std::move(lines)), builder_(&builder) {}

  // False after a problem; the builder bounds the recursion.
  bool Convert(const toml::node& node) {
    const TextPosition position = PositionOf(node.source());
    if (const toml::table* table = node.as_table()) {
      return ConvertTable(*table, position);
    }
    if (const toml::array* array = node.as_array()) {
      if (!builder_->Begin(Kind::kList, position)) return false;
      for (const toml::node& item : *array) {
        if (!Convert(item)) return false;
      }
      return builder_->End();
    }
    if (const auto* text = node.as_string()) {
      return builder_->Scalar(Kind::kString, text->get(), position);
    }
    if (const auto* value = node.as_boolean()) {
      return builder_->Scalar(Kind::kBool, value->get() ? "true" : "false",
                              position);
    }
    if (const auto* value = node.as_integer()) {
      return builder_->Scalar(Kind::kInteger, absl::StrCat(value->get()),
                              position);
    }
    if (node.is_floating_point()) {
      return builder_->Scalar(Kind::kReal, WordAt(position), position);
    }
    std::ostringstream text;  // a date or a time
    node.visit([&](const auto& value) { text << value; });
    return builder_->Scalar(Kind::kString, text.str(), position);
  }

 private:
  bool ConvertTable(const toml::table& table, TextPosition position) {
    if (!builder_->Begin(Kind::kMap, position)) return false;
    // toml++ sorts by key; messages follow the file.
    std::vector<std::pair<const toml::key*, const toml::node*>> entries;
    for (const auto& [key, value] : table) entries.emplace_back(&key, &value);
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto& a, const auto& b) {
                       return a.first->source().begin < b.first->source().begin;
                     });
    for (const auto& [key, value] : entries) {
      if (!builder_->Key(std::string(key->str()), PositionOf(key->source())))
        return false;
      if (!Convert(*value)) return false;
    }
    return builder_->End();
  }

  // The number that begins there, as written: columns count characters.
  absl::string_view WordAt(TextPosition position) const {
    const auto index = static_cast<size_t>(position.line) - 1;
    if (index >= lines_.size()) return "";
    absl::string_view rest = lines_[index];
    for (int column = 1; column < position.column && !rest.empty(); ++column) {
      size_t length = 1;
      while (length < rest.size() &&
             (static_cast<unsigned char>(rest[length]) & 0xc0) == 0x80) {
        ++length;
      }
      rest.remove_prefix(length);
    }
    return rest.substr(0, rest.find_first_not_of("+-._0123456789aefinEF"));
  }

  std::vector<absl::string_view> lines_;
  NodeBuilder* builder_;
};

}  // namespace

Node ParseToml(absl::string_view name, absl::string_view text,
               Findings& findings) {
  NodeBuilder builder(name, findings);
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (!CheckDots(lines, builder)) return std::move(builder).Build();
  const toml::parse_result result = toml::parse(std::string(text));
  if (!result) {
    builder.Fail(PositionOf(result.error().source()),
                 absl::StrCat("is not valid TOML: ",
                              std::string(result.error().description())));
  } else {
    Converter(lines, builder).Convert(result.table());
  }
  return std::move(builder).Build();
}

}  // namespace fsdp::config
