// Tested by tests/tools/dcp_convert/lens_options_test.cc.
#include "dcp/checkpoint/open/adapter_config.h"

#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/format/json_value.h"
#include "dcp/format/value.h"
#include "dcp/mapping/mapping_limits.h"

namespace dcp {
namespace {

constexpr absl::string_view kAdapterConfigName = "adapter_config.json";
constexpr int64_t kMaxRank = 65'536;

// Keys whose values must be absent, null, false, empty or "none", because they
// say something that merging would have to follow.
constexpr absl::string_view kUnsupported[] = {
    "use_dora",       "rank_pattern",      "alpha_pattern",
    "fan_in_fan_out", "modules_to_save",   "lora_bias",
    "bias",           "layer_replication", "trainable_token_indices",
    "use_qalora",     "target_parameters", "use_bdlora"};

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

class Reader {
 public:
  explicit Reader(const Value& dict) : items_(dict.items()) {}

  // The value of a key, of several the last; None if it is absent.
  Value Get(absl::string_view key) const {
    Value value;
    for (size_t i = 0; i + 1 < items_.size(); i += 2) {
      if (items_[i].is(Value::Kind::kStr) && items_[i].text() == key) {
        value = items_[i + 1];
      }
    }
    return value;
  }

  absl::StatusOr<AdapterConfig> Read() const {
    const Value type = Get("peft_type");
    if (!type.is(Value::Kind::kStr) || type.text() != "LORA") {
      return absl::UnimplementedError(
          "peft_type is not LORA; only LoRA can be merged");
    }
    for (const absl::string_view key : kUnsupported) {
      if (!IsOff(Get(key))) {
        return absl::UnimplementedError(
            absl::StrCat(key, " is set, which cannot be merged"));
      }
    }
    AdapterConfig config;
    const Value rank = Get("r");
    if (!rank.is(Value::Kind::kInt) || rank.int_value() < 1 ||
        rank.int_value() > kMaxRank) {
      return absl::InvalidArgumentError(
          absl::StrCat("r is not a whole number from 1 to ", kMaxRank));
    }
    config.rank = rank.int_value();
    const Value alpha = Get("lora_alpha");
    if (alpha.is(Value::Kind::kInt)) {
      config.alpha = static_cast<double>(alpha.int_value());
    } else if (alpha.is(Value::Kind::kFloat)) {
      config.alpha = alpha.float_value();
    } else {
      return absl::InvalidArgumentError("lora_alpha is not a number");
    }
    config.uses_rslora = !IsOff(Get("use_rslora"));
    return config;
  }

 private:
  const absl::Span<const Value> items_;
};

}  // namespace

float AdapterConfig::Factor() const {
  const auto r = static_cast<double>(rank);
  return static_cast<float>(alpha / (uses_rslora ? std::sqrt(r) : r));
}

absl::StatusOr<AdapterConfig> ReadAdapterConfig(FileSystem& fs,
                                                absl::string_view path,
                                                const std::stop_token& stop) {
  const std::string file = JoinPath(path, kAdapterConfigName);
  const absl::StatusOr<std::string> text =
      ReadFile(fs, file, kMaxModelConfigBytes, /*follow_symlinks=*/true, stop);
  if (!text.ok()) return WithSide(text.status(), ErrorSide::kSource);
  ValueArena arena;
  absl::StatusOr<Value> value = ParseJsonValue(*text, arena);
  if (value.ok() && !value->is(Value::Kind::kDict)) {
    value = absl::DataLossError("the file does not have keys and values");
  }
  absl::StatusOr<AdapterConfig> config =
      value.ok() ? Reader(*value).Read() : value.status();
  if (!config.ok()) {
    return WithSide(Annotate(config.status(), file), ErrorSide::kSource);
  }
  return config;
}

}  // namespace dcp
