// SPDX-License-Identifier: Apache-2.0
// Reads folders, intervals and weights, with each version's defaults.
//
// Tested by tests/config/dialects/torchtitan/read_test.cc.
#include "config/dialects/torchtitan/checkpoint.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/dialects/fields/keys.h"

namespace fsdp::config {
namespace {

void ReadInitialLoad(Section& section, CheckpointConfig& checkpoint) {
  section.Read("initial_load_path", checkpoint.initial_load_path);
  Setting<bool> model_only = true;
  section.Read(Spelling(section, {"initial_load_model_only",
                                  "initial_load_model_weights_only"}),
               model_only);
  if (!*model_only && !checkpoint.initial_load_path->empty()) {
    section.findings().Changed(
        *model_only.place(),
        "is read as true: a run goes on, with its optimizer, from its own "
        "folder alone");
  }
  IgnoreWhenOn(section, "initial_load_in_hf",
               "formats are recognized, and names are those of the model");
  section.Refuse("initial_load_in_hf_quantized", "false",
                 "weights are loaded as they are, not dequantized");
  section.Refuse("load_step", "-1",
                 "a run goes on from its latest step; name another step's "
                 "folder as initial_load_path");
  section.Refuse("exclude_from_loading", "", "all is loaded or nothing");
}

void ReadSaves(Section& section, CheckpointConfig& checkpoint) {
  section.Read("interval", {.least = 1}, checkpoint.interval);
  section.Read("keep_latest_k", {.least = 0}, checkpoint.keep_latest_k);
  if (*checkpoint.keep_latest_k == 1) {
    section.findings().Problem(
        *checkpoint.keep_latest_k.place(),
        "is 1, which TorchTitan refuses, because the last one may be half "
        "written; write 2, or 0 for all");
  }
  const Choices<bool> kModes = {
      {"disabled", false}, {"async", true}, {"async_with_pinned_mem", true}};
  section.Read("async_mode", kModes, checkpoint.async);
  section.Read(
      Spelling(section, {"last_save_model_only", "last_save_model_weights_only",
                         "model_weights_only"}),
      checkpoint.last_save_model_only);
  section.Refuse("interval_type", "steps", "steps alone are counted");
  section.Read("export_dtype", checkpoint.export_dtype);
  Setting<bool> in_hf = false;
  if (section.Read("last_save_in_hf", in_hf) && *in_hf) {
    section.findings().Changed(
        *in_hf.place(),
        "is read as a safetensors file with the model's own names: those of "
        "Hugging Face are not known here");
  }
  IgnoreWhenOn(section, "enable_first_step_checkpoint",
               "the first save is after interval steps");
  section.Refuse("create_seed_checkpoint", "false",
                 "to make a checkpoint that several runs begin with, save one "
                 "from a run with no steps");
  PassOver(section, {"enable_ft_dataloader_checkpoints"});
}

// Sets the defaults for keys that are not written; called only if checkpoints
// are on, so that a config without checkpoints is the same in every dialect.
void SetCheckpointDefaults(bool is_version_1, CheckpointConfig& checkpoint) {
  if (!checkpoint.interval.place().has_value()) checkpoint.interval = 500;
  if (!checkpoint.keep_latest_k.place().has_value()) {
    checkpoint.keep_latest_k = 10;
  }
  if (!checkpoint.last_save_model_only.place().has_value()) {
    checkpoint.last_save_model_only = !is_version_1;
  }
}

// Joins like Python's os.path.join.
std::string Join(absl::string_view folder, absl::string_view name) {
  if (folder.empty() || absl::StartsWith(name, "/")) return std::string(name);
  return absl::StrCat(folder, absl::EndsWith(folder, "/") ? "" : "/", name);
}

}  // namespace

void ReadCheckpoint(Section section, const std::string& dump_folder,
                    CheckpointConfig& checkpoint) {
  const absl::string_view enable_key =
      Spelling(section, {"enable", "enable_checkpoint"});
  const bool is_version_1 =
      enable_key != "enable" ||
      section.node().Find("last_save_model_weights_only") != nullptr ||
      section.node().Find("model_weights_only") != nullptr;
  Setting<bool> enable = false;
  section.Read(enable_key, enable);
  Setting<bool> load_only = false;
  section.Read("load_only", load_only);
  Setting<std::string> folder = std::string("checkpoint");
  section.Read("folder", folder);
  ReadInitialLoad(section, checkpoint);
  ReadSaves(section, checkpoint);
  section.Finish();
  if (*enable && !*load_only) {
    const std::string joined = Join(dump_folder, *folder);
    checkpoint.folder = folder.place().has_value()
                            ? Setting<std::string>(joined, *folder.place())
                            : Setting<std::string>(joined);
    SetCheckpointDefaults(is_version_1, checkpoint);
  }
  if (!*enable && !checkpoint.initial_load_path->empty()) {
    section.findings().Ignored(
        *checkpoint.initial_load_path.place(),
        absl::StrCat("has no effect: checkpoint.", enable_key, " is false"));
    checkpoint.initial_load_path = {};
  }
}

}  // namespace fsdp::config
