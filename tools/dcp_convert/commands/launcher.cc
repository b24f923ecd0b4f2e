// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/commands/launcher.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"

namespace dcp::tools {
namespace {

struct Launcher {
  const char* name;
  const char* index;
  const char* count;   // null: the user says it
  const char* marker;  // set by this launcher only, or null
  // Starts processes inside other launchers, and leaves their variables alone.
  bool is_inner;
};

// SLURM_NTASKS is set in batch scripts too, which run once for all tasks; only
// srun sets SLURM_STEP_NUM_TASKS. Arrays are added below.
constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", true},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr, true},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr, false},
    {"PMI", "PMI_RANK", "PMI_SIZE", nullptr, false},
    {"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", nullptr, false},
    {"Kubernetes", "JOB_COMPLETION_INDEX", nullptr, nullptr, false},
};

struct Found {
  std::string text;  // for people: the variables and values
  Share share;
};

// The number in a variable; nullopt if it is not set.
absl::StatusOr<std::optional<uint32_t>> Number(Environment environment,
                                               const char* name) {
  const char* const value = environment(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  uint32_t number = 0;
  if (!absl::SimpleAtoi(value, &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is '", value, "', which is not a number"));
  }
  return number;
}

// This process's place in an array of Slurm jobs.
absl::StatusOr<std::optional<Found>> FindArray(Environment environment) {
  DCP_ASSIGN_OR_RETURN(const std::optional<uint32_t> task,
                       Number(environment, "SLURM_ARRAY_TASK_ID"));
  if (!task.has_value()) return std::nullopt;
  DCP_ASSIGN_OR_RETURN(const std::optional<uint32_t> count,
                       Number(environment, "SLURM_ARRAY_TASK_COUNT"));
  DCP_ASSIGN_OR_RETURN(const std::optional<uint32_t> min,
                       Number(environment, "SLURM_ARRAY_TASK_MIN"));
  DCP_ASSIGN_OR_RETURN(const std::optional<uint32_t> max,
                       Number(environment, "SLURM_ARRAY_TASK_MAX"));
  DCP_ASSIGN_OR_RETURN(const std::optional<uint32_t> step,
                       Number(environment, "SLURM_ARRAY_TASK_STEP"));
  const uint32_t width = step.value_or(1);
  // Unsigned numbers that wrap are larger than the count.
  if (!count.has_value() || !min.has_value() || width == 0 ||
      (*task - *min) % width != 0 || (*task - *min) / width >= *count ||
      (max.has_value() && (*max - *min) / width + 1 != *count)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "SLURM_ARRAY_TASK_ID is ", *task,
        ", and the tasks of the array are not numbered without gaps; submit "
        "it with --array=0-15, or give --share K/N"));
  }
  return Found{
      .text = absl::StrCat("SLURM_ARRAY_TASK_ID=", *task, " of ", *count),
      .share = {.index = (*task - *min) / width, .count = *count}};
}

// The share that one launcher gives.
absl::StatusOr<std::optional<Found>> Find(const Launcher& launcher,
                                          Environment environment,
                                          uint32_t num_workers) {
  if (launcher.marker != nullptr && environment(launcher.marker) == nullptr) {
    return std::nullopt;
  }
  DCP_ASSIGN_OR_RETURN(const std::optional<uint32_t> index,
                       Number(environment, launcher.index));
  std::optional<uint32_t> count;
  if (launcher.count != nullptr) {
    DCP_ASSIGN_OR_RETURN(count, Number(environment, launcher.count));
  } else if (index.has_value()) {
    if (num_workers == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          launcher.index, " is ", *index, ", but ", launcher.name,
          " does not say of how many: give --num-workers, the completions of "
          "the job"));
    }
    count = num_workers;
  }
  if (!index.has_value() || !count.has_value()) return std::nullopt;
  Found found{.text = absl::StrCat(launcher.index, "=", *index, " of ", *count),
              .share = {.index = *index, .count = *count}};
  if (*index >= *count) {
    return absl::InvalidArgumentError(
        absl::StrCat(found.text, ": there is no such worker"));
  }
  return found;
}

// If a task in an array runs a step, the step's tasks are workers too.
absl::StatusOr<std::optional<Found>> FindInArray(std::optional<Found> step,
                                                 Environment environment) {
  DCP_ASSIGN_OR_RETURN(std::optional<Found> array, FindArray(environment));
  if (!array.has_value()) return step;
  if (!step.has_value()) return array;
  const Share& outer = array->share;
  const Share& inner = step->share;
  return Found{.text = absl::StrCat(array->text, ", ", step->text),
               .share = {.index = outer.index * inner.count + inner.index,
                         .count = outer.count * inner.count}};
}

bool IsSame(const Share& a, const Share& b) {
  return a.index == b.index && a.count == b.count;
}

absl::StatusOr<Found> Choose(Environment environment, uint32_t num_workers) {
  std::vector<Found> all;
  for (const Launcher& launcher : kLaunchers) {
    DCP_ASSIGN_OR_RETURN(std::optional<Found> found,
                         Find(launcher, environment, num_workers));
    if (found.has_value() && launcher.is_inner) return *found;
    if (absl::string_view(launcher.name) == "Slurm") {
      DCP_ASSIGN_OR_RETURN(found, FindInArray(std::move(found), environment));
    }
    if (found.has_value()) all.push_back(*std::move(found));
  }
  if (all.empty()) {
    const bool in_batch = environment("SLURM_JOB_ID") != nullptr;
    return absl::InvalidArgumentError(absl::StrCat(
        "--workers found no launcher",
        in_batch ? ": this is a batch script of Slurm, which runs once; start "
                   "the workers in it with srun"
                 : ": start the workers with srun, an array of sbatch, mpirun, "
                   "torchrun or an indexed job of Kubernetes",
        ", or give each --share K/N"));
  }
  for (const Found& found : all) {
    if (IsSame(found.share, all[0].share)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--workers found launchers that contradict each other: ",
                     absl::StrJoin(all, "; ",
                                   [](std::string* out, const Found& one) {
                                     absl::StrAppend(out, one.text);
                                   }),
                     "; unset what does not apply, or give each --share K/N"));
  }
  return all[0];
}

}  // namespace

absl::StatusOr<Share> ShareFromLauncher(Environment environment,
                                        uint32_t num_workers) {
  DCP_ASSIGN_OR_RETURN(const Found found, Choose(environment, num_workers));
  if (num_workers != 0 && found.share.count != num_workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--num-workers is ", num_workers,
                     ", but the launcher says ", found.text));
  }
  return found.share;
}

absl::StatusOr<Share> RequestedShare(const CommandLine& line) {
  if (!line.work.by_launcher) return *line.work.share;
  return ShareFromLauncher(getenv, line.work.num_workers);
}

}  // namespace dcp::tools
