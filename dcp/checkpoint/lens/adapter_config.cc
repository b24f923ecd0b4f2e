// SPDX-License-Identifier: Apache-2.0
// Reads adapter_config.json, and refuses adapters that are not plain LoRA.
// Tested by tests/tools/dcp_convert/options/lens_options_test.cc.
#include "dcp/checkpoint/lens/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/hub_folder.h"
#include "dcp/format/json/json_value.h"
#include "dcp/format/value/value.h"
#include "dcp/format/value/value_lookup.h"
#include "dcp/mapping/language/mapping_limits.h"

namespace dcp {
namespace {

constexpr absl::string_view kAdapterConfigName = "adapter_config.json";
constexpr int64_t kMaxRank = 65'536;
constexpr size_t kMaxShown = 60;  // bytes of a value in a message

// peft's names for an adapter's files.
constexpr absl::string_view kAdapterFiles[] = {"adapter_model.safetensors",
                                               "adapter_model.bin"};

// Keys that merging can ignore: names, training settings, and the adapter's
// initialisation as far as init_lora_weights allows it.
constexpr absl::string_view kIgnored[] = {
    "auto_mapping",   "base_model_name_or_path", "corda_config",
    "eva_config",     "exclude_modules",         "inference_mode",
    "layers_pattern", "layers_to_transform",     "loftq_config",
    "lora_dropout",   "lora_ga_config",          "megatron_core",
    "peft_version",   "qalora_group_size",       "revision",
    "runtime_config", "target_modules",          "task_type"};

// Keys that are read below.
constexpr absl::string_view kRead[] = {"peft_type", "r", "lora_alpha",
                                       "use_rslora", "init_lora_weights"};

// Initialisations that leave the model's weights unchanged. All others (pissa,
// olora, corda, loftq, lora_ga) change them, so that the adapter does not
// belong to the stored model.
constexpr absl::string_view kHarmlessInits[] = {"gaussian", "orthogonal", "eva",
                                                "mica"};

bool Contains(absl::Span<const absl::string_view> words,
              absl::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool IsOff(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kNone:
      return true;
    case Value::Kind::kBool:
      return !value.bool_value();
    case Value::Kind::kStr:
      return value.text().empty() || value.text() == "none";
    case Value::Kind::kDict:
    case Value::Kind::kList:
      return value.items().empty();
    default:
      return false;
  }
}

// OK if the adapter began with the model's weights as they are stored.
absl::Status CheckInit(const std::optional<Value>& init) {
  if (!init.has_value() || init->is(Value::Kind::kBool) || IsOff(*init) ||
      (init->is(Value::Kind::kStr) && Contains(kHarmlessInits, init->text()))) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(
      "init_lora_weights is ", ToString(*init, kMaxShown),
      ", which changes the weights of the model before training, so the "
      "adapter does not belong to those that are stored; let peft merge it, or "
      "save it as plain LoRA with path_initial_model_for_weight_conversion"));
}

// Every key that is not known to be harmless has to be off, as peft spells it:
// null, false, empty or "none".
absl::Status CheckKeys(const Value& dict) {
  for (const auto& [key, value] : ItemsByKey(dict)) {
    if (Contains(kIgnored, key) || Contains(kRead, key) || IsOff(value)) {
      continue;
    }
    return absl::UnimplementedError(
        absl::StrCat(key, " is ", ToString(value, kMaxShown),
                     ", which cannot be merged; only plain LoRA of linear "
                     "layers can: let peft merge this adapter"));
  }
  return absl::OkStatus();
}

absl::StatusOr<AdapterConfig> ReadConfig(const Value& dict) {
  const std::optional<Value> type = FindKey(dict, "peft_type");
  if (!type.has_value() || !type->is(Value::Kind::kStr) ||
      type->text() != "LORA") {
    return absl::UnimplementedError(
        "peft_type is not LORA; only LoRA can be merged");
  }
  DCP_RETURN_IF_ERROR(CheckKeys(dict));
  DCP_RETURN_IF_ERROR(CheckInit(FindKey(dict, "init_lora_weights")));
  AdapterConfig config;
  const std::optional<Value> rank = FindKey(dict, "r");
  if (!rank.has_value() || !rank->is(Value::Kind::kInt) ||
      rank->int_value() < 1 || rank->int_value() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("r is not a whole number from 1 to ", kMaxRank));
  }
  config.rank = rank->int_value();
  const std::optional<Value> alpha = FindKey(dict, "lora_alpha");
  if (alpha.has_value() && alpha->is(Value::Kind::kInt)) {
    config.alpha = static_cast<double>(alpha->int_value());
  } else if (alpha.has_value() && alpha->is(Value::Kind::kFloat)) {
    config.alpha = alpha->float_value();
  } else {
    return absl::InvalidArgumentError("lora_alpha is not a number");
  }
  const std::optional<Value> rslora = FindKey(dict, "use_rslora");
  config.uses_rslora = rslora.has_value() && !IsOff(*rslora);
  return config;
}

// The text of adapter_config.json in the folder `path`, or next to `path`;
// `file` becomes the path where it is.
absl::StatusOr<std::string> ReadConfigText(FileSystem& fs,
                                           absl::string_view path,
                                           const std::stop_token& stop,
                                           std::string& file) {
  DCP_ASSIGN_OR_RETURN(const std::string place, ResolveHubFolder(fs, path));
  const std::string folders[] = {place, ParentDirectory(place)};
  for (const std::string& folder : folders) {
    file = JoinPath(folder, kAdapterConfigName);
    absl::StatusOr<std::string> text = ReadFile(fs, file, kMaxModelConfigBytes,
                                                /*follow_symlinks=*/true, stop);
    // A path below a file is InvalidArgument.
    if (!absl::IsNotFound(text.status()) &&
        !absl::IsInvalidArgument(text.status())) {
      return text;
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no ", kAdapterConfigName, " in ", folders[0], " or ",
      folders[1], "; peft writes it next to the tensors of an adapter"));
}

}  // namespace

double AdapterConfig::Factor() const {
  const auto r = static_cast<double>(rank);
  return alpha / (uses_rslora ? std::sqrt(r) : r);
}

absl::StatusOr<AdapterConfig> ReadAdapterConfig(FileSystem& fs,
                                                absl::string_view path,
                                                const std::stop_token& stop) {
  std::string file;
  const absl::StatusOr<std::string> text = ReadConfigText(fs, path, stop, file);
  if (!text.ok()) return WithSide(text.status(), ErrorSide::kSource);
  ValueArena arena;
  absl::StatusOr<Value> value = ParseJsonValue(*text, arena);
  if (value.ok() && !value->is(Value::Kind::kDict)) {
    value = absl::DataLossError("the file does not have keys and values");
  }
  absl::StatusOr<AdapterConfig> config =
      value.ok() ? ReadConfig(*value) : value.status();
  if (!config.ok()) {
    return WithSide(Annotate(config.status(), file), ErrorSide::kSource);
  }
  return config;
}

std::string AdapterTensors(FileSystem& fs, absl::string_view path) {
  const absl::StatusOr<std::string> place = ResolveHubFolder(fs, path);
  // Opening this path then reports the error.
  if (!place.ok()) return std::string(path);
  for (const absl::string_view name : kAdapterFiles) {
    const std::string file = JoinPath(*place, name);
    if (fs.Stat(file).ok()) return file;
  }
  return std::string(path);
}

}  // namespace dcp
