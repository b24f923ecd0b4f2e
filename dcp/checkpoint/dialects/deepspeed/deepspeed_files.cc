// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/deepspeed/deepspeed_files.h"

#include <re2/re2.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/files/open_options.h"

namespace dcp {
namespace {

// Files by their rank: "zero_pp_rank_10_..." comes after "..._2_...".
using ByRank = std::map<int64_t, std::string>;

std::vector<std::string> NamesByRank(ByRank files) {
  std::vector<std::string> names;
  for (auto& [rank, name] : files) names.push_back(std::move(name));
  return names;
}

absl::Status Unsupported(absl::string_view path, absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat(path, ": ", what));
}

// The files in a folder zero/ and below: each folder is a parameter, and the
// parameter's name may contain slashes.
absl::StatusOr<std::vector<std::string>> UniversalFiles(
    const SourceDirectory& tag, const std::stop_token& stop) {
  std::vector<std::string> names;
  std::vector<std::string> folders = {"zero"};
  for (size_t i = 0; i < folders.size(); ++i) {
    DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
    const std::string folder = folders[i];
    DCP_ASSIGN_OR_RETURN(const SourceDirectory below,
                         ListDirectory(*tag.fs, tag.FullPath(folder)));
    for (const DirectoryEntry& entry : below.entries) {
      std::string name = absl::StrCat(folder, "/", entry.name);
      if (name.size() > kMaxNameBytes || folders.size() > kMaxFiles ||
          names.size() > kMaxFiles) {
        return absl::ResourceExhaustedError(
            absl::StrCat(tag.path, ": there are too many files in ", folder));
      }
      if (entry.kind == FileKind::kDirectory) {
        folders.push_back(std::move(name));
      } else if (absl::EndsWith(name, ".pt")) {
        names.push_back(std::move(name));
      }
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The facts in the names of one folder's files.
class TagFiles {
 public:
  absl::Status Add(absl::string_view path, const std::string& name) {
    static const RE2& model =
        *new RE2(R"((?:zero_pp_rank_(\d+)_)?mp_rank_(\d+)_model_states\.pt)");
    static const RE2& optim = *new RE2(
        R"((?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt)");
    static const RE2& pipeline =
        *new RE2(R"(layer_\d+(?:-model_\d+)?-model_states\.pt)");
    static const RE2& expert =
        *new RE2(R"(layer_.*_expert_.*|.*expp_rank_\d+.*)");
    if (RE2::FullMatch(name, expert)) {
      return Unsupported(
          path, "expert-parallel DeepSpeed checkpoints are not supported");
    }
    is_pipeline_ = is_pipeline_ || RE2::FullMatch(name, pipeline);
    std::string rank;
    std::string model_parallel;
    const bool is_model = RE2::FullMatch(name, model, &rank, &model_parallel);
    if (!is_model && !RE2::FullMatch(name, optim, &rank, &model_parallel)) {
      return absl::OkStatus();
    }
    int64_t number = 0;
    int64_t parallel = 0;
    if ((!rank.empty() && !ParseRank(rank, number)) ||
        !ParseRank(model_parallel, parallel)) {
      return Unsupported(path,
                         absl::StrCat("the rank of ", name, " is too large"));
    }
    num_parallel_ = std::max(num_parallel_, parallel + 1);
    if (parallel > 0) {
      if (is_model && number == 0) parallel_models_.emplace(parallel, name);
      return absl::OkStatus();
    }
    is_stage3_ = is_stage3_ || (is_model && !rank.empty());
    (is_model ? models_ : optims_).emplace(number, name);
    return absl::OkStatus();
  }

  // OK if the checkpoint uses data parallelism alone.
  absl::Status CheckParallelism(absl::string_view path) const {
    if (num_parallel_ > 1) {
      return Unsupported(
          path, absl::StrCat("this is a DeepSpeed checkpoint of tensor or "
                             "pipeline parallelism (",
                             num_parallel_,
                             " model-parallel ranks); convert it with "
                             "ds_to_universal.py first"));
    }
    if (is_pipeline_) {
      return Unsupported(
          path,
          "this is a pipeline-parallel DeepSpeed checkpoint; convert "
          "it with ds_to_universal.py first");
    }
    return absl::OkStatus();
  }

  bool empty() const { return models_.empty() && optims_.empty(); }

  DeepSpeedFiles Take() {
    DeepSpeedFiles files;
    files.models = NamesByRank(std::move(models_));
    files.parallel_models = NamesByRank(std::move(parallel_models_));
    files.optims = NamesByRank(std::move(optims_));
    files.is_stage3 = is_stage3_;
    return files;
  }

 private:
  static bool ParseRank(absl::string_view text, int64_t& number) {
    return absl::SimpleAtoi(text, &number) && number < kMaxRanks;
  }

  ByRank models_;
  ByRank parallel_models_;  // by model-parallel rank, from 1 on
  ByRank optims_;
  bool is_stage3_ = false;
  bool is_pipeline_ = false;
  int64_t num_parallel_ = 0;
};

// One tag's files; nullopt if these are not DeepSpeed's.
absl::StatusOr<std::optional<DeepSpeedFiles>> FindTagFiles(
    const SourceDirectory& tag, const std::stop_token& stop) {
  TagFiles found;
  for (const DirectoryEntry& entry : tag.entries) {
    DCP_RETURN_IF_ERROR(found.Add(tag.path, entry.name));
  }
  if (found.empty()) return std::nullopt;
  const bool is_universal = tag.HasDirectory("zero");
  if (!is_universal) DCP_RETURN_IF_ERROR(found.CheckParallelism(tag.path));
  if (tag.HasDirectory("offloaded_tensors")) {
    return Unsupported(
        tag.path,
        "the optimizer was offloaded to NVMe, and its tensors are not "
        "in these files");
  }
  DeepSpeedFiles files = found.Take();
  files.directory = tag.path;
  if (files.models.empty()) {
    return absl::NotFoundError(absl::StrCat(
        tag.path,
        ": there are *_optim_states.pt of DeepSpeed, but no "
        "*_model_states.pt, which has the names of the parameters"));
  }
  if (is_universal) {
    files.optims.clear();
    DCP_ASSIGN_OR_RETURN(files.universal, UniversalFiles(tag, stop));
  }
  return files;
}

// Whether accelerate gives a model's checkpoint this name: pytorch_model,
// pytorch_model_1 and so on.
bool IsAccelerateTag(absl::string_view name) {
  int64_t number = 0;
  return absl::ConsumePrefix(&name, "pytorch_model") &&
         (name.empty() ||
          (absl::ConsumePrefix(&name, "_") && absl::SimpleAtoi(name, &number)));
}

// FailedPrecondition if `tag` belongs to one of several models: accelerate has
// DeepSpeed save each to the same place, so the pointer names only the last
// one.
absl::Status CheckIsOnlyModel(const SourceDirectory& directory,
                              absl::string_view pointer,
                              const std::string& tag) {
  if (!IsAccelerateTag(tag)) return absl::OkStatus();
  std::vector<std::string> models;
  for (const DirectoryEntry& entry : directory.entries) {
    if (entry.kind == FileKind::kDirectory && IsAccelerateTag(entry.name)) {
      models.push_back(directory.FullPath(entry.name));
    }
  }
  if (models.size() < 2) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      directory.path, ": accelerate has saved several models here, and ",
      pointer, " names only the last, ", tag, ": give the path of one of ",
      absl::StrJoin(models, ", ")));
}

}  // namespace

absl::StatusOr<std::optional<DeepSpeedFiles>> FindDeepSpeed(
    const SourceDirectory& directory, const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(std::optional<DeepSpeedFiles> here,
                       FindTagFiles(directory, stop));
  if (here.has_value()) return here;
  for (const absl::string_view pointer : {"latest", "latest_universal"}) {
    if (!directory.HasFile(pointer)) continue;
    DCP_ASSIGN_OR_RETURN(const std::string tag,
                         ReadPointer(directory, pointer, stop));
    DCP_ASSIGN_OR_RETURN(const std::optional<SourceDirectory> below,
                         OpenChildDirectory(directory, tag));
    // The folder may have been deleted from a Trainer checkpoint that has the
    // model elsewhere.
    if (!below.has_value()) continue;
    DCP_ASSIGN_OR_RETURN(here, FindTagFiles(*below, stop));
    if (!here.has_value()) continue;
    DCP_RETURN_IF_ERROR(CheckIsOnlyModel(directory, pointer, tag));
    here->pointer = std::string(pointer);
    return here;
  }
  return std::nullopt;
}

}  // namespace dcp
