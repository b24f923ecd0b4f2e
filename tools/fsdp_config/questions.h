// SPDX-License-Identifier: Apache-2.0
// AskForConfig: asks the questions of `fsdp-config init`, which resemble those
// of `accelerate config`. One thread.
#ifndef TOOLS_FSDP_CONFIG_QUESTIONS_H_
#define TOOLS_FSDP_CONFIG_QUESTIONS_H_

#include <istream>
#include <optional>
#include <ostream>

#include "absl/status/statusor.h"
#include "config/model/train_config.h"

namespace fsdp::tools {

struct Answers {
  ConfigDialect dialect;
  TrainConfig config;
};

// Writes one question a line to `out`, with the default in brackets, and reads
// one answer a line from `in`. An empty answer means the default; after an
// invalid one the question is repeated. The dialect is asked for if it is not
// given. InvalidArgument: the answers end before the questions do.
absl::StatusOr<Answers> AskForConfig(std::optional<ConfigDialect> dialect,
                                     std::istream& in, std::ostream& out);

}  // namespace fsdp::tools

#endif  // TOOLS_FSDP_CONFIG_QUESTIONS_H_
