// Tested by tests/dcp/checkpoint/open/dialects/dialects_test.cc.
#include "dcp/checkpoint/open/dialects/deepspeed/deepspeed_files.h"

#include <re2/re2.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

// Files by their rank: "zero_pp_rank_10_..." comes after "..._2_...".
using ByRank = std::map<int64_t, std::string>;

std::vector<std::string> NamesOf(ByRank files) {
  std::vector<std::string> names;
  for (auto& [rank, name] : files) names.push_back(std::move(name));
  return names;
}

absl::Status Refuse(absl::string_view path, absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat(path, ": ", what));
}

// The files of one tag; nullopt if these are not DeepSpeed's.
absl::StatusOr<std::optional<DeepSpeedFiles>> FilesOfTag(
    const SourceDirectory& tag) {
  static const RE2& model =
      *new RE2(R"((?:zero_pp_rank_(\d+)_)?mp_rank_(\d+)_model_states\.pt)");
  static const RE2& optim = *new RE2(
      R"((?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt)");
  static const RE2& pipeline =
      *new RE2(R"(layer_\d+-model_\d+-model_states\.pt)");
  static const RE2& expert =
      *new RE2(R"(layer_.*_expert_.*|.*expp_rank_\d+.*)");
  ByRank models;
  ByRank optims;
  DeepSpeedFiles files;
  files.directory = tag.path;
  for (const DirectoryEntry& entry : tag.entries) {
    const std::string& name = entry.name;
    std::string rank;
    std::string model_parallel;
    if (name == "zero" && entry.kind != FileKind::kFile) {
      files.is_universal = true;
      continue;
    }
    if (RE2::FullMatch(name, expert)) {
      return Refuse(tag.path,
                    "expert-parallel DeepSpeed checkpoints are not supported");
    }
    if (RE2::FullMatch(name, pipeline)) {
      return Refuse(tag.path,
                    "this is a pipeline-parallel DeepSpeed checkpoint; convert "
                    "it with ds_to_universal.py first");
    }
    const bool is_model = RE2::FullMatch(name, model, &rank, &model_parallel);
    if (!is_model && !RE2::FullMatch(name, optim, &rank, &model_parallel)) {
      continue;
    }
    int64_t number = 0;
    if (model_parallel.find_first_not_of('0') != std::string::npos) {
      return Refuse(tag.path,
                    "this is a DeepSpeed checkpoint of several model-parallel "
                    "ranks; convert it with ds_to_universal.py first");
    }
    if (!rank.empty() && !absl::SimpleAtoi(rank, &number)) continue;
    (is_model ? models : optims).emplace(number, name);
  }
  if (models.empty() && optims.empty()) return std::nullopt;
  if (models.empty()) {
    return absl::NotFoundError(absl::StrCat(
        tag.path,
        ": there are *_optim_states.pt of DeepSpeed, but no "
        "*_model_states.pt, which has the names of the parameters"));
  }
  files.models = NamesOf(std::move(models));
  files.optims = NamesOf(std::move(optims));
  return files;
}

}  // namespace

absl::StatusOr<std::optional<DeepSpeedFiles>> FindDeepSpeed(
    const SourceDirectory& directory, const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(std::optional<DeepSpeedFiles> here,
                       FilesOfTag(directory));
  if (here.has_value()) return here;
  for (const absl::string_view pointer : {"latest", "latest_universal"}) {
    if (!directory.HasFile(pointer)) continue;
    DCP_ASSIGN_OR_RETURN(const std::string tag,
                         ReadPointer(directory, pointer, stop));
    DCP_ASSIGN_OR_RETURN(const std::optional<SourceDirectory> below,
                         ChildOf(directory, tag));
    if (!below.has_value()) {
      return absl::NotFoundError(absl::StrCat(directory.PathOf(pointer),
                                              " names the folder ", tag,
                                              ", which is not there"));
    }
    DCP_ASSIGN_OR_RETURN(here, FilesOfTag(*below));
    if (here.has_value()) return here;
  }
  return std::nullopt;
}

}  // namespace dcp
