// Which syntax and which dialect a config has, from what it says; names and
// suffixes decide on the syntax alone. For read_config. Pure; any thread.
#ifndef FSDP_CONFIG_DIALECT_OF_H_
#define FSDP_CONFIG_DIALECT_OF_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "fsdp/config/document.h"
#include "fsdp/config/train_config.h"

namespace fsdp::config {

// Of a name that ends in none of .toml, .json, .yaml and .yml the text
// decides.
Syntax SyntaxOf(absl::string_view name, absl::string_view text);

// The map that has the config: the root, or where that is a run of MosaicML's
// mcli, its `parameters`. Within `root`.
const Node& ConfigRoot(const Node& root);

// Of what ConfigRoot gives. A config that could be of several dialects, such as
// {"fsdp_config": {}}, is one of transformers.
std::optional<Dialect> DialectOf(const Node& root);

// A program whose files are not read, by keys that it alone has: "DeepSpeed",
// "nanotron", "Cargo". Empty: none that is known.
absl::string_view OtherProgramOf(const Node& root);

// Whether a text is a program that makes TorchTitan's config, as
// config_registry.py of its 0.3.
bool IsTorchTitanProgram(absl::string_view text);

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_DIALECT_OF_H_
