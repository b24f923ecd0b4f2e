// SPDX-License-Identifier: Apache-2.0
// Reads a training config in any dialect. Any thread.
#ifndef CONFIG_READ_CONFIG_H_
#define CONFIG_READ_CONFIG_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "config/document/findings.h"
#include "config/model/train_config.h"

namespace fsdp {

struct ReadConfig {
  std::optional<ConfigDialect> dialect = {};  // absent: none was recognized
  // If findings has problems, only the settings that could be read.
  TrainConfig config;
  Findings findings;
};

// The dialect follows from the keys, the syntax from the name (.toml, .json,
// .yaml, .yml, .py) or the text; text in which no dialect is recognized is a
// problem. The findings have all problems at once.
ReadConfig read_config_text(absl::string_view name, absl::string_view text);
// A file's whole text. An error such as NotFound when it cannot be read;
// InvalidArgument for more than 1 MiB.
absl::StatusOr<std::string> config_text(const std::string& path);
// Follows transformers' `fsdp_config: "fsdp.json"`, from this process's folder
// or from the config's. read_config_text refuses it.
absl::StatusOr<ReadConfig> read_config_file(const std::string& path);

// accelerate's FSDP_* and ACCELERATE_* variables, as `accelerate launch` sets
// them for the processes it starts; each is "NAME=value"; others are ignored.
// They override the file, as in accelerate: they are added to `base`.
void read_environment(const std::vector<std::string>& variables,
                      TrainConfig& base, Findings& findings);

// The common case: the file, then, for accelerate and transformers, this
// process's environment; an error lists every problem, one a line. The process
// with RANK 0, or without RANK, logs the changed and ignored findings.
absl::StatusOr<TrainConfig> load_config(const std::string& path);

}  // namespace fsdp

#endif  // CONFIG_READ_CONFIG_H_
