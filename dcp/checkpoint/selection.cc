#include "dcp/checkpoint/selection.h"

#include <fnmatch.h>
#include <re2/re2.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/state_path.h"
#include "dcp/tensor/element.h"

namespace dcp {
namespace {

class Rename {
 public:
  // "s/old/new/" or "s/old/new/g"; any character may stand for the slash.
  static absl::StatusOr<Rename> Parse(absl::string_view text) {
    const absl::Status malformed = absl::InvalidArgumentError(absl::StrCat(
        "rename '", text, "' is not of the form s/pattern/replacement/"));
    if (text.size() < 4 || text[0] != 's') return malformed;
    const char mark = text[1];
    const size_t middle = text.find(mark, 2);
    if (middle == absl::string_view::npos) return malformed;
    const size_t end = text.find(mark, middle + 1);
    if (end == absl::string_view::npos) return malformed;
    const absl::string_view flags = text.substr(end + 1);
    if (!flags.empty() && flags != "g") return malformed;

    Rename rename;
    const absl::string_view pattern = text.substr(2, middle - 2);
    const absl::string_view replacement =
        text.substr(middle + 1, end - middle - 1);
    rename.pattern_ = std::make_unique<RE2>(
        re2::StringPiece(pattern.data(), pattern.size()), RE2::Quiet);
    rename.replacement_.assign(replacement.data(), replacement.size());
    rename.global_ = flags == "g";
    rename.text_ = std::string(text);
    if (!rename.pattern_->ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rename '", text, "': ", rename.pattern_->error()));
    }
    std::string problem;
    if (!rename.pattern_->CheckRewriteString(rename.replacement_, &problem)) {
      return absl::InvalidArgumentError(
          absl::StrCat("rename '", text, "': ", problem));
    }
    return rename;
  }

  void Apply(std::string& name) {
    if (global_) {
      used_ |= RE2::GlobalReplace(&name, *pattern_, replacement_) > 0;
    } else {
      used_ |= RE2::Replace(&name, *pattern_, replacement_);
    }
  }

  const std::string& text() const { return text_; }
  bool used() const { return used_; }

 private:
  std::unique_ptr<RE2> pattern_;
  std::string replacement_;
  std::string text_;
  bool global_ = false;
  bool used_ = false;
};

struct Cast {
  std::string glob;
  DType dtype;
  bool used = false;
};

absl::StatusOr<Cast> ParseCast(absl::string_view text) {
  const size_t equals = text.rfind('=');
  Cast cast;
  const bool has_glob = equals != absl::string_view::npos;
  cast.glob = has_glob ? std::string(text.substr(0, equals)) : "*";
  DCP_ASSIGN_OR_RETURN(cast.dtype,
                       ParseDType(has_glob ? text.substr(equals + 1) : text));
  if (!IsFloatingPoint(cast.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cast to ", TorchName(cast.dtype),
                     ": only floating-point types can be cast to"));
  }
  return cast;
}

// Bytes of the element that `glob` begins with: a star, or what stands for one
// character. 0 at the end.
size_t ElementBytes(absl::string_view glob) {
  if (glob.empty()) return 0;
  if (glob[0] == '\\') return std::min<size_t>(2, glob.size());
  if (glob[0] != '[') return 1;
  size_t i = 1;
  if (i < glob.size() && (glob[i] == '!' || glob[i] == '^')) ++i;
  const size_t first = i;
  while (i < glob.size() && (glob[i] != ']' || i == first)) {
    if (glob[i] == '\\') {
      ++i;
    } else if (glob[i] == '[' && i + 1 < glob.size() && glob[i + 1] == ':') {
      const size_t end = glob.find(":]", i + 2);
      if (end != absl::string_view::npos) i = end + 1;
    }
    ++i;
  }
  return i < glob.size() ? i + 1 : 1;  // without its end it is a character
}

// `element` is no star.
bool MatchesElement(absl::string_view element, char c) {
  if (element == "?") return true;
  if (element[0] == '\\') return element.size() == 2 && element[1] == c;
  if (element.size() == 1) return element[0] == c;
  const char text[2] = {c, '\0'};
  return fnmatch(std::string(element).c_str(), text, 0) == 0;
}

bool MatchesAny(const std::vector<std::string>& globs, absl::string_view name) {
  for (const std::string& glob : globs) {
    if (MatchesGlob(glob, name)) return true;
  }
  return false;
}

// `what` is what the patterns are for: "include".
absl::Status CheckMatch(absl::Span<const CheckpointEntry> entries,
                        absl::string_view what,
                        const std::vector<std::string>& globs) {
  for (const std::string& glob : globs) {
    bool matched = false;
    for (const CheckpointEntry& entry : entries) {
      matched = matched || MatchesGlob(glob, entry.fqn);
    }
    if (!matched) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " pattern '", glob, "' matches no name"));
    }
  }
  return absl::OkStatus();
}

// The type a tensor gets, by the last cast that matches.
absl::StatusOr<DType> CastOf(const CheckpointEntry& entry,
                             std::vector<Cast>& casts) {
  const DType from = entry.tensor()->dtype;
  DType to = from;
  if (!IsFloatingPoint(from)) return to;
  for (Cast& cast : casts) {
    if (!MatchesGlob(cast.glob, entry.fqn)) continue;
    cast.used = true;
    to = cast.dtype;
  }
  if (!CanConvert(from, to)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot cast ", entry.fqn,
                                                   " from ", TorchName(from),
                                                   " to ", TorchName(to)));
  }
  return to;
}

}  // namespace

// As fnmatch(3) does, but without its exponential time for many stars: a star
// takes what it takes once the next one was reached, so only the last one is
// tried anew.
bool MatchesGlob(absl::string_view glob, absl::string_view name) {
  size_t g = 0;
  size_t n = 0;
  size_t star = absl::string_view::npos;  // the last one, and
  size_t after_star = 0;                  // where what it took ends
  while (n < name.size()) {
    const size_t element = ElementBytes(glob.substr(g));
    if (element > 0 && glob[g] == '*') {
      star = g++;
      after_star = n;
    } else if (element > 0 &&
               MatchesElement(glob.substr(g, element), name[n])) {
      g += element;
      ++n;
    } else if (star != absl::string_view::npos) {
      g = star + 1;
      n = ++after_star;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  static constexpr std::pair<absl::string_view, absl::string_view> kShort[] = {
      {"bf16", "bfloat16"},  {"fp16", "float16"},      {"f16", "float16"},
      {"half", "float16"},   {"fp32", "float32"},      {"f32", "float32"},
      {"float", "float32"},  {"fp64", "float64"},      {"f64", "float64"},
      {"double", "float64"}, {"fp8", "float8_e4m3fn"},
  };
  absl::string_view full = name;
  for (const auto& [alias, torch_name] : kShort) {
    if (name == alias) full = torch_name;
  }
  const std::optional<DType> dtype = DTypeFromTorchName(full);
  if (!dtype.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown dtype '", name,
        "' (bf16, fp16, fp32, fp64, float8_e4m3fn, float8_e5m2, ...)"));
  }
  return *dtype;
}

absl::StatusOr<std::vector<SelectedEntry>> Select(
    absl::Span<const CheckpointEntry> entries,
    const SelectionOptions& options) {
  std::vector<Rename> renames;
  for (const std::string& text : options.renames) {
    DCP_ASSIGN_OR_RETURN(renames.emplace_back(), Rename::Parse(text));
  }
  std::vector<Cast> casts;
  for (const std::string& text : options.casts) {
    DCP_ASSIGN_OR_RETURN(casts.emplace_back(), ParseCast(text));
  }
  if (!options.allow_unmatched) {
    DCP_RETURN_IF_ERROR(CheckMatch(entries, "include", options.include));
    DCP_RETURN_IF_ERROR(CheckMatch(entries, "exclude", options.exclude));
  }

  std::vector<SelectedEntry> selected;
  absl::flat_hash_map<std::string, absl::string_view> origins;
  for (uint32_t i = 0; i < entries.size(); ++i) {
    const CheckpointEntry& entry = entries[i];
    if (!options.include.empty() && !MatchesAny(options.include, entry.fqn)) {
      continue;
    }
    if (MatchesAny(options.exclude, entry.fqn)) continue;
    SelectedEntry& choice = selected.emplace_back();
    choice.entry = i;
    choice.fqn = entry.fqn;
    for (Rename& rename : renames) {
      rename.Apply(choice.fqn);
      if (choice.fqn.size() <= kMaxNameBytes) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("renaming gives '", entry.fqn, "' a name of ",
                       choice.fqn.size(), " bytes, more than ", kMaxNameBytes));
    }
    choice.path = choice.fqn == entry.fqn ? entry.path
                                          : RenamePath(entry.path, choice.fqn);
    if (entry.tensor() != nullptr) {
      DCP_ASSIGN_OR_RETURN(choice.dtype, CastOf(entry, casts));
    }
    if (renames.empty()) continue;  // names are unique already
    const auto [it, is_new] = origins.emplace(choice.fqn, entry.fqn);
    if (!is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat("renaming gives both '", it->second, "' and '",
                       entry.fqn, "' the name '", choice.fqn, "'"));
    }
  }
  for (const Rename& rename : renames) {
    if (!rename.used() && !options.allow_unmatched) {
      return absl::InvalidArgumentError(
          absl::StrCat("rename '", rename.text(), "' matches no name"));
    }
  }
  for (const Cast& cast : casts) {
    if (!cast.used && cast.glob != "*" && !options.allow_unmatched) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cast pattern '", cast.glob, "' matches no floating-point tensor"));
    }
  }
  return selected;
}

}  // namespace dcp
