// SPDX-License-Identifier: Apache-2.0
// The options for a run of train_llama: another program's config, a file with
// `key = value` lines, and flags `--key=value`; later ones override earlier
// ones. Lines and flags have the same keys; an unknown one is refused by name.
// Pure; any thread.
#ifndef FSDP_EXAMPLES_TRAIN_LLAMA_FLAGS_H_
#define FSDP_EXAMPLES_TRAIN_LLAMA_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "config/document/setting.h"
#include "fsdp/examples/train_llama/config.h"

namespace llama {

// Sets the key in one line or flag; names and values as a user writes them.
// `place` is kept for errors that only the ranks or the model can show.
absl::Status SetOption(absl::string_view key, absl::string_view value,
                       const fsdp::SourceLocation& place, Config* config);

// Reads all lines in a file's text; `name` is for errors. '#' begins a comment.
absl::Status ReadOptionsText(absl::string_view name, absl::string_view text,
                             Config* config);

// `flags` follow the program's name. --config=FILE is read first, then
// --options=FILE, wherever they are, then the others. "--key value" and, for
// switches, "--key" work too.
absl::StatusOr<Config> ParseFlags(const std::vector<std::string>& flags);

// Call it once it is known how many ranks read different data: fills `batch`
// and `accumulate` if no flag did, from the config's batch sizes or by default.
// Returns InvalidArgument for numbers that do not fit together.
absl::Status FitBatch(int64_t num_readers, Config* config);

// The text that --help prints.
std::string HelpText();

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_FLAGS_H_
