// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/options/option_flags.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace dcp::tools {
namespace {

struct OptionFlag {
  absl::string_view field;  // of ConvertOptions and the structs in it
  absl::string_view flag;
};

constexpr OptionFlag kFlags[] = {
    {"allow_losses", "--allow-losses"},
    {"allow_missing", "--allow-missing"},
    {"decode", "--decode"},
    {"drop_non_tensors", "--drop-non-tensors"},
    {"drop_unreadable", "--drop-unreadable"},
    {"exclude", "--exclude"},
    {"include", "--include"},
    {"max_shard_bytes", "--max-shard-size"},
    {"memory_bytes", "--max-memory"},
    {"other_meshes", "--mesh"},
    {"overwrite", "--overwrite"},
    {"placements", "--place"},
    {"flat_units", "--flat-units"},
    {"force_family", "--force-family"},
    {"from", "--from"},
    {"layout", "--layout"},
    {"like", "--like"},
    {"low_precision_weights", "--weights low"},
    {"optimizer_in_model_order", "--optimizer-names order"},
    {"parts", "--part"},
    {"rank", "--rank"},
    {"rank_files", "--rank-files"},
    {"renames", "--rename"},
    {"strict_cast", "--strict-cast"},
    {"tensor_parallel", "--tp-plan"},
    {"to", "--to"},
};

constexpr absl::string_view kMention = "the option ";
// A flag that turns its field off.
constexpr absl::string_view kNoCompanions = "copy_companions = false";

// The field at the beginning of `text`.
absl::string_view FieldAt(absl::string_view text) {
  size_t length = 0;
  while (length < text.size() &&
         (absl::ascii_islower(text[length]) || text[length] == '_')) {
    ++length;
  }
  return text.substr(0, length);
}

}  // namespace

std::string WithFlags(absl::string_view message) {
  std::string said;
  for (;;) {
    const size_t at = message.find(kMention);
    if (at == absl::string_view::npos) {
      absl::StrAppend(&said, message);
      return said;
    }
    absl::StrAppend(&said, message.substr(0, at));
    message.remove_prefix(at + kMention.size());
    if (message.substr(0, kNoCompanions.size()) == kNoCompanions) {
      said += "--no-copy-config";
      message.remove_prefix(kNoCompanions.size());
      continue;
    }
    const absl::string_view field = FieldAt(message);
    const auto* found =
        std::find_if(std::begin(kFlags), std::end(kFlags),
                     [&](const OptionFlag& row) { return row.field == field; });
    if (found == std::end(kFlags)) {
      absl::StrAppend(&said, kMention);
      continue;
    }
    absl::StrAppend(&said, found->flag);
    message.remove_prefix(field.size());
  }
}

}  // namespace dcp::tools
