// SPDX-License-Identifier: Apache-2.0
// ModelSizes: the numbers that the rules of a mapping are about, for one model:
// what the names in formulas stand for, and the sizes of axes and indices. They
// come from settings of the user, the formulas of the rule file, its params and
// the config.json of the model, in this order. One thread.
#ifndef DCP_MAPPING_LANGUAGE_MODEL_SIZES_H_
#define DCP_MAPPING_LANGUAGE_MODEL_SIZES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/mapping/language/formula.h"
#include "dcp/mapping/language/mapping_file.h"

namespace dcp {

// What --set changes, by name: a param, a size of the rule file or a key of
// config.json.
using MappingSettings = std::map<std::string, int64_t>;

class ModelSizes {
 public:
  // `config_json` is the text of config.json, or empty; `file` must outlive
  // this. InvalidArgument if it is not a JSON object or exceeds
  // kMaxModelConfigBytes, and for a setting that no rule refers to.
  static absl::StatusOr<ModelSizes> Create(const MappingFile& file,
                                           absl::string_view config_json,
                                           const MappingSettings& settings);

  // The value of a name in a formula. Keys of config.json are "a.b"; those that
  // are not there are looked for below text_config. Booleans are 0 and 1, null
  // is the same as no key, and "model_type.qwen3" is 1 if that is the type of
  // the model. NotFound, saying who needs it, if it has no
  // value; InvalidArgument if it is not an integer or refers to itself.
  absl::StatusOr<int64_t> ValueOf(absl::string_view name);
  absl::StatusOr<int64_t> ValueOf(const Formula& formula);

  // The size of an axis or index; nullopt if only shapes or names can tell.
  // InvalidArgument if it is negative or its formula fails.
  absl::StatusOr<std::optional<uint64_t>> SizeOf(const std::string& axis);
  // Why SizeOf gave nothing, for messages; empty if the rule file does not
  // define this axis.
  std::string WhyUnknown(const std::string& axis);
  // "group = num_key_value_heads = 8": where a size comes from.
  std::string Explain(const std::string& axis, uint64_t size) const;
  // The settings that a size depends on and that no config.json tells, such as
  // vocab_multiple.
  std::vector<std::string> AxisSettings(absl::string_view axis) const;

  // The keys of config.json that were used so far, and their values.
  const std::map<std::string, int64_t>& used() const { return used_; }

 private:
  explicit ModelSizes(const MappingFile& file) : file_(&file) {}

  absl::Status ReadConfig(absl::string_view json);
  absl::Status CheckSettings(const MappingSettings& settings) const;
  absl::StatusOr<int64_t> FromFile(const MappingFile::Size& size);
  absl::StatusOr<int64_t> FromConfig(const std::string& name);

  const MappingFile* file_;
  MappingSettings settings_;
  // Integers of config.json by path; nullopt for what is not an integer.
  std::map<std::string, std::optional<int64_t>> config_;
  // Sizes of the rule file, also those that failed.
  std::map<std::string, absl::StatusOr<int64_t>> known_;
  std::set<std::string> open_;  // being evaluated
  std::map<std::string, int64_t> used_;
};

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_MODEL_SIZES_H_
