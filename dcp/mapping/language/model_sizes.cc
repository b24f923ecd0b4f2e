// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/language/model_sizes.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/nearest_word.h"
#include "dcp/base/status.h"
#include "dcp/format/json/json.h"
#include "dcp/mapping/language/mapping_limits.h"

namespace dcp {
namespace {

using EventKind = JsonEvent::Kind;

// Collects the integers in a JSON object by path, and model_type's text as a
// key with the value 1.
class ConfigReader {
 public:
  using Values = std::map<std::string, std::optional<int64_t>>;
  explicit ConfigReader(Values& values) : values_(values) {}

  absl::Status Take(const JsonEvent& event) {
    if (event.depth == 0 && event.kind != EventKind::kBeginObject &&
        event.kind != EventKind::kEndObject) {
      return absl::InvalidArgumentError("is not an object");
    }
    switch (event.kind) {
      case EventKind::kBeginObject:
      case EventKind::kBeginArray:
        if (event.depth > 0) Value(std::nullopt);
        num_arrays_ += event.kind == EventKind::kBeginArray ? 1 : 0;
        keys_.emplace_back();
        break;
      case EventKind::kEndObject:
      case EventKind::kEndArray:
        num_arrays_ -= event.kind == EventKind::kEndArray ? 1 : 0;
        keys_.pop_back();
        break;
      case EventKind::kKey:
        keys_.back() =
            std::string(event.text.substr(0, kMaxConfigPathBytes + 1));
        break;
      case EventKind::kUnsigned:
        Value(event.number <=
                      static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
                  ? std::optional(static_cast<int64_t>(event.number))
                  : std::nullopt);
        break;
      case EventKind::kOtherNumber: {
        int64_t number = 0;
        Value(absl::SimpleAtoi(event.text, &number) ? std::optional(number)
                                                    : std::nullopt);
        break;
      }
      case EventKind::kBool:
        Value(static_cast<int64_t>(event.number));
        break;
      case EventKind::kString:
        Value(std::nullopt);
        if (keys_.back() == "model_type") {
          keys_.emplace_back(event.text.substr(0, kMaxConfigPathBytes + 1));
          Value(1);
          keys_.pop_back();
        }
        break;
      case EventKind::kNull:
        break;
    }
    return absl::OkStatus();
  }

 private:
  void Value(std::optional<int64_t> value) {
    if (num_arrays_ > 0) return;
    size_t length = keys_.size();
    for (const std::string& key : keys_) length += key.size();
    if (length > kMaxConfigPathBytes) return;
    values_[absl::StrJoin(keys_, ".")] = value;
  }

  Values& values_;
  std::vector<std::string> keys_;  // in the open objects and arrays
  int num_arrays_ = 0;
};

}  // namespace

absl::StatusOr<ModelSizes> ModelSizes::Create(const MappingFile& file,
                                              absl::string_view config_json,
                                              const MappingSettings& settings) {
  ModelSizes sizes(file);
  DCP_RETURN_IF_ERROR(sizes.ReadConfig(config_json));
  DCP_RETURN_IF_ERROR(sizes.CheckSettings(settings));
  sizes.settings_ = settings;
  return sizes;
}

absl::Status ModelSizes::ReadConfig(absl::string_view json) {
  if (json.empty()) return absl::OkStatus();
  if (json.size() > kMaxModelConfigBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.json has ", json.size(), " bytes, more than ",
                     kMaxModelConfigBytes));
  }
  ConfigReader reader(config_);
  const absl::Status parsed = ParseJson(
      json, [&](const JsonEvent& event) { return reader.Take(event); });
  if (parsed.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("config.json: ", parsed.message()));
}

absl::Status ModelSizes::CheckSettings(const MappingSettings& settings) const {
  std::set<std::string> known;
  const auto add = [&](const std::vector<std::string>& names) {
    known.insert(names.begin(), names.end());
  };
  for (const auto& [name, value] : file_->params) known.insert(name);
  for (const MappingFile::Size& size : file_->config) {
    known.insert(size.name);
    for (const Formula& formula : size.formulas) add(formula.Names());
  }
  for (const MappingRule& rule : file_->rules) {
    if (rule.when.has_value()) add(rule.when->Names());
    if (rule.optional.has_value()) add(rule.optional->Names());
    for (const MappingRule::Range& range : rule.ranges) {
      add(range.first.Names());
      add(range.end.Names());
    }
  }
  for (const auto& [name, value] : settings) {
    if (known.contains(name)) continue;
    const std::vector<absl::string_view> words(known.begin(), known.end());
    const absl::string_view nearest = NearestWord(name, words);
    return absl::InvalidArgumentError(absl::StrCat(
        "the setting ", name, " is not a name in ", file_->file_name,
        nearest.empty()
            ? absl::StrCat("; there are ", absl::StrJoin(words, ", "))
            : absl::StrCat("; is ", nearest, " meant?")));
  }
  return absl::OkStatus();
}

std::vector<std::string> ModelSizes::AxisSettings(
    absl::string_view axis) const {
  std::vector<std::string> settings;
  const MappingFile::Size* const size = file_->FindSize(axis);
  if (size == nullptr) return settings;
  for (const Formula& formula : size->formulas) {
    for (std::string& name : formula.Names()) {
      if (file_->params.contains(name)) settings.push_back(std::move(name));
    }
  }
  return settings;
}

absl::StatusOr<int64_t> ModelSizes::FindValue(const Formula& formula) {
  return formula.Evaluate(
      [this](absl::string_view name) { return FindValue(name); });
}

absl::StatusOr<int64_t> ModelSizes::FindValue(absl::string_view text) {
  const std::string name(text);
  if (const auto it = settings_.find(name); it != settings_.end()) {
    return it->second;
  }
  if (const MappingFile::Size* size = file_->FindSize(name)) {
    return FromFile(*size);
  }
  if (const auto it = file_->params.find(name); it != file_->params.end()) {
    return it->second;
  }
  return FromConfig(name);
}

absl::StatusOr<int64_t> ModelSizes::FromFile(const MappingFile::Size& size) {
  if (const auto it = known_.find(size.name); it != known_.end()) {
    return it->second;
  }
  if (open_.size() == kMaxSizeDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_->file_name, ":", size.line, ": ", size.name,
                     " needs more than ", kMaxSizeDepth, " other sizes"));
  }
  if (!open_.insert(size.name).second) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_->file_name, ":", size.line, ": ", size.name,
                     " refers to itself: ", absl::StrJoin(open_, ", ")));
  }
  absl::StatusOr<int64_t> value = absl::NotFoundError("no formula");
  for (const Formula& formula : size.formulas) {
    value = FindValue(formula);
    if (!absl::IsNotFound(value.status())) break;
  }
  open_.erase(size.name);
  if (!value.ok()) {
    value = absl::Status(
        value.status().code(),
        absl::StrCat(value.status().message(), "; needed by ", size.name, " (",
                     file_->file_name, ":", size.line, ")"));
  }
  known_.emplace(size.name, value);
  return value;
}

absl::StatusOr<int64_t> ModelSizes::FromConfig(const std::string& name) {
  for (const std::string& path : {name, absl::StrCat("text_config.", name)}) {
    const auto it = config_.find(path);
    if (it == config_.end()) continue;
    if (!it->second.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " in config.json is not an integer"));
    }
    used_[path] = *it->second;
    return *it->second;
  }
  return absl::NotFoundError(
      absl::StrCat(name, " is in neither config.json nor the settings"));
}

absl::StatusOr<std::optional<uint64_t>> ModelSizes::FindKnownSize(
    const std::string& axis) {
  if (file_->FindSize(axis) == nullptr && !file_->params.contains(axis)) {
    return std::nullopt;
  }
  const absl::StatusOr<int64_t> value = FindValue(axis);
  if (absl::IsNotFound(value.status())) return std::nullopt;
  if (!value.ok()) return value.status();
  if (*value < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the size of ", axis, " is ", *value));
  }
  return static_cast<uint64_t>(*value);
}

std::string ModelSizes::WhyUnknown(const std::string& axis) {
  if (file_->FindSize(axis) == nullptr) return "";
  return std::string(FindValue(axis).status().message());
}

std::string ModelSizes::Explain(const std::string& axis, uint64_t size) const {
  const MappingFile::Size* from = file_->FindSize(axis);
  const bool is_plain =
      from == nullptr || settings_.contains(axis) || from->formulas.size() != 1;
  return absl::StrCat(axis, " = ", is_plain ? "" : from->formulas[0].text(),
                      is_plain ? "" : " = ", size);
}

}  // namespace dcp
