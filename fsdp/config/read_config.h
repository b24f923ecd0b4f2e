// Reading a training config of any dialect. Any thread.
#ifndef FSDP_CONFIG_READ_CONFIG_H_
#define FSDP_CONFIG_READ_CONFIG_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fsdp/config/findings.h"
#include "fsdp/config/train_config.h"

namespace fsdp {

struct ReadConfig {
  std::optional<Dialect> dialect = {};  // absent: none was recognized
  // What the readable part says, where findings has problems.
  TrainConfig config;
  Findings findings;
};

// The dialect follows from the keys, the syntax from the name (.toml, .json,
// .yaml, .yml, .py) or the text; text in which no dialect is recognized is a
// problem. All that is wrong is in the findings, at once.
ReadConfig read_config_text(absl::string_view name, absl::string_view text);
// The text of a file, whole. NotFound and the like when it cannot be read; one
// of more than 1 MiB is refused (InvalidArgument).
absl::StatusOr<std::string> config_text(const std::string& path);
// Follows `fsdp_config: "fsdp.json"` of transformers, from this process's
// folder or from the config's, which read_config_text refuses.
absl::StatusOr<ReadConfig> read_config_file(const std::string& path);

// accelerate's FSDP_* and ACCELERATE_* variables, as `accelerate launch` sets
// them for the processes it starts; "NAME=value" each, others are passed over.
// They win over the file, as they do there: `base` is what they are added to.
void read_environment(const std::vector<std::string>& variables,
                      TrainConfig& base, Findings& findings);

// The common case: the file, then, for accelerate and transformers, the
// environment of this process; an error lists every problem, one a line. What
// is changed and what has no effect goes to the log, of the process whose RANK
// is 0 or unset.
absl::StatusOr<TrainConfig> load_config(const std::string& path);

}  // namespace fsdp

#endif  // FSDP_CONFIG_READ_CONFIG_H_
