// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/mapped/selection.h"

#include <re2/re2.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/glob_set.h"
#include "dcp/base/limits.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/files/wrapper_names.h"
#include "dcp/checkpoint/lens/quantization.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/tensor/element.h"

namespace dcp {
namespace {

// A loop checks for a stop after this many names.
constexpr size_t kNamesPerCheck = 64;

class Rename {
 public:
  // "s/old/new/" or "s/old/new/g"; any character may replace the slash.
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

absl::Status CheckStopped(const std::stop_token& stop) {
  return CheckStop(stop, "names were selected");
}

// The patterns in one option, such as "include".
class Patterns {
 public:
  Patterns(absl::string_view what, const std::vector<std::string>& globs)
      : what_(what), globs_(globs), set_(globs) {}

  bool empty() const { return globs_.empty(); }
  bool Match(absl::string_view name) const { return set_.MatchesAny(name); }

  // Checks that each pattern matches something.
  absl::Status CheckUsed(absl::Span<const CheckpointEntry> entries,
                         const std::stop_token& stop) const {
    if (globs_.empty()) return absl::OkStatus();
    std::vector<bool> matched(globs_.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i % kNamesPerCheck == 0) DCP_RETURN_IF_ERROR(CheckStopped(stop));
      set_.Match(entries[i].fqn, matched);
    }
    const auto unused = std::find(matched.begin(), matched.end(), false);
    if (unused == matched.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(what_, " pattern '",
                     globs_[static_cast<size_t>(unused - matched.begin())],
                     "' matches no name"));
  }

 private:
  const absl::string_view what_;
  const std::vector<std::string>& globs_;
  const GlobSet set_;
};

class Casts {
 public:
  static absl::StatusOr<Casts> Parse(const std::vector<std::string>& texts) {
    std::vector<Cast> casts;
    std::vector<std::string> globs;
    for (const std::string& text : texts) {
      DCP_ASSIGN_OR_RETURN(casts.emplace_back(), ParseCast(text));
      globs.push_back(casts.back().glob);
    }
    return Casts(std::move(casts), GlobSet(globs));
  }

  // A tensor's type after the last cast that matches.
  absl::StatusOr<DType> TypeAfterCasts(const CheckpointEntry& entry) {
    const DType from = entry.tensor()->dtype;
    if (casts_.empty() || !IsFloatingPoint(from)) return from;
    set_.Match(entry.fqn, used_);
    const std::optional<size_t> last = set_.LastMatch(entry.fqn);
    const DType to = last.has_value() ? casts_[*last].dtype : from;
    const std::string problem = WhyNotCast(*entry.tensor(), to);
    if (problem.empty()) return to;
    const bool is_possible = CanConvert(from, to);
    return WithOptions(
        absl::Status(
            is_possible ? absl::StatusCode::kFailedPrecondition
                        : absl::StatusCode::kInvalidArgument,
            absl::StrCat(
                "cannot cast ", entry.fqn, ", which ", problem,
                is_possible ? "; GLOB=TYPE casts other tensors alone" : "")),
        NamedOptions(problem));
  }

  absl::Status CheckUsed() const {
    for (size_t i = 0; i < casts_.size(); ++i) {
      if (used_[i] || casts_[i].glob == "*") continue;
      return absl::InvalidArgumentError(
          absl::StrCat("cast pattern '", casts_[i].glob,
                       "' matches no floating-point tensor"));
    }
    return absl::OkStatus();
  }

 private:
  Casts(std::vector<Cast> casts, GlobSet set)
      : casts_(std::move(casts)), set_(std::move(set)), used_(casts_.size()) {}

  std::vector<Cast> casts_;
  GlobSet set_;
  std::vector<bool> used_;
};

bool Contains(const std::vector<StatePart>& parts, StatePart part) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

// An entry's path before it is renamed.
StatePath UnrenamedPath(const CheckpointEntry& entry,
                        const StateParts::Place& place,
                        const SelectionOptions& options) {
  StatePath path = entry.path;
  // Several models' names would collide without their numbers.
  if (options.parts.size() == 1 && place.number.empty() &&
      place.num_roots < path.size()) {
    path.erase(path.begin(),
               path.begin() + static_cast<std::ptrdiff_t>(place.num_roots));
  }
  for (PathElement& element : path) {
    std::string* const key = std::get_if<std::string>(&element);
    if (options.strip_wrappers && key != nullptr) *key = WithoutWrappers(*key);
  }
  return path;
}

// The name for an entry at `path`, before it is renamed.
std::string UnrenamedName(const CheckpointEntry& entry, const StatePath& path,
                          const SelectionOptions& options) {
  if (path != entry.path) return PathToName(path);
  return path.empty() && options.strip_wrappers ? WithoutWrappers(entry.fqn)
                                                : entry.fqn;
}

}  // namespace

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  static constexpr std::pair<absl::string_view, absl::string_view> kShort[] = {
      {"bf16", "bfloat16"},  {"fp16", "float16"},      {"f16", "float16"},
      {"half", "float16"},   {"fp32", "float32"},      {"f32", "float32"},
      {"float", "float32"},  {"fp64", "float64"},      {"f64", "float64"},
      {"double", "float64"}, {"fp8", "float8_e4m3fn"},
  };
  const std::string lower = absl::AsciiStrToLower(name);
  absl::string_view full = absl::StripPrefix(lower, "torch.");
  for (const auto& [alias, torch_name] : kShort) {
    if (full == alias) full = torch_name;
  }
  const std::optional<DType> dtype = DTypeFromTorchName(full);
  if (!dtype.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown dtype '", name,
        "'; expected bf16, fp16, fp32, fp64, float8_e4m3fn, float8_e5m2, ..."));
  }
  return *dtype;
}

absl::StatusOr<std::vector<SelectedEntry>> Select(
    absl::Span<const CheckpointEntry> entries, const SelectionOptions& options,
    std::stop_token stop) {
  std::vector<Rename> renames;
  for (const std::string& text : options.renames) {
    DCP_ASSIGN_OR_RETURN(renames.emplace_back(), Rename::Parse(text));
  }
  DCP_ASSIGN_OR_RETURN(Casts casts, Casts::Parse(options.casts));
  const Patterns include("include", options.include);
  const Patterns exclude("exclude", options.exclude);
  if (!options.allow_unmatched) {
    DCP_RETURN_IF_ERROR(include.CheckUsed(entries, stop));
    DCP_RETURN_IF_ERROR(exclude.CheckUsed(entries, stop));
  }

  const StateParts parts(entries);
  if (!options.parts.empty()) DCP_RETURN_IF_ERROR(parts.Check());
  std::vector<SelectedEntry> selected;
  absl::flat_hash_map<std::string, absl::string_view> origins;
  for (uint32_t i = 0; i < entries.size(); ++i) {
    if (i % kNamesPerCheck == 0) DCP_RETURN_IF_ERROR(CheckStopped(stop));
    const CheckpointEntry& entry = entries[i];
    if (!include.empty() && !include.Match(entry.fqn)) continue;
    if (exclude.Match(entry.fqn)) continue;
    const StateParts::Place place = parts.EntryPlace(entry);
    if (!options.parts.empty() && !Contains(options.parts, place.part)) {
      continue;
    }
    SelectedEntry& choice = selected.emplace_back();
    choice.entry = i;
    const StatePath path = UnrenamedPath(entry, place, options);
    choice.fqn = UnrenamedName(entry, path, options);
    const std::string name = choice.fqn;
    for (Rename& rename : renames) {
      rename.Apply(choice.fqn);
      if (choice.fqn.size() <= kMaxNameBytes) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("renaming gives '", entry.fqn, "' a name of ",
                       choice.fqn.size(), " bytes, more than ", kMaxNameBytes));
    }
    choice.path = choice.fqn == name ? path : RenamePath(path, choice.fqn);
    if (entry.tensor() != nullptr) {
      DCP_ASSIGN_OR_RETURN(choice.dtype, casts.TypeAfterCasts(entry));
    }
    // Names are unique before this step.
    if (renames.empty() && !options.strip_wrappers) continue;
    const auto [it, is_new] = origins.emplace(choice.fqn, entry.fqn);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat(
          renames.empty() ? "stripping wrappers" : "renaming", " gives both '",
          it->second, "' and '", entry.fqn, "' the name '", choice.fqn, "'"));
    }
  }
  if (selected.empty() && !options.parts.empty() && !options.allow_unmatched) {
    return OptionError(absl::StatusCode::kInvalidArgument,
                       "the source has nothing of the parts that ",
                       OptionName{"parts"}, " names");
  }
  for (const Rename& rename : renames) {
    if (!rename.used() && !options.allow_unmatched) {
      return absl::InvalidArgumentError(
          absl::StrCat("rename '", rename.text(), "' matches no name"));
    }
  }
  if (!options.allow_unmatched) DCP_RETURN_IF_ERROR(casts.CheckUsed());
  return selected;
}

}  // namespace dcp
