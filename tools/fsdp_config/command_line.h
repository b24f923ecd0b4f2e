// SPDX-License-Identifier: Apache-2.0
// CommandLine: a user's request to fsdp-config. Plain data;
// command_line_parser.h makes it from words.
#ifndef TOOLS_FSDP_CONFIG_COMMAND_LINE_H_
#define TOOLS_FSDP_CONFIG_COMMAND_LINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/model/train_config.h"

namespace fsdp::tools {

enum class Verb : uint8_t { kCheck, kExplain, kToFsdp2, kConvert, kInit };

struct CommandLine {
  enum class Action : uint8_t { kRun, kHelp, kVersion, kLicenses };

  Action action = Action::kRun;
  std::optional<Verb> verb;  // absent for general help and for the version
  // The file to read; "-" is standard input. Only `check` takes several, and
  // then `file` is the first.
  std::string file;
  std::vector<std::string> files;
  bool json = false;
  bool strict = false;       // changed and ignored findings are problems too
  bool environment = false;  // FSDP_* and ACCELERATE_* win over the file
  // For explain; check and convert take the first two as well; 0: not given.
  int64_t world_size = 0;
  int64_t local_world_size = 0;
  std::string model;  // a checkpoint; empty: none
  int64_t local_batch_size = 0;
  int64_t seq_len = 0;
  // to-fsdp2, convert and init
  std::string output_file;  // empty: standard output, or the file itself
  bool overwrite = false;
  std::optional<ConfigDialect> to;
};

}  // namespace fsdp::tools

#endif  // TOOLS_FSDP_CONFIG_COMMAND_LINE_H_
