// SPDX-License-Identifier: Apache-2.0
// ModelSizes: one model's numbers for a mapping's rules: the values for names
// in formulas, and the sizes for axes and indices. They come from the user's
// settings, the rule file's formulas, its params and the model's config.json,
// in this order. One thread.
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

// The values that --set changes, by name: a param, a size in the rule file or a
// key in config.json.
using MappingSettings = std::map<std::string, int64_t>;

class ModelSizes {
 public:
  // `config_json` is the text of config.json, or empty; `file` must outlive
  // this. InvalidArgument if it is not a JSON object or exceeds
  // kMaxModelConfigBytes, and for a setting that no rule refers to.
  static absl::StatusOr<ModelSizes> Create(const MappingFile& file,
                                           absl::string_view config_json,
                                           const MappingSettings& settings);

  // The value for a name in a formula. Keys in config.json are "a.b"; missing
  // keys are looked up below text_config. Booleans are 0 and 1, null is the
  // same as no key, and "model_type.qwen3" is 1 if that is the model's type.
  // NotFound, naming the formula that needs it, if it has no value;
  // InvalidArgument if it is not an integer or refers to itself.
  absl::StatusOr<int64_t> FindValue(absl::string_view name);
  absl::StatusOr<int64_t> FindValue(const Formula& formula);

  // The size of an axis or index; nullopt if only shapes or names determine it.
  // InvalidArgument if it is negative or the formula fails.
  absl::StatusOr<std::optional<uint64_t>> FindKnownSize(
      const std::string& axis);
  // Why FindKnownSize returned nullopt, for messages; empty if the rule file
  // does not define this axis.
  std::string WhyUnknown(const std::string& axis);
  // "group = num_key_value_heads = 8": where a size comes from.
  std::string Explain(const std::string& axis, uint64_t size) const;
  // The settings that a size depends on and that no config.json contains, such
  // as vocab_multiple.
  std::vector<std::string> AxisSettings(absl::string_view axis) const;

  // The config.json keys used so far, and their values.
  const std::map<std::string, int64_t>& used() const { return used_; }

 private:
  explicit ModelSizes(const MappingFile& file) : file_(&file) {}

  absl::Status ReadConfig(absl::string_view json);
  absl::Status CheckSettings(const MappingSettings& settings) const;
  absl::StatusOr<int64_t> FromFile(const MappingFile::Size& size);
  absl::StatusOr<int64_t> FromConfig(const std::string& name);

  const MappingFile* file_;
  MappingSettings settings_;
  // Integers in config.json by path; nullopt for other values.
  std::map<std::string, std::optional<int64_t>> config_;
  // The rule file's sizes, including those that failed.
  std::map<std::string, absl::StatusOr<int64_t>> known_;
  std::set<std::string> open_;  // being evaluated
  std::map<std::string, int64_t> used_;
};

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_MODEL_SIZES_H_
