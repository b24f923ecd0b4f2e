// SPDX-License-Identifier: Apache-2.0
// Option: one key in train_llama's lines and flags: how the value is read,
// where it goes, and the --help text. An option writes into a field of Config,
// or into a setting in TrainConfig, which keeps the place. For flags.cc. Pure;
// any thread.
#ifndef FSDP_EXAMPLES_TRAIN_LLAMA_OPTION_H_
#define FSDP_EXAMPLES_TRAIN_LLAMA_OPTION_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "config/document/setting.h"
#include "config/model/train_config.h"
#include "dcp/tensor/dtype.h"

namespace llama {

using Setter = std::function<absl::Status(absl::string_view value,
                                          const fsdp::SourceLocation& place)>;
struct Option {
  std::string key;
  Setter set;
  std::string help;
  std::string value;  // the default; empty: not shown
  bool is_switch = false;
};

inline absl::Status Refuse(absl::string_view key, absl::string_view value,
                           absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(key, " is '", value, "', not ", wanted));
}

// Writes a field of Config, or a setting in TrainConfig, which keeps the place.
template <typename T, typename U>
void Assign(const T& value, const fsdp::SourceLocation& /*place*/, U* target) {
  *target = value;
}
template <typename T, typename U>
void Assign(const T& value, const fsdp::SourceLocation& place,
            fsdp::Setting<U>* target) {
  *target = fsdp::Setting<U>(U(value), place);
}
// The text that --help shows for a value.
inline std::string DefaultText(int64_t field) { return absl::StrCat(field); }
inline std::string DefaultText(double field) { return absl::StrCat(field); }
inline std::string DefaultText(const std::string& field) { return field; }
inline std::string DefaultText(const std::optional<double>& field) {
  return field.has_value() ? DefaultText(*field) : "";
}
inline std::string DefaultText(const fsdp::Setting<std::string>& setting) {
  return *setting;
}
inline std::string DefaultText(const fsdp::Setting<int64_t>& setting) {
  return DefaultText(*setting);
}
inline std::string DefaultText(
    const fsdp::Setting<std::optional<double>>& setting) {
  return setting->has_value() ? DefaultText(**setting) : "";
}

template <typename Target>
Option Integer(const std::string& key, Target* target, int64_t least,
               const std::string& help) {
  const Setter set = [key, target, least](absl::string_view value,
                                          const fsdp::SourceLocation& place) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(value, &number) || number < least) {
      return Refuse(key, value, absl::StrCat("a whole number from ", least));
    }
    Assign(number, place, target);
    return absl::OkStatus();
  };
  return {key, set, help, DefaultText(*target)};
}

template <typename Target>
Option Real(const std::string& key, Target* target, const std::string& help) {
  const Setter set = [key, target](absl::string_view value,
                                   const fsdp::SourceLocation& place) {
    double number = 0;
    if (!absl::SimpleAtod(value, &number) || !(number >= 0) ||
        number > std::numeric_limits<double>::max()) {
      return Refuse(key, value, "a number from 0");
    }
    Assign(number, place, target);
    return absl::OkStatus();
  };
  return {key, set, help, DefaultText(*target)};
}

template <typename Target>
Option Text(const std::string& key, Target* target, const std::string& help) {
  const Setter set = [target](absl::string_view value,
                              const fsdp::SourceLocation& place) {
    Assign(std::string(value), place, target);
    return absl::OkStatus();
  };
  return {key, set, help, ""};
}

template <typename Target>
Option Choice(const std::string& key, Target* target,
              const std::vector<std::string>& choices,
              const std::string& help) {
  const Setter set = [key, target, choices](absl::string_view value,
                                            const fsdp::SourceLocation& place) {
    for (const std::string& choice : choices) {
      if (choice != value) continue;
      Assign(choice, place, target);
      return absl::OkStatus();
    }
    return Refuse(key, value, absl::StrJoin(choices, " or "));
  };
  return {key, set, help, DefaultText(*target)};
}

template <typename Target>
Option Switch(const std::string& key, Target* target, const std::string& help) {
  const Setter set = [key, target](absl::string_view value,
                                   const fsdp::SourceLocation& place) {
    bool is_on = false;
    if (!absl::SimpleAtob(value, &is_on)) {
      return Refuse(key, value, "true or false");
    }
    Assign(is_on, place, target);
    return absl::OkStatus();
  };
  return {key, set, help, "", true};
}

inline Option Dtype(const std::string& key,
                    fsdp::Setting<std::optional<dcp::DType>>* target,
                    const std::string& help) {
  const Setter set = [key, target](absl::string_view value,
                                   const fsdp::SourceLocation& place) {
    for (const dcp::DType dtype :
         {dcp::DType::kFloat32, dcp::DType::kBFloat16, dcp::DType::kFloat16}) {
      if (dcp::TorchName(dtype) != value) continue;
      Assign(dtype, place, target);
      return absl::OkStatus();
    }
    return Refuse(key, value, "float32 or bfloat16 or float16");
  };
  return {key, set, help, "float32"};
}

inline Option Reshard(const std::string& key,
                      fsdp::Setting<fsdp::ReshardSetting>* target,
                      const std::string& help) {
  const Setter set = [key, target](absl::string_view value,
                                   const fsdp::SourceLocation& place) {
    fsdp::ReshardSetting reshard;  // "auto"
    int64_t num_ranks = 0;
    if (absl::SimpleAtoi(value, &num_ranks)) {
      reshard = num_ranks;
    } else if (value == "true" || value == "false") {
      reshard = value == "true";
    } else if (value != "auto") {
      return Refuse(key, value, "auto, true, false or a number of ranks");
    }
    Assign(reshard, place, target);
    return absl::OkStatus();
  };
  return {key, set, help, "auto"};
}

// One field in the learning rate schedule; the others stay as they are.
using Schedule = fsdp::Setting<std::optional<fsdp::LrSchedule>>;
template <typename T>
void AssignTo(T fsdp::LrSchedule::*field, T value,
              const fsdp::SourceLocation& place, Schedule* target) {
  fsdp::LrSchedule schedule = (*target)->value_or(fsdp::LrSchedule());
  schedule.*field = value;
  *target = fsdp::Some(schedule, place);
}

inline Option Decay(const std::string& key, Schedule* target,
                    const std::string& help) {
  const Setter set = [key, target](absl::string_view value,
                                   const fsdp::SourceLocation& place) {
    using enum fsdp::LrDecay;
    for (const auto& [name, decay] :
         {std::pair("constant", kConstant), std::pair("linear", kLinear),
          std::pair("cosine", kCosine), std::pair("sqrt", kSqrt)}) {
      if (name != value) continue;
      AssignTo(&fsdp::LrSchedule::decay, decay, place, target);
      return absl::OkStatus();
    }
    return Refuse(key, value, "constant, linear, cosine or sqrt");
  };
  return {key, set, help, "constant"};
}

inline Option WarmupSteps(const std::string& key, Schedule* target,
                          const std::string& help) {
  const Setter set = [key, target](absl::string_view value,
                                   const fsdp::SourceLocation& place) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(value, &number) || number < 0) {
      return Refuse(key, value, "a whole number from 0");
    }
    AssignTo(&fsdp::LrSchedule::warmup_steps, number, place, target);
    AssignTo(&fsdp::LrSchedule::warmup_ratio, 0.0, place, target);
    return absl::OkStatus();
  };
  return {key, set, help, "0"};
}

inline Option CountsFromOne(const std::string& key, Schedule* target,
                            const std::string& help) {
  const Setter set = [key, target](absl::string_view value,
                                   const fsdp::SourceLocation& place) {
    bool counts = false;
    if (!absl::SimpleAtob(value, &counts)) {
      return Refuse(key, value, "true or false");
    }
    AssignTo(&fsdp::LrSchedule::counts_from_one, counts, place, target);
    return absl::OkStatus();
  };
  return {key, set, help, "", true};
}

// 0 means all ranks here.
inline Option ShardDegree(const std::string& key,
                          fsdp::Setting<int64_t>* target,
                          const std::string& help) {
  const Setter set = [key, target](absl::string_view value,
                                   const fsdp::SourceLocation& place) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(value, &number) || number < 0) {
      return Refuse(key, value, "a whole number from 0");
    }
    Assign(number == 0 ? fsdp::kShardOverRest : number, place, target);
    return absl::OkStatus();
  };
  return {key, set, help, "0"};
}

// A switch, or a number n: every n-th block.
inline Option EveryBlock(const std::string& key, fsdp::Setting<int64_t>* target,
                         const std::string& help) {
  const Setter set = [key, target](absl::string_view value,
                                   const fsdp::SourceLocation& place) {
    int64_t number = 0;
    bool all = false;
    if (!absl::SimpleAtoi(value, &number)) {
      if (!absl::SimpleAtob(value, &all)) number = -1;
      if (number == 0) number = int64_t{all};
    }
    if (number < 0) return Refuse(key, value, "true, false or a number");
    Assign(number, place, target);
    return absl::OkStatus();
  };
  return {key, set, help, "", true};
}

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_OPTION_H_
