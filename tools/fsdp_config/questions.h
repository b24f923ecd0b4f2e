// AskForConfig: the questions of `fsdp-config init`, as `accelerate config`
// asks them. For one thread.
#ifndef TOOLS_FSDP_CONFIG_QUESTIONS_H_
#define TOOLS_FSDP_CONFIG_QUESTIONS_H_

#include <istream>
#include <optional>
#include <ostream>

#include "absl/status/statusor.h"
#include "fsdp/config/train_config.h"

namespace fsdp::tools {

struct Answers {
  Dialect dialect;
  TrainConfig config;
};

// A question a line on `out`, with its default in brackets, and an answer a
// line from `in`; an empty one is the default, and one that makes no sense is
// asked for again. The dialect is asked for where it is not given.
// InvalidArgument: the answers end before the questions do.
absl::StatusOr<Answers> AskForConfig(std::optional<Dialect> dialect,
                                     std::istream& in, std::ostream& out);

}  // namespace fsdp::tools

#endif  // TOOLS_FSDP_CONFIG_QUESTIONS_H_
